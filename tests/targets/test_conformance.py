"""What every target has to keep to, shown by the same cases on each of them."""

from __future__ import annotations

import dataclasses
import select
import signal
import subprocess
import sys
import threading
import tomllib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from delayq import Client, InvalidMessage, Message, Policy, Settings
from delayq.base.times import EARLIEST
from delayq.client.known_routes import KnownRoutes
from delayq.config import load_settings
from delayq.domain.routes import Routes
from delayq.received import Received
from delayq.targets import Result, Target, open_target
from delayq.testing import MemoryTarget
from testbed.process import stand_still
from tests.docs.blocks import ROOT
from tests.support.deliveries import delivery, outcomes
from tests.support.hand_backs import next_id
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest, real_server
from tests.support.timeouts import REDIS_TIMEOUT, SEND_SECONDS, SEND_TIMEOUT
from tests.support.unread import unread
from tests.support.waiting import eventually, settled
from tests.targets.adapters import Seen
from tests.targets.conformance import KINDS, NOWHERE, Adapter, Kind, fields, hanging, put_flaky_before


@pytest.fixture(scope="module")
def elsewhere_server() -> Iterator[ServerUnderTest]:
    with real_server("valkey", appendonly=False) as server:
        yield server


@pytest.fixture
def elsewhere(elsewhere_server: ServerUnderTest) -> ServerUnderTest:
    """Another Redis than delayq's own."""
    return elsewhere_server


@pytest.fixture
def memory_target() -> MemoryTarget:
    return MemoryTarget()


class Bench:
    """A kind of target, what it is made of, and a topic of this test alone."""

    def __init__(self, kind: Kind, server: Any) -> None:
        self.kind = kind
        self.server = server
        self.adapter: Adapter = kind.adapt(server)
        suits: Callable[[str], bool] = getattr(self.adapter, "suits", lambda topic: True)
        self.topic = next(filter(suits, (f"conf-{uuid.uuid4().hex[:12]}" for _ in range(1_000))))
        self.route = self.adapter.route(self.topic)
        self._opened: list[Target] = []

    def open(self) -> Target:
        """The target; it is closed at the end."""
        self._opened.append(open_target(self.route, NOWHERE))
        return self._opened[-1]

    def delivery(self, id: str, body: Any = "x", attempts: int = 0, **more: Any) -> Any:
        """A message of the topic."""
        return delivery(id, body, attempts, **({"topic": self.topic} | more))

    def send(self, batch: Sequence[Any]) -> list[Result]:
        """Send by a target of its own, which is closed then."""
        target = open_target(self.route, NOWHERE)
        try:
            results = [
                result
                for start in range(0, len(batch), target.max_batch)
                for result in target.send(batch[start : start + target.max_batch], SEND_SECONDS)
            ]
        finally:
            target.close()
        for one, result in zip(batch, results, strict=True):
            assert not self.refusal(one) or result.outcome == "rejected", (
                f"{one.id} is refused, but the target takes it"
            )
        return results

    def refusal(self, one: Any) -> str:
        """Why the message is refused when it is scheduled; '' if it is not."""
        try:
            KnownRoutes(Routes([replace(self.route, match="*")])).check(one.record.message(one.id))
        except InvalidMessage as error:
            return f"{error.field}: {error.reason}"
        return ""

    def read(self, count: int) -> list[Seen]:
        """What arrived in the topic."""
        return self.adapter.read(self.topic, count)

    def everything(self) -> set[str]:
        """The ids of all that arrived in the topic; something did."""
        read_on: Callable[[str], list[Seen]] | None = getattr(self.adapter, "read_on", None)
        return {seen.id for seen in (read_on(self.topic) if read_on is not None else self.read(1))}

    def settings(self, redis: ServerUnderTest, **given: Any) -> Settings:
        """Of a node with this route alone."""
        values: dict[str, Any] = {
            "queues": 2,
            "redis_timeout": REDIS_TIMEOUT,
            "send_timeout": SEND_TIMEOUT,
            "retry_base": 20,
            "retry_cap": 100,
        }
        routes = msgspec.json.encode([self.route]).decode()
        return load_settings(**{"redis_url": redis.url, "routes": routes, **values, **given})

    def close(self) -> None:
        for target in self._opened:
            target.close()
        if close := getattr(self.adapter, "close", None):
            close()


