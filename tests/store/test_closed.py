"""A closed queue takes nothing new, and says where what it does not have may be; what it has it goes on with."""

from __future__ import annotations

import pytest

from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.commands import MOVED, Retention
from delayq.store.keys import KEYS, Layout
from tests.support.final import FORWARDED, ended
from tests.support.queues import Queue, row, taken


@pytest.fixture
def closed(q: Queue) -> Queue:
    """A queue with a message, a dead letter and two ids that have ended, that was closed then."""
    q.given(
        row("here", at=20_000, given=True, keys=("k",)),
        row("dead", at=10_000, given=True),
        row("sent", at=10_000, given=True),
        row("off", at=20_000, given=True),
    )
    q.cancel("off")
    by_id = {one.id: one for one in taken(q.pull(now=10_000))}
    q.bury(by_id["dead"])
    q.ack(by_id["sent"])
    assert q.run(commands.close(q.keys))
    return q


def test_what_is_new_or_elsewhere_has_moved_and_nothing_changes(closed: Queue) -> None:
    assert not closed.run(commands.close(closed.keys))  # once and for ever
    assert closed.stats().closed
    before, generation = closed.state(), closed.admin.hget(closed.keys.state, "generation")
    answers = closed.schedule(
        row("new", at=20_000), row("NEW", after=5_000, given=True), row("soon", at=10_001), row("bad", after=10**13 - 1)
    )
    assert [answers.others[place][0] for place in range(4)] == [MOVED, MOVED, MOVED, "invalid"]
    assert closed.cancel("new", "off", "dead") == [MOVED, "cancelled", "dead"]
    assert closed.reschedule("new", "r1000") == (MOVED, None)
    assert closed.redrive("new", "here") == [MOVED, "notDead"]
    assert closed.discard("new", "here") == [None, False]
    states = [one and one.state for one in closed.get("new", "here", "dead", "sent")]
    assert states == [MOVED, "scheduled", "dead", "delivered"]
    assert closed.state() == before
    assert closed.admin.hget(closed.keys.state, "generation") == generation


def test_what_it_has_goes_on_as_before(closed: Queue) -> None:
    for given, answer in (
        (row("here", at=20_000, given=True, keys=("k",)), "live"),
        (row("here", at=20_000, given=True, body="other"), "conflict"),
        (row("sent", at=10_000, given=True), "delivered"),
        (row("off", at=20_000, given=True), "cancelled"),
        (row("dead", at=10_000, given=True), "dead"),
    ):
        assert closed.schedule(given).others[0][0] == answer
    assert closed.find("k") == ["here"]
    assert closed.reschedule("here", "a30000") == ("scheduled", 30_000)
    assert closed.redrive("dead") == ["scheduled"]
    (dead,) = taken(closed.pull(now=10_000))
    assert dead.id == "dead"
    closed.ack(dead)
    assert closed.cancel("here") == ["cancelled"]
    later = 10_000 + closed.retention.window + 1  # once an ending is forgotten the id has moved
    answers = closed.schedule(row("sent", at=later, given=True), row("off", at=later, given=True), now=later)
    assert [answers.others[place][0] for place in range(2)] == [MOVED, MOVED]


# -- done with it --------------------------------------------------------------------------------------------------------


def done(q: Queue, now: int) -> bool:
    return q.run(commands.is_drained(q.keys, now=now, retention=q.retention))


def test_it_is_done_with_when_it_holds_nothing_and_the_window_has_passed(closed: Queue) -> None:
    later = 20_000 + closed.retention.window
    assert not done(closed, later)
    closed.cancel("here", now=15_000)
    assert not done(closed, later)
    closed.discard("dead")
    assert not done(closed, 14_999 + closed.retention.window)
    assert done(closed, later)
    assert done(closed, 10_000), "once so, it stays so"
    assert closed.stats().closed, "so that whoever comes late is sent on"
    assert closed.schedule(row("new", at=later)).others[0][0] == MOVED


def test_what_is_parked_keeps_it(closed: Queue) -> None:
    closed.cancel("here")
    closed.redrive("dead")
    closed.park("t:away", *taken(closed.pull(now=10_000)))
    closed.retention = Retention(window=1)
    assert not done(closed, 50_000)
    closed.release_set("t:away")
    closed.ack(*taken(closed.pull(now=10_000)))
    assert done(closed, 50_000)


def test_an_open_queue_is_never_done_with_and_many_endings_are_forgotten_step_by_step(q: Queue) -> None:
    assert not done(q, q.now)
    q.admin.zadd(q.keys.final, {f"id-{number}": ended(number, FORWARDED) for number in range(5_000)})
    q.run(commands.close(q.keys))
    assert [done(q, 10**12) for _ in range(3)] == [False, False, True]


# -- the list ------------------------------------------------------------------------------------------------------------


def test_layouts_are_listed_unless_somebody_else_did(q: Queue) -> None:
    one, two, three = (Layout(16),), (Layout(16), Layout(64, 16)), (Layout(64, 16),)
    assert q.run(commands.layouts(KEYS)) == ()
    assert q.run(commands.layout(KEYS, 16)).layouts == one
    assert q.run(commands.set_layouts(KEYS, one, two)) == two
    assert q.run(commands.set_layouts(KEYS, one, (Layout(16), Layout(8, 16)))) == two
    assert q.admin.hget(KEYS.meta, "layouts") == b"16 64@16"
    assert q.run(commands.layout(KEYS, 16)).layouts == two
    assert q.run(commands.layout(KEYS, 16)).queues == 64
    assert q.run(commands.set_layouts(KEYS, two, three)) == three
    assert q.run(commands.layouts(KEYS)) == three
    q.admin.hset(KEYS.meta, "layouts", "many")
    (answer,) = q.store.run_many([commands.layouts(KEYS)])
    assert isinstance(answer, StoreError)
