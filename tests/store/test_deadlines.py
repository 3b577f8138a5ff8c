"""A change that its caller has given up is not made later, and what the caller is told of it is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from delayq.base.clock import SystemClock
from delayq.base.errors import NotDone, StoreUnavailable
from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.domain.message import Limits, Message
from delayq.store import commands, scripts
from delayq.store.commands import Act, Change, Command, GroupRecord, Lease
from delayq.store.connect import server_state
from delayq.store.connect.server_state import ServerState
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout
from tests.support.proxy import FaultProxy
from tests.support.queues import AsyncRunner, Queue, give_up_after, row, schedule_command
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

HOUR = 3_600_000
SOON = 0.3  # s for a reply that does not come
ONE, TWO = (Layout(16),), (Layout(16), Layout(64, 16))

GROUP = KEYS.consumers("stream", "mail")
RECORD = GroupRecord(topic="orders", group="mail", stream="stream")
OTHER_RECORD = GroupRecord(topic="orders", group="audit", stream="stream")
CONTENT = encode(Message(topic="t", expect_date=1), Limits(), due_head(1))[DUE_HEAD_LENGTH:]

#: Every script whose answer is a promise, on a queue that has a live message and a dead letter, beside a stream with two entries.
CHANGES: dict[str, Callable[[Queue], Command[Any]]] = {
    "schedule": lambda q: schedule_command(q.keys, row("new", at=90_000), now=q.now),
    "cancel": lambda q: commands.cancel(q.keys, ["live"], now=q.now),
    "reschedule": lambda q: commands.reschedule(q.keys, "live", "a95000", now=q.now),
    "deliver_now": lambda q: commands.deliver_now(q.keys, ["live"], held=["orders"], now=q.now),
    "redrive": lambda q: commands.redrive(q.keys, ["dead"], now=q.now),
    "discard": lambda q: commands.discard(q.keys, ["dead"], now=q.now),
    "close": lambda q: commands.close(q.keys),
    "set_layouts": lambda q: commands.set_layouts(KEYS, ONE, TWO),
    "set_policies": lambda q: commands.set_policies(KEYS, [Change("pause:orders.*", "{}")], maker="0000000001"),
    "apply_policies": lambda q: commands.apply_policies(q.keys, "0000000001.0000000001", ["orders.*"]),
    "receive": lambda q: commands.receive(GROUP, "mail", "second", 10, 60_000, now=q.now),
    "settle_received": lambda q: commands.settle_received(
        GROUP, "mail", [Act("ack", Lease("1-1", "first"))], now=q.now
    ),
    "record_group": lambda q: commands.record_group(KEYS, OTHER_RECORD, now=q.now),
    "forget_group": lambda q: commands.forget_group(KEYS, [replace(RECORD, since=q.now)], ["new  "]),
    "destroy_group": lambda q: commands.destroy_group(GROUP, "mail"),
    "give_up": lambda q: commands.give_up(q.keys, [("new", CONTENT, 1, "no stock", b"")], now=q.now),
}


def fill(q: Queue) -> None:
    q.run(commands.layout(KEYS, 16))
    q.given(row("live", at=90_000), row("dead", at=20_000, keys=("k",)))
    q.bury(*q.take(now=20_000))
    for id in ("1-1", "1-2"):
        q.admin.xadd("stream", {"id": id}, id=id)
    q.run(commands.receive(GROUP, "mail", "first", 1, 60_000, now=q.now))
    q.run(commands.record_group(KEYS, RECORD, now=q.now))


def everything(q: Queue) -> tuple[Any, ...]:
    """All that one of them may change."""
    groups = q.run(commands.consumer_groups(KEYS)), len(q.admin.xinfo_groups("stream"))
    consuming = (
        q.admin.hgetall(GROUP.consumers),
        [one["message_id"] for one in q.admin.xpending_range("stream", "mail", "-", "+", 9)] if groups[1] else [],
    )
    return q.state(), q.fields(), q.run(commands.layouts(KEYS)), q.run(commands.policies(KEYS)), consuming, groups


def test_every_promise_has_a_deadline() -> None:
    assert set(CHANGES) == {name for name in scripts.NAMES if scripts.load(name).promise}


@pytest.mark.parametrize("name", CHANGES)
def test_what_comes_behind_its_deadline_changes_nothing(q: Queue, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(q)
    before = everything(q)
    with monkeypatch.context() as late:
        late.setattr(ServerState, "deadline", lambda _state: 1)
        with pytest.raises(NotDone, match="too late"):
            q.run(CHANGES[name](q))
    assert everything(q) == before
    q.run(CHANGES[name](q))
    assert everything(q) != before


def test_a_clock_that_was_set_forward_refuses_nobody_for_long(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what time it is there, and the call is sent once more."""
    deadline = ServerState.deadline
    refused: list[int] = []

    def behind(one: ServerState) -> Any:
        """As if the server were an hour ahead of what was known."""
        if not refused:
            refused.append(1)
            assert one._ahead is not None
            one._ahead -= HOUR
        return deadline(one)

    monkeypatch.setattr(ServerState, "deadline", behind)
    assert q.schedule(row("a", at=90_000)).others == {}
    assert q.state().queue == {"a": 90_000}
    assert q.cancel("a") == ["cancelled"]