def _param(kind: Kind) -> Any:
    marks = [pytest.mark.long, pytest.mark.xdist_group(kind.group)] if kind.group else []
    return pytest.param(kind, id=kind.name, marks=marks)


@pytest.fixture(params=map(_param, KINDS))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    kind: Kind = request.param
    if not kind.there:
        pytest.skip(f"no adapter tests/targets/adapters/{kind.module}.py")
    made = Bench(kind, request.getfixturevalue(kind.server))
    yield made
    made.close()


def test_every_target_of_the_package_has_an_adapter() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["delayq.targets"]
    assert set(declared) <= {scheme for kind in KINDS if kind.there for scheme in kind.schemes}


# -- what arrives --------------------------------------------------------------------------------------------------------


ODD_IDS = ("0", "-", "a" * 128, "A:b", "...", "1e5", "None", "01995c6e-0000-7000-8000-000000000000", "x_y.z-1")


def test_every_field_arrives_as_it_was(bench: Bench) -> None:
    plain = bench.delivery(
        "order-42.unpaid_1:a",
        "two\nlines",
        2,
        tags="unpaid",
        keys=("order-42", "customer-7"),
        ordering_key="shop 7",
        properties={"region": "eu", "empty": "", "with spaces": "a  b"},
    )
    letters = bench.delivery(
        "letters",
        {"order": 42, "text": "é", "none": None},
        tags="überfällig",
        keys=("заказ-42", "注文"),
        ordering_key="größe/🗝",
        properties={"clé": "valeur ✓", "名前": "値", "%41": "100 %", '"': "=;,&\\"},
    )
    assert letters.payload == '{"order":42,"text":"é","none":null}'.encode()  # a JSON body is compact text
    batch = [plain, letters, *map(bench.delivery, ODD_IDS)]
    assert outcomes(bench.send(batch)) == ["ok"] * len(batch)
    arrived = {seen.id: seen for seen in bench.read(len(batch))}
    assert arrived == {one.id: fields(bench.kind, one) for one in batch}
    for seen in arrived.values():
        if seen.received is not None:
            assert _as_read(seen.received, seen) == seen


def _as_read(received: Received, seen: Seen) -> Seen:
    """What the reader for consumers returned, with the fields that this target carries."""
    found = msgspec.structs.asdict(received) | {"payload": received.body}
    if seen.keys is not None:  # a client of RocketMQ knows them without their order
        assert sorted(found["keys"]) == sorted(seen.keys)
        found["keys"] = seen.keys
    names = [each.name for each in dataclasses.fields(Seen) if each.compare]
    carried: dict[str, Any] = {name: None if getattr(seen, name) is None else found[name] for name in names}
    return Seen(**carried)


def test_bodies_arrive_byte_for_byte(bench: Bench) -> None:
    bodies = (
        b"", "", b"\0", bytes(range(256)), b"\xff\xfe\r\n\r\n\0", "\ud7ff\ue000", "{not json", b" \t ", b"x" * 100_000
    )  # fmt: skip
    batch = [bench.delivery(str(number), body) for number, body in enumerate(bodies)]
    taken = [one for one in batch if one.payload or not bench.kind.no_empty]
    assert outcomes(bench.send(batch)) == ["ok" if one in taken else "rejected" for one in batch]
    arrived = {seen.id: seen.payload for seen in bench.read(len(taken))}
    assert arrived == {one.id: fields(bench.kind, one).payload for one in taken}


# -- batches, threads, the end -------------------------------------------------------------------------------------------


def test_a_batch_of_the_most_messages_arrives_once_and_no_thread_is_left(bench: Bench) -> None:
    before = set(threading.enumerate())
    target = open_target(bench.route, NOWHERE)
    batch = [bench.delivery(f"m{number}", str(number)) for number in range(min(target.max_batch, 500))]
    assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"] * len(batch)
    during = set(threading.enumerate()) - before
    target.close()
    seen = bench.read(len(batch))
    assert sorted((one.id, one.payload) for one in seen) == sorted((one.id, one.payload) for one in batch)
    eventually(lambda: not any(one.is_alive() for one in during if "target" in one.name), "its threads have ended")


