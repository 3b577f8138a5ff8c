"""A node writes its line, and takes away those of nodes that have been silent for long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from delayq import Client, Message
from delayq.base.errors import StoreError
from delayq.config import load_settings
from delayq.domain.nodes import (
    LINE_AGE,
    LONGEST_REASON,
    RECENT_STEP,
    SAME_NAME,
    Complaint,
    FailedSend,
    Lately,
    OpenCircuit,
    Recent,
    RouteLine,
    read_nodes,
)
from delayq.domain.policies import Pause, Policies
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Pulled
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import OK, Result
from delayq.testing import ManualClock, MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from tests.workers.desk import held
from workers.node import node
from workers.node.duties.recent import RecentCounters
from workers.node.duties.redis_clock import Skew
from workers.node.duties.status_line import MOST_COMPLAINTS, MOST_TOPICS, PUBLISH_EVERY, SILENT, StatusLine
from workers.node.ownership import Ownership
from workers.queue.queue_context import CurrentPolicies
from workers.sending.observer import Observer
from workers.sending.sender import GRACE, Sender
from workers.telemetry.metrics import Metrics

NOTHING = cast(Ownership, SimpleNamespace(jobs={}, running=[], since={}, handed_over=None))


@pytest.fixture
def clock(store: Store) -> ManualClock:
    return ManualClock(store.run(commands.redis_now()))


def line(store: Store, clock: ManualClock, name: str, *senders: Sender, **more: Any) -> StatusLine:
    settings = load_settings(redis_url=store.url, node=name)
    routes = Routes([one.route for one in senders] or None)
    by_name = {one.route.name: one for one in senders}
    given: dict[str, Any] = {"routes": routes, "senders": by_name, "policies": CurrentPolicies()} | more
    return StatusLine(store, settings, Skew(clock), clock, lately=RecentCounters(Lately), **given)


def killed(store: Store, clock: ManualClock, name: str, silent_for: int) -> None:
    """A node's line as it was left so many ms ago."""
    said = msgspec.json.encode({"node": name, "seen": clock.now() - silent_for, "queues": {}})
    store.run(commands.publish_node(KEYS, name, said))


def names(store: Store) -> set[str]:
    lines = store.run(commands.nodes(KEYS))
    return set(lines)


