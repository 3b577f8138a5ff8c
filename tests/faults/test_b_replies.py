"""Connections that break at the wrong moment: what is unknown is told, repeating it is safe, nothing is doubled."""

from __future__ import annotations

import ast
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from delayq import Client, Message
from delayq.client.audit import By
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.errors import StoreUnavailable
from delayq.store import commands
from delayq.store.commands import Found
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys
from tests.faults.flow import refused
from tests.faults.house import House, house
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, taken
from tests.support.servers import KEPT
from tests.support.service import ROOT
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("replies")) as made:
        yield made


@pytest.fixture
def home(shared: House) -> Iterator[House]:
    yield shared
    shared.heal()


def test_b1_a_schedule_whose_reply_was_lost_is_unknown_and_repeating_it_makes_one_message(home: House) -> None:
    home.to_api.drop_reply("schedule", times=2)  # the one, and that of its repetition by the API itself
    told = refused(home.service.schedule("sink.b1", delayTime="1s", body="one"))
    assert "repeat with the same id" in told["detail"]
    assert home.to_api.dropped[-2:] == ["schedule", "schedule"]
    again = home.service.schedule("sink.b1", delayTime="1s", body="one", id=told["id"])
    assert (again.status_code, again.json()["id"]) == (200, told["id"])
    home.sink.expect("sink.b1", [told["id"]])
    home.wait_until_done()
    late = home.service.schedule("sink.b1", delayTime="1s", body="one", id=told["id"])
    assert (late.status_code, late.json()["state"]) == (200, "delivered")
    assert len(home.sink.arrivals("sink.b1")) == 1


@pytest.mark.parametrize("cut", [400, 9_000, 40_000])
def test_b2_a_batch_that_was_cut_in_the_middle_is_repeated_as_a_whole_and_doubles_nothing(
    home: House, cut: int
) -> None:
    messages = [
        {"topic": f"sink.b2.{cut}", "id": f"b2-{cut}-{number}", "delayTime": 1_500, "body": "x" * 200}
        for number in range(500)
    ]
    home.to_api.cut_after(cut)
    first = home.http.post("/v1/messages:batch", json={"messages": messages})
    home.to_api.heal()
    before = Counter(one["status"] for one in first.json()["results"])
    assert before[503] > 0, "the cut came too late"
    again = home.http.post("/v1/messages:batch", json={"messages": messages})
    assert {one["status"] for one in again.json()["results"]} <= {200, 201}
    home.sink.expect(f"sink.b2.{cut}", [one["id"] for one in again.json()["results"]])
    home.wait_until_done()
    assert len(home.sink.arrivals(f"sink.b2.{cut}")) == 500


def test_b3_an_ack_whose_reply_was_lost_is_told_again_and_nothing_is_sent_twice(home: House) -> None:
    before = home.http.get("/v1/stats").json()["counters"]["forwarded"]
    home.to_worker.drop_reply("ack", times=5)
    ids = home.schedule("sink.b3", 200)
    home.sink.expect("sink.b3", ids)
    eventually(lambda: not home.to_worker.armed, "the replies were lost")
    home.wait_until_done()
    assert home.to_worker.dropped[-1] == "ack"  # the replies behind it in the same packet are lost with it
    home.sink.expect("sink.b3", ids)
    assert home.http.get("/v1/stats").json()["counters"]["forwarded"] == before + 200


def test_b4_a_pull_whose_reply_was_lost_is_done_again_and_neither_loses_nor_doubles(home: House) -> None:
    home.to_worker.drop_reply("pull", times=5)
    ids, streamed = home.schedule("sink.b4", 200), home.schedule("b4", 200)
    eventually(lambda: not home.to_worker.armed, "the replies were lost")
    home.sink.expect("sink.b4", ids)
    home.wait_until_done()
    home.sink.expect("sink.b4", ids)
    home.sink.expect("b4", streamed, at=home.server)  # appended by the very script whose reply was lost


# -- B5: what the client library would do by itself -------------------------------------------------------------------