def test_what_is_refused_when_it_is_scheduled_the_target_rejects_alone(bench: Bench) -> None:
    """Each message of a batch has an outcome of its own, also one that only the target refuses."""
    refuse: Callable[[str], dict[str, Any]] | None = getattr(bench.adapter, "refuse", None)
    never: Callable[[str], list[dict[str, Any]]] | None = getattr(bench.adapter, "never", None)
    if refuse is None and never is None:
        pytest.skip(f"{bench.kind.name} takes every message or none")
    fields = never(bench.topic) if never is not None else []
    wrong = [bench.delivery(**{"id": f"wrong-{n}", **one}) for n, one in enumerate(fields)]
    assert all(bench.refusal(one) for one in wrong)
    if refuse is not None:
        wrong.append(bench.delivery(**{"id": "wrong", "body": "y", **refuse(bench.topic)}))
    results = bench.send([bench.delivery("first"), *wrong, bench.delivery("last")])
    assert outcomes(results) == ["ok", *["rejected"] * len(wrong), "ok"]
    assert all(result.reason for result in results[1:-1])
    assert sorted(seen.id for seen in bench.read(2)) == ["first", "last"]


def test_several_threads_send_at_once(bench: Bench) -> None:
    target = bench.open()
    size = min(20, target.max_batch)
    results: list[Result] = []

    def send(thread: int) -> None:
        for number in range(5):
            results.extend(target.send([bench.delivery(f"{thread}-{number}-{n}") for n in range(size)], SEND_SECONDS))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes(results) == ["ok"] * 20 * size
    counts = Counter(seen.id for seen in bench.read(20 * size))
    assert counts == {f"{thread}-{number}-{n}": 1 for thread in range(4) for number in range(5) for n in range(size)}


@pytest.mark.long
@pytest.mark.parametrize("how", ["connecting", "writing"])
def test_a_process_that_stands_still_while_it_sends_writes_nothing_more_when_its_time_is_over(
    bench: Bench, how: str
) -> None:
    port: int | None = getattr(bench.adapter, "port", None)
    if port is None:
        pytest.skip(f"{bench.kind.name} has no server that can stand still meanwhile")
    others = {*unread(port)}  # such as the replicas of a cluster, which tell their primary something now and then
    with ExitStack() as stack:
        # On a busy machine its time may be over before it stands still. Then another one begins, with more time.
        for seconds in (4, 8, 16):
            sender = stack.enter_context(_sender(bench, seconds, how))
            its = _stopped_while_it_sends(bench, sender, port, others)
            if its:
                break
        assert its, "it was stopped in the middle"
        threading.Event().wait(seconds + 1)  # its time-out is the system's
        eventually(lambda: not any(unread(port).get(end) for end in its), "the server has read what came before")
        before = bench.everything() if how == "writing" else set()
        sender.send_signal(signal.SIGCONT)
        assert sender.stdout is not None
        said = sender.stdout.readline().split()
        sender.wait()
    assert {*said} <= {"ok", "unavailable", "unknown"} and said != ["ok"], said
    eventually(lambda: not unread(port).keys() & its.keys(), "the server has read all that came")
    assert outcomes(bench.send([bench.delivery("in time")])) == ["ok"]
    assert bench.everything() - before == {"in time"}


