"""Delivering now: what becomes of a message in each state, of the same call again, and of what is let past a pause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from delayq.store import commands
from tests.support.queues import EPOCH, Queue, State, Taken, row, taken

NOW, DUE = 20_000, 30_000
VERSION = "0000000001.0000000001"


def deliver(q: Queue, *ids: str, now: int = NOW, force: bool = False) -> list[tuple[str, int | None]]:
    q.now = now
    return q.run(commands.deliver_now(q.keys, ids, force=force, held=["orders"], now=now, retention=q.retention))


def test_what_waits_gets_this_due_and_keeps_the_first_one_asked_for(q: Queue, wakes: Callable[[], list[int]]) -> None:
    q.given(row("a", at=DUE, given=True, keys=("k",)))
    wakes()
    assert deliver(q, "a", "a") == [("scheduled", NOW)] * 2
    assert deliver(q, "a", now=NOW + 5) == [("scheduled", NOW)]
    assert q.state() == State(queue={"a": NOW}, keys={"k": ["a"]})
    assert wakes() == [NOW]
    assert q.cancel("a", now=NOW - 1) == ["cancelled"]  # it was never handed out
    q.given(row("b", at=DUE, given=True))
    deliver(q, "b")
    assert q.schedule(row("b", at=DUE, given=True)).others == {0: ("live", NOW)}


def test_what_is_tried_again_later_or_parked_is_tried_now_and_keeps_its_attempts(q: Queue) -> None:
    q.given(row("a", at=NOW))
    q.retry((q.take_one(now=NOW), DUE))
    generation = q.record("a").generation
    assert deliver(q, "a", now=NOW + 1) == [("scheduled", NOW + 1)]
    assert q.state() == State(queue={"a": NOW + 1}, attempts={"a": 1})
    assert (q.record("a").generation, q.record("a").asked) == (generation, NOW)
    tried = q.take_one(now=NOW + 1)
    assert tried.attempts == 1
    q.park("t:kafka", tried)
    assert deliver(q, "a", now=DUE) == deliver(q, "a", now=DUE + 1) == [("scheduled", DUE)]
    assert q.state() == State(queue={"a": DUE}, attempts={"a": 1}, orphans={"a"})
    pulled = q.pull(now=DUE)  # it is let past its circuit until it was tried
    assert list(pulled.let_past.values()) == [False]
    (one,) = taken(pulled)
    assert q.retry((one, None)) == ["ok"]
    assert q.pull(now=DUE).let_past == {}


def paused(q: Queue) -> None:
    q.run(commands.apply_policies(q.keys, VERSION, ["orders"], now=NOW))


def pull_held(q: Queue, now: int) -> commands.Pulled:
    pulled = q.run(commands.pull(q.keys, EPOCH, offset=0, room=9, now=now, version=VERSION))
    assert isinstance(pulled, commands.Pulled)
    return pulled


@pytest.mark.parametrize("asked", [NOW - 1, DUE])
def test_what_is_held_goes_by_force_alone_and_is_exposed_then(q: Queue, asked: int) -> None:
    q.given(row("a", at=asked), row("b", at=DUE))
    paused(q)
    assert pull_held(q, DUE).tickets == []
    b = Taken(q.admin.zrange(q.keys.held("orders"), -1, -1)[0], DUE, 0, q.record("b"))
    assert deliver(q, "a", now=DUE + 1) == [("held", None)]
    assert deliver(q, "a", now=DUE + 1, force=True) == [("scheduled", DUE + 1)]
    assert q.state() == State(queue={"a": DUE + 1}, parked={"h:orders": {"b": DUE}}, attempts={"a": 0})
    assert list(pull_held(q, DUE + 1).let_past.values()) == [True]
    assert deliver(q, "a", now=DUE + 2, force=True) == [("scheduled", DUE + 1)]
    assert q.cancel("a", now=DUE) == ["inFlight"]
    deliver(q, "b", now=DUE, force=True)
    assert q.park("h:orders", b) == commands.Parked(None)  # whoever still has it can settle nothing
    assert q.state().queue == {"b": DUE}


def test_what_a_limit_holds_goes_by_force_alone_too_and_passes_nothing_of_its_key(q: Queue) -> None:
    q.given(row("a", at=NOW + 5, ordering_key="k"), row("b", at=NOW + 6, ordering_key="k"), row("c", at=NOW + 7))
    q.park("h:orders", *q.take(now=NOW + 9))
    assert deliver(q, "b", "c") == [("held", None)] * 2
    deliver(q, "b", "c", force=True)  # by a clock that was set back
    assert q.state().queue == {"b": NOW + 6, "c": NOW}


def test_of_a_paused_topic_what_waits_is_held_and_what_may_be_on_its_way_is_in_flight(q: Queue) -> None:
    q.given(row("sent", at=NOW), row("waits", at=DUE), row("retries", at=NOW), row("held", at=NOW + 9))
    sent, retries = sorted(q.take(now=NOW), key=lambda one: one.id != "sent")
    q.retry((retries, DUE))
    paused(q)
    q.run(commands.pull(q.keys, q.epoch, offset=0, room=9, now=NOW + 9, version=VERSION, in_memory=[sent.ticket]))
    ids = ("sent", "waits", "retries", "held")
    assert deliver(q, *ids, now=NOW + 9) == [("inFlight", None), *[("held", None)] * 3]
    assert deliver(q, *ids, now=NOW + 9, force=True) == [("inFlight", None), *[("scheduled", NOW + 9)] * 3]
    assert q.state().attempts == {"waits": 0, "retries": 1, "held": 0}
    assert sent.id == "sent"


@pytest.mark.parametrize("tried", [False, True], ids=["never tried", "tried"])
def test_what_was_due_keeps_its_place_in_its_key_and_leaves_the_held_set(
    q: Queue, tried: bool, wakes: Callable[[], list[int]]
) -> None:
    q.given(*(row(id, at=NOW + n, ordering_key="k") for n, id in enumerate("abc")))
    if tried:
        q.retry(*((one, None) for one in q.take(now=NOW + 9)))
    taken_now = q.take(now=NOW + 9)
    q.park("h:orders", *taken_now)
    before = {one.id: q.record(one.id) for one in taken_now}
    wakes()
    assert deliver(q, "b", now=DUE, force=True) == [("scheduled", NOW + 1)]
    assert wakes() == [NOW + 1]
    assert q.record("b").asked == before["b"].asked
    assert q.record("b").generation != before["b"].generation
    assert q.state().parked == {"h:orders": {"a": NOW, "c": NOW + 2}}
    assert q.state().queue == {"b": NOW + 1}
    assert q.field("parked:h:orders") is not None
    deliver(q, "a", "c", now=DUE, force=True)
    assert q.state().queue == {"a": NOW, "b": NOW + 1, "c": NOW + 2}
    assert q.field("parked:h:orders") is None