def test_two_workers_with_one_name_say_so_as_long_as_both_write_the_line(store: Store, clock: ManualClock) -> None:
    one = line(store, clock, "same")
    clock.advance(1)
    other = line(store, clock, "same")

    def complaints() -> list[str]:
        lines = store.run(commands.nodes(KEYS))
        found = read_nodes(lines, clock.now())["same"].complaints
        return [one.text for one in found if one.code == SAME_NAME]

    def publish(*lines: StatusLine) -> None:
        for each in lines:
            each.publish(NOTHING)
        clock.advance(PUBLISH_EVERY)

    publish(one)
    publish(other)  # what is there may be the line of a process that has ended
    assert complaints() == []
    publish(one, other)
    publish(one, other)
    assert complaints() == ["another worker has the name same, too: give each worker a DELAYQ_NODE of its own"]
    for _ in range(LINE_AGE // PUBLISH_EVERY + 2):
        publish(other)
    assert complaints() == []


def test_a_worker_may_send_while_redis_has_confirmed_its_line_lately_and_says_why_it_does_not(
    store: Store, clock: ManualClock, valkey: ServerUnderTest
) -> None:
    one = line(store, clock, "one")
    assert not one.is_known()
    valkey.admin.set(KEYS.nodes, "not a hash")
    with pytest.raises(StoreError):
        one.publish(NOTHING)
    assert (one.is_known(), one.has_news(NOTHING)) == (False, True)
    assert one.refused.startswith("WRONGTYPE")
    valkey.admin.delete(KEYS.nodes)
    one.publish(NOTHING)
    assert (one.is_known(), one.has_news(NOTHING), one.refused) == (True, False, "")
    clock.advance(LINE_AGE - 1)
    assert one.is_known()
    clock.advance(1)
    assert not one.is_known()
    valkey.admin.config_set("maxmemory", "1")
    try:
        one.publish(NOTHING)  # of a full Redis as well
        assert one.is_known()
    finally:
        valkey.admin.config_set("maxmemory", "0")


def test_a_line_tells_the_longest_send_of_all_routes_and_of_sends_that_hang(store: Store, clock: ManualClock) -> None:
    target = MemoryTarget()
    slow = Sender(Route(name="slow", target="memory:", send_timeout=60_000), target, clock, threads=1, timeout=1_000)
    usual = Sender(Route(name="usual", target="memory:"), target, clock, threads=1, timeout=1_000)
    one = line(store, clock, "one", slow, usual)

    def longest() -> int | None:
        one.publish(NOTHING)
        lines = store.run(commands.nodes(KEYS))
        return read_nodes(lines, clock.now())["one"].longest_send

    assert longest() == slow.longest == 60_000 + GRACE
    slow.start()
    target.answer("hang", id="hangs")
    slow.submit(lambda batch, results: None, [held("hangs")])
    target.wait_for_hanging(1, PATIENCE)
    clock.advance(slow.longest + 1)
    slow.give_up_hung()
    assert longest() == 2 * slow.longest + 1
    target.release()
    eventually(lambda: longest() == slow.longest, "its thread has come back")
    slow.stop()
    slow.join(int(PATIENCE * 1_000))


def test_a_node_that_starts_takes_away_the_lines_of_those_that_were_killed_long_ago(
    store: Store, clock: ManualClock
) -> None:
    """C9: Lines of nodes that do not return are removed from Redis after an hour."""
    for number in range(20):
        killed(store, clock, f"killed-{number}", 2 * SILENT)
    killed(store, clock, "killed-lately", SILENT // 2)
    one = line(store, clock, "one")
    one.publish(NOTHING)
    one.tidy()
    assert names(store) == {"one", "killed-lately"}
    for name in ("one", "killed-lately"):  # a node that lives writes its line again
        killed(store, clock, name, 2 * SILENT)
    one.publish(NOTHING)
    one.tidy()
    assert names(store) == {"one"}
    killed(store, clock, "one", 2 * SILENT)  # it stood still, and another node removes its line
    other = line(store, clock, "other")
    other.publish(NOTHING)
    other.tidy()
    assert names(store) == {"other"}
    one.publish(NOTHING)
    assert names(store) == {"one", "other"}


def test_it_tells_at_once_which_policies_all_its_jobs_act_on_and_what_of_paused_topics_may_arrive_yet(
    store: Store, clock: ManualClock
) -> None:
    jobs = [SimpleNamespace(version="", sending_paused={}) for _ in range(3)]
    owned = cast(Ownership, SimpleNamespace(jobs={}, running=jobs, since={}, handed_over=None))
    one = line(store, clock, "one")

    def told() -> tuple[str | None, dict[str, int]]:
        if one.has_news(owned):
            one.publish(owned)
        lines = store.run(commands.nodes(KEYS))
        found = read_nodes(lines, clock.now())["one"]
        return found.policies, found.held

    assert told() == ("", {})
    for job in jobs[1:]:
        job.version, job.sending_paused = "2", {"a": 2, "b": 1}
    assert told() == ("", {"a": 4, "b": 2}), "one of them acts on others yet"
    jobs[0].version, jobs[0].sending_paused = "1", {f"t{number}": 1 for number in range(MOST_TOPICS)}
    hangs = cast(
        Sender, SimpleNamespace(given_up={"a": 3, "goes.on": 2}, circuit=SimpleNamespace(open=False), longest_send=1)
    )
    one._senders = {"hangs": hangs}
    one._policies.current = Policies(pauses={"a": Pause(match="a")})
    version, held = told()
    assert held.pop("goes.on", 0) == 0, "it is not paused"
    held["a"] -= 3
    assert (version, held["a"], held["*"], len(held)) == ("1", 4, 2, MOST_TOPICS + 1)


def test_a_node_has_a_line_before_it_claims_a_queue(valkey: ServerUnderTest) -> None:
    with FaultProxy(valkey.port) as proxy, RunningNode(settings_for(proxy.url, MemoryTarget())):
        said = list(proxy.commands)
    assert said.index("publish_node") < said.index("claim")


def test_it_tells_of_its_routes_and_at_once_which_circuits_are_open_by_the_clock_of_redis(
    store: Store, clock: ManualClock
) -> None:
    route = Route(name="hooks", match="h.*", target="https://user:canary@hooks.example/canary")
    sender = Sender(route, MemoryTarget(), clock, threads=1, timeout=1_000)
    one = line(store, clock, "one", sender)

    def told() -> RouteLine:
        if one.has_news(NOTHING):
            one.publish(NOTHING)
        lines = store.run(commands.nodes(KEYS))
        (found,) = read_nodes(lines, clock.now())["one"].routes
        return found

    shown = "https://hooks.example"
    assert told() == RouteLine("hooks", "h.*", shown, max_attempts=16, send_timeout=30_000, delivered=0)
    clock.advance(10)
    opened = clock.now()
    for _ in range(3):
        sender.circuit.sent(False, reason="canary" * LONGEST_REASON)
    clock.advance(100)
    clock.set_now(clock.now() + 60_000)  # what a node says is no less true when its clock is wrong
    one._skew.compare(opened + 100, clock.monotonic())
    circuit = OpenCircuit(opened, opened + 1_000, ("canary" * LONGEST_REASON)[:LONGEST_REASON])
    assert told().circuit == circuit
    sender.circuit.sent(False, reason="not yet")
    assert told().circuit == circuit, "what it says while it is open may wait"
    sender.circuit.sent(True)
    assert (told().circuit, told().failed) == (None, FailedSend(opened + 100, "not yet"))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("hooks", [2]),  # without the failed ones
        ("hooks streams", [2, 40]),
        ("streams more", [None, None]),  # a pull does not count by routes
    ],
)
def test_it_reports_how_many_messages_each_route_has_delivered_since_its_start(
    store: Store, clock: ManualClock, table: str, expected: list[int | None]
) -> None:
    metrics = Metrics()
    routes = Routes(
        [
            Route(name=name, match=f"{name}.*", target="https://hooks.example" if name == "hooks" else "redis+stream:")
            for name in table.split()
        ]
    )

    def reported() -> list[int | None]:
        line(store, clock, "one", routes=routes, observer=metrics).publish(NOTHING)
        lines = store.run(commands.nodes(KEYS))
        found = read_nodes(lines, clock.now())["one"].routes
        return [one.delivered for one in found]

    assert reported() == [one if one is None else 0 for one in expected]
    metrics.sent("hooks", [OK, OK, Result("unavailable")], 5)
    metrics.pulled(Pulled(20_030, 0, None, False, 0, None, 40, [], [], [], [], [], {}))
    assert reported() == expected