@contextmanager
def _sender(bench: Bench, seconds: int, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready to send; it is killed at the end."""
    words = [msgspec.json.encode(bench.route).decode(), bench.topic, str(seconds), how]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.targets.sender", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sender:
        try:
            assert sender.stdout is not None
            assert sender.stdout.readline() == "ready\n"
            yield sender
        finally:
            sender.kill()


def _stopped_while_it_sends(
    bench: Bench, sender: subprocess.Popen[str], port: int, others: Collection[str]
) -> dict[str, int]:
    """Stop it while it sends to a server that stands still; the server goes on then.

    Returns how many bytes lay unread, by the other ends of its connections; none if its time was over before.
    """
    assert sender.stdin is not None and sender.stdout is not None
    said = sender.stdout

    def told() -> bool:
        return bool(select.select([said], [], [], 0)[0])

    bench.server.pause()
    try:
        sender.stdin.write("\n")
        sender.stdin.flush()
        assert said.readline() == "sending\n"
        its = settled(
            lambda: told() or {end: count for end, count in unread(port).items() if count and end not in others}
        )
        stand_still(sender.pid)  # or it would go on for a moment beside a server that answers
    finally:
        bench.server.resume()
    return {} if its is True or told() else its


# -- through a node ------------------------------------------------------------------------------------------------------


def test_a_message_that_fails_three_times_is_delivered_once_for_each_hand_back_later_each_time_and_never_early(
    bench: Bench, valkey: ServerUnderTest
) -> None:
    delays = (100, 200, 300)
    settings = bench.settings(valkey)
    arrived: dict[str, Received] = {}

    def next_one() -> Received:
        """The message that arrives next."""
        is_emptied = getattr(bench.adapter, "is_emptied", False)
        known = {*arrived}
        while arrived.keys() == known:
            for seen in bench.read(1 if is_emptied else len(arrived) + 1):
                if seen.received is None:
                    pytest.skip(f"{bench.kind.name} has no consumers")
                arrived.setdefault(seen.id, seen.received)
        (new,) = arrived.keys() - known
        return arrived[new]

    with RunningNode(settings), Client(settings=settings) as client:
        client.put_policy(Policy(name="p", match=f"{bench.topic}*", backoff=delays))
        with Client(settings=settings) as consumer:
            client.schedule(
                Message(topic=bench.topic, id="a", body={"n": 1}, keys=("k",), properties={"x": "y"}, delay_time=0)
            )
            for count, delay in enumerate(delays, start=1):
                one = next_one()
                assert (one.hand_backs, one.body, one.keys) == (count - 1, b'{"n":1}', ("k",))
                before = client.redis_now()
                result = consumer.hand_back(one, reason=f"reason {count}")
                assert result.until is not None and result.until >= before + delay
                again = consumer.hand_back(one, reason="a copy of it fails, too")
                assert again == result
            last = next_one()
            assert client.redis_now() >= last.due == result.until
        eventually(lambda: sum(queue.scheduled + queue.parked for queue in client.queues()) == 0, "all are sent")
    assert list(arrived) == ["a", *(next_id("a", count, bench.topic) for count in (1, 2, 3))]
    assert last.properties == {
        "x": "y", "delayq-hand-backs": "3", "delayq-origin": "a", "delayq-reasons": "reason 1; reason 2; reason 3",
    }  # fmt: skip


def test_within_an_ordering_key_nothing_overtakes_although_sends_fail_in_between(
    bench: Bench, valkey: ServerUnderTest
) -> None:
    ids = [f"{key}-{number}" for number in range(8) for key in "abcd"]
    faults = {id: ["unavailable"] for id in ids[1::4]} | {id: ["unknown"] for id in ids[2::7]}
    bench.route = put_flaky_before(bench.route, faults)
    settings = bench.settings(valkey)
    with RunningNode(settings), Client(settings=settings) as client:
        for due, id in enumerate(ids, start=EARLIEST):
            client.schedule(Message(topic=bench.topic, body=id, id=id, ordering_key=id[0], expect_date=due))
        eventually(lambda: sum(queue.scheduled + queue.parked for queue in client.queues()) == 0, "all are sent")
        assert client.dead_letters().letters == []
    seen = [one.id.partition(".")[0] for one in bench.read(len(ids) + len(faults.keys() - set(ids[1::4])))]
    assert set(seen) == set(ids)
    for key in "abcd":
        of_key = [id for id in seen if id.startswith(key)]
        assert of_key == sorted(of_key), "one overtook another"


def test_a_message_whose_answer_does_not_come_is_sent_again_with_the_same_id(
    bench: Bench, valkey: ServerUnderTest
) -> None:
    if not getattr(bench.adapter, "can_hang", True):
        pytest.skip(f"{bench.kind.name} cannot be made to hang")
    # The time-out of this send is the subject. A send that a busy machine delays is repeated in the same way.
    settings = bench.settings(valkey, send_timeout=1_000)
    with RunningNode(settings), Client(settings=settings) as client:
        with hanging(bench.adapter, bench.server):
            client.schedule(Message(topic=bench.topic, id="a", body="once at least", delay_time=0, max_attempts=1_000))
            eventually(lambda: (found := client.get("a")) is not None and found.attempts > 0, "it timed out")
        eventually(lambda: (found := client.get("a")) is not None and found.state == "delivered", "it is sent")
        seen = bench.read(1)
    assert {(one.id, one.payload) for one in seen} == {("a", b"once at least")}