# -- a line that is cut for a while --------------------------------------------------------------------------------------


@pytest.fixture(params=[Store, AsyncRunner], ids=["sync", "async"])
def cut(request: pytest.FixtureRequest, valkey: ServerUnderTest) -> Iterator[tuple[Queue, FaultProxy, Queue]]:
    """A caller behind a line that can be cut, and one beside it."""
    beside = Store(valkey.url, timeout=PATIENCE)
    with FaultProxy(valkey.port) as proxy:
        behind = request.param(proxy.url, timeout=PATIENCE)
        yield Queue(behind, valkey), proxy, Queue(beside, valkey)
        behind.close()
    beside.close()


def calls(q: Queue) -> int:
    """How many scripts the server was given."""
    found = q.admin.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def abandon(q: Queue, proxy: FaultProxy, beside: Queue) -> None:
    """Move a message over a line that is cut; once that is given up move it on beside; then the line is whole again."""
    now = SystemClock().now()
    q.run(schedule_command(q.keys, row("a", at=now + HOUR), now=now))
    proxy.hold()
    give_up_after(q.store, SOON)
    with pytest.raises(StoreUnavailable) as unknown:
        q.run(commands.reschedule(q.keys, "a", f"a{now + 2 * HOUR}"))
    assert not isinstance(unknown.value, NotDone)
    assert beside.run(commands.reschedule(q.keys, "a", f"a{now + 3 * HOUR}"))[0] == "scheduled"
    seen = calls(beside)
    proxy.release()
    eventually(lambda: calls(beside) > seen, "what was held has arrived")
    assert beside.state().queue == {"a": now + 3 * HOUR}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a clock said is good for an hour, so that a line is held before a change, and not before a question."""
    monkeypatch.setattr(server_state, "ASK_EVERY", HOUR)


@pytest.mark.usefixtures("fresh")
def test_what_was_given_up_does_nothing_when_the_line_is_whole_again(cut: tuple[Queue, FaultProxy, Queue]) -> None:
    abandon(*cut)


def test_what_waits_for_the_time_of_an_idle_line_is_not_sent(
    cut: tuple[Queue, FaultProxy, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline by what the clock said long ago may be too late."""
    q, proxy, beside = cut
    q.schedule(row("a", at=90_000))
    monkeypatch.setattr(server_state, "ASK_EVERY", 0)
    proxy.hold()
    give_up_after(q.store, SOON)
    with pytest.raises(NotDone):
        q.cancel("a")
    seen = beside.admin.info("commandstats")["cmdstat_time"]["calls"]
    proxy.release()
    eventually(lambda: beside.admin.info("commandstats")["cmdstat_time"]["calls"] > seen, "the question has arrived")
    assert beside.state().queue == {"a": 90_000}


def test_what_was_never_sent_is_not_done(cut: tuple[Queue, FaultProxy, Queue]) -> None:
    """While nothing is known of the server's clock, that is asked first."""
    q, proxy, beside = cut
    proxy.hold()
    give_up_after(q.store, SOON)
    with pytest.raises(NotDone):
        q.schedule(row("a", at=90_000))
    give_up_after(q.store, PATIENCE)
    proxy.release()
    proxy.refuse()
    with pytest.raises(NotDone):
        q.schedule(row("a", at=90_000))
    assert beside.state().queue == {}
    proxy.heal()
    assert q.schedule(row("a", at=90_000)).others == {}


def test_what_may_have_run_before_is_unknown_though_the_repetition_is_refused(
    cut: tuple[Queue, FaultProxy, Queue],
) -> None:
    q, proxy, beside = cut
    q.schedule(row("a", at=90_000))
    proxy.drop_reply("cancel")
    refuse = ServerState.deadline

    def only_the_first(one: ServerState) -> Any:
        return refuse(one) if not proxy.dropped else 1

    with pytest.MonkeyPatch.context() as late:
        late.setattr(ServerState, "deadline", only_the_first)
        with pytest.raises(StoreUnavailable) as unknown:
            q.cancel("a")
    assert not isinstance(unknown.value, NotDone)
    assert beside.state().queue == {}
    assert q.cancel("a") == ["cancelled"]
