"""A change that its caller has given up is not made later, and what the caller is told of it is true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq.base.clock import SystemClock
from delayq.base.errors import NotDone, StoreUnavailable
from delayq.store import commands, scripts
from delayq.store.connect import server_state
from delayq.store.connect.server_state import ServerState
from delayq.store.connect.store import Store
from tests.store.test_repeats import CASES, everything
from tests.support.proxy import FaultProxy
from tests.support.queues import AsyncRunner, Queue, give_up_after, row, schedule_command
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

HOUR = 3_600_000
SOON = 0.3  # s for a reply that does not come


@pytest.mark.parametrize("name", [name for name in scripts.NAMES if scripts.load(name).promise])
def test_what_comes_behind_its_deadline_changes_nothing(q: Queue, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = next(iter(CASES[name].values())).call(q)
    before = everything(q.admin)
    with monkeypatch.context() as late:
        late.setattr(ServerState, "deadline", lambda _state: 1)
        with pytest.raises(NotDone, match="too late"):
            q.run(command)
    assert everything(q.admin) == before
    q.run(command)
    assert everything(q.admin) != before


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