def test_it_tells_what_keeps_it_from_its_work_and_what_went_out(store: Store, clock: ManualClock) -> None:
    observer = Observer()
    one = line(store, clock, "one", complaints=lambda: [Complaint("queue 3 is stuck")] * 30, observer=observer)
    one.count()
    observer.lateness.add(0.0005, 7)
    last = clock.now() // RECENT_STEP
    clock.advance(RECENT_STEP)
    one.count()
    one.publish(NOTHING)
    lines = store.run(commands.nodes(KEYS))
    told = read_nodes(lines, clock.now())["one"]
    assert (told.complaints, told.recent) == ((Complaint("queue 3 is stuck"),) * MOST_COMPLAINTS, Recent(last, ((7,),)))


def test_what_a_worker_knows_of_a_circuit_can_be_asked_of_every_client(valkey: ServerUnderTest) -> None:
    target = MemoryTarget()
    target.answer("unavailable", reason="closed for today")
    settings = settings_for(valkey.url, target)
    with RunningNode(settings), Client(settings=settings) as client:
        client.schedule(Message(topic="m.t", id="m", delay_time=0))
        eventually(lambda: [one for one in client.routes() if one.circuit == "open"], "it is told")
        memory, streams = client.routes()
        assert (memory.name, memory.reason, memory.open_at) == ("memory", "closed for today", ("node-under-test",))
        assert memory.since is not None and memory.next_probe is not None and memory.since < memory.next_probe
        assert (streams.name, streams.circuit, streams.parked) == ("streams", "closed", 0)
        (parked,) = eventually(
            lambda: [one for one in client.get_many(["m"]) if one and one.state == "parked"], "it is"
        )
        assert parked.reason == "the circuit of route memory is open: closed for today"
        assert parked.next_probe is not None


def test_a_circuit_that_opens_is_told_in_a_round_of_its_own(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So whoever asks for a message that it parked is told why."""
    target = MemoryTarget()
    target.answer("unavailable", reason="closed for today")
    settings = settings_for(valkey.url, target)
    with RunningNode(settings), Client(settings=settings) as client:
        monkeypatch.setattr(node, "ROUND", 3_600_000)
        monkeypatch.setattr(node, "SHORT_ROUND", 3_600_000)
        client.schedule(Message(topic="m.t", id="m", delay_time=0))
        eventually(lambda: [one for one in client.routes() if one.circuit == "open"], "it is told")