def makers(path: Path) -> Iterator[ast.Call]:
    """The calls in a file that make something of redis-py's that connects."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            base = name.removesuffix(".from_url")
            if name.startswith("redis.") and base.rsplit(".", 1)[-1].endswith(("Redis", "Pool", "Cluster", "Sentinel")):
                yield node


def test_b5_no_connection_is_made_that_repeats_by_itself() -> None:
    found = 0
    for folder in ("delayq", "api", "workers", "coordinator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in makers(path):
                found += 1
                given = [ast.unparse(one.value) for one in call.keywords if one.arg in ("retry", None)]
                told = [
                    one for one in given if one.startswith(("Retry(NoBackoff(), 0", "connection_options(", "async_"))
                ]
                assert told, f"{path}:{call.lineno} lets redis-py repeat commands"
    assert found >= 3, "this test looks for the wrong calls"


def test_b5_what_the_library_repeats_silently_by_default_is_repeated_here_once_and_with_care(
    own_valkey: EmbeddedServer,
) -> None:
    with FaultProxy(own_valkey.port) as proxy, redis.Redis(port=proxy.port, protocol=2) as default:
        default.ping()
        proxy.drop_reply("incrby", times=2)
        assert default.incr("counter") == 3, "the fault: one call that was counted three times"
    with FaultProxy(own_valkey.port) as proxy:
        store = Store(proxy.url)
        store.run(commands.layout(4))
        proxy.drop_reply("layout", times=5)
        proxy.commands.clear()
        with pytest.raises(StoreUnavailable):
            store.run(commands.layout(4))
        assert proxy.commands.count("layout") == 2
        store.close()


LATER = 3_600_000


def dead(client: Client, due: int) -> None:
    """All that is there becomes a dead letter."""
    for queue in range(16):
        keys = queue_keys(queue)
        client.store.run(commands.claim(keys, EPOCH))
        pulled = client.store.run(commands.pull(keys, EPOCH, offset=0, room=500, now=due))
        client.store.run(commands.bury(keys, EPOCH, [(one, 1, "broken") for one in taken(pulled)]))


class ByHand(NamedTuple):
    """A change of messages by hand: how many a call changes, the call, and whether what is found of one shows it."""

    call: Callable[[Client, Sequence[str], int, By], object]
    changed: Callable[[Found, int], bool]
    at_once: int = 2
    of_dead: bool = False


BY_HAND = {
    "cancel": ByHand(
        lambda client, ids, _, by: client.cancel_many(ids, by=by),
        lambda one, _: one.record is None,
    ),
    "reschedule": ByHand(
        lambda client, ids, due, by: client.reschedule(ids[0], expect_date=due + 1_000, by=by),
        lambda one, due: one.due == due + 1_000,
        at_once=1,
    ),
    "deliver_now": ByHand(
        lambda client, ids, _, by: client.deliver_now_many(ids, by=by),
        lambda one, due: one.due is not None and one.due < due,
    ),
    "redrive": ByHand(
        lambda client, ids, _, by: client.redrive(ids, by=by), lambda one, _: one.state != "dead", of_dead=True
    ),
    "discard": ByHand(
        lambda client, ids, _, by: client.discard_many(ids, by=by),
        lambda one, _: one.state == "discarded",
        of_dead=True,
    ),
}


@pytest.mark.parametrize("action", BY_HAND)
def test_b16_a_change_by_hand_and_its_entry_are_both_there_or_neither_is(tmp_path: Path, action: str) -> None:
    by, change = By(actor="night shift"), BY_HAND[action]
    ids, step = [f"m{n}" for n in range(2_000)], change.at_once
    come, in_the_middle = itertools.count(1), threading.Event()

    def held_back(_: Sequence[bytes]) -> bool:
        """Once so many commands have gone through, what follows them is held until the server is killed."""
        if next(come) == 220:
            proxy.hold()
            in_the_middle.set()
        return False

    with EmbeddedServer(data_dir=tmp_path / "valkey", extra=KEPT) as server, FaultProxy(server.port) as proxy:
        settings = load_settings(redis_url=f"redis://127.0.0.1:{proxy.port}/0", redis_timeout=2_000)
        with Client(settings=settings) as client, ThreadPoolExecutor(4) as callers:
            due = client.store.run(commands.redis_now()) + LATER
            client.schedule_many([Message(topic="t", id=id, expect_date=due) for id in ids])
            if change.of_dead:
                dead(client, due)
            proxy.drop_reply(action, times=5)
            proxy.drop_reply(action, when=held_back)
            begun = [callers.submit(change.call, client, ids[n : n + step], due, by) for n in range(0, len(ids), step)]
            assert in_the_middle.wait(PATIENCE), "some are changed"
            server.kill()
            proxy.reset()
            proxy.release()
            eventually(lambda: any(one.done() and is_broken_off(one) for one in begun), "some are broken off")
            server.start()
            broken_off = [one for one in begun if is_broken_off(one)]
            changed = {one.id for one in client.get_many(ids) if one is not None and change.changed(one, due)}
            written: Counter[str] = Counter()
            token = None
            while True:
                page = client.audit(1_000, token)
                written.update(message.id for entry in page.entries for message in entry.change.messages)
                if (token := page.next_token) is None:
                    break
    assert broken_off, "some were broken off"
    assert action in proxy.dropped
    assert written == dict.fromkeys(changed, 1)
    assert len(changed) > 200 * step


def is_broken_off(call: Future[object]) -> bool:
    """Whether a call says that Redis did not answer."""
    try:
        told = call.result()
    except StoreUnavailable:
        return True
    return any(isinstance(one, StoreUnavailable) for one in told) if isinstance(told, list) else False
