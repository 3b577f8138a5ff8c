"""The answer of each command in each state of a message, and the state that the command leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from delayq.store import commands
from tests.support.queues import Queue, State, row

A = row("a", at=20_000, given=True, keys=("k",))
OTHER = row("a", at=20_000, given=True, keys=("k",), body="other")


class Case(NamedTuple):
    """How the message `a` gets into a state, and what each command answers then.

    `again` is the answer to the call that made the message, `other` to a call with the same id and another body.
    `deliver` is a due time if the message is delivered now.
    """

    given: Callable[[Queue], Any]
    again: Any
    other: str
    cancel: str
    reschedule: str
    get: str | None
    redrive: str
    discard: bool
    deliver: Any


def settled(name: str, *more: Any) -> Callable[[Queue], Any]:
    """Settle the message by a command once it was pulled at its due time."""
    return lambda q: (q.given(A), getattr(q, name)(*more, q.take_one(now=20_000)))


def dead(q: Queue) -> Any:
    return settled("bury")(q)


def cancelled(now: int) -> Callable[[Queue], Any]:
    return lambda q: (q.given(A), q.cancel("a", now=now))


LIVE, GONE = ("live", 20_000), "notFound"
CASES = {
    "waiting": Case(
        lambda q: q.given(A), LIVE, "conflict", "cancelled", "scheduled", "scheduled", "notDead", False, 10_000
    ),
    "due": Case(
        lambda q: (q.given(A), q.get("a", now=20_000)),
        LIVE, "conflict", "inFlight", "inFlight", "due", "notDead", False, 20_000,
    ),
    "pulled": Case(
        lambda q: (q.given(A), q.pull(now=20_000)),
        LIVE, "conflict", "inFlight", "inFlight", "inFlight", "notDead", False, "inFlight",
    ),
    "pulled, and the clock is set back": Case(
        lambda q: (q.given(A), q.pull(now=20_000), q.get("a", now=15_000)),
        LIVE, "conflict", "inFlight", "inFlight", "inFlight", "notDead", False, "inFlight",
    ),
    "retrying": Case(
        lambda q: (q.given(A), q.retry((q.take_one(now=20_000), 90_000))),
        LIVE, "conflict", "inFlight", "inFlight", "retrying", "notDead", False, 20_000,
    ),
    "parked": Case(
        settled("park", "t:kafka"), LIVE, "conflict", "inFlight", "parked", "parked", "notDead", False, 20_000
    ),
    "dead": Case(dead, ("dead", 20_000), "conflict", "dead", "dead", "dead", "scheduled", True, "dead"),
    "redriven": Case(
        lambda q: (dead(q), q.redrive("a", now=30_000)),
        ("live", 30_000), "conflict", "inFlight", "inFlight", "due", "scheduled", False, 30_000,
    ),
    "redriven, and the clock is set back": Case(
        lambda q: (dead(q), q.redrive("a", now=30_000), q.get("a", now=29_000)),
        ("live", 30_000), "conflict", "inFlight", "inFlight", "retrying", "scheduled", False, 29_000,
    ),
    "delivered": Case(
        settled("ack"), ("delivered", None), "conflict", "delivered", "delivered", "delivered", "notDead", False,
        "delivered",
    ),
    "cancelled": Case(
        cancelled(19_999), ("cancelled", None), "cancelled", "cancelled", "cancelled", "cancelled", "notDead", False,
        "cancelled",
    ),
    "cancelled in flight": Case(
        cancelled(20_000), ("removedInFlight", None), "removedInFlight", "inFlight", "removedInFlight",
        "removedInFlight", "notDead", False, "removedInFlight",
    ),
    "discarded": Case(
        lambda q: (dead(q), q.discard("a")), ("discarded", None), "discarded", "discarded", "discarded", "discarded",
        "notDead", True, "discarded",
    ),
    "unknown": Case(lambda q: None, None, "", GONE, GONE, None, "notDead", False, GONE),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_command_in_each_state(q: Queue, name: str) -> None:
    case = CASES[name]

    def after(call: Callable[[Queue], Any], rest: Callable[[State], State] | None = None) -> Any:
        """The answer to a call in this state. `rest` changes the state as the call has to."""
        q.server.flush()
        q.now = 10_000
        case.given(q)
        before, fields, now = q.state(), q.fields(), q.now
        answer = call(q)
        if rest is None:
            assert (q.state(), q.fields()) == (before, fields), answer
        else:
            assert q.state() == rest(before), answer
        q.now = now
        return answer

    live = {"queue": {}, "keys": {"k": ["a"]}}

    def ended(how: str) -> Callable[[State], State]:
        return lambda before: State(final={"a": (how, q.now)}, orphans=set().union(*before.parked.values()))

    lives = name not in ("dead", "delivered", "cancelled", "cancelled in flight", "discarded", "unknown")
    removed = ended("cancelled in flight" if case.cancel == "inFlight" else "cancelled") if lives else None
    assert after(lambda q: q.cancel("a"), removed) == [case.cancel]

    moved = (lambda before: State(**live | {"queue": {"a": 30_000}})) if case.reschedule == "scheduled" else None  # type: ignore[arg-type]
    due = 30_000 if moved else None
    assert after(lambda q: q.reschedule("a", "a30000"), moved) == (case.reschedule, due)

    assert after(lambda q: q.state_of("a")) == case.get
    back = (lambda before: State(**live | {"queue": {"a": q.now}, "attempts": {"a": 0}})) if name == "dead" else None  # type: ignore[arg-type]
    assert after(lambda q: q.redrive("a"), back) == [case.redrive]
    assert after(lambda q: q.discard("a"), ended("discarded") if name == "dead" else None) == [case.discard]
    if name != "unknown":
        assert after(lambda q: q.schedule(A).others) == {0: case.again}
        assert [status for status, _ in after(lambda q: q.schedule(OTHER).others).values()] == [case.other]
    if isinstance(case.deliver, int):  # the due time that it gets
        due, known = case.deliver, lambda before: State(**live | {"queue": {"a": case.deliver}, **left(before)})  # type: ignore[arg-type]
        assert after(deliver, known) == [("scheduled", due)]
    else:
        assert after(deliver) == after(lambda q: deliver(q, force=True)) == [(case.deliver, None)]


def deliver(q: Queue, force: bool = False) -> list[tuple[str, int | None]]:
    return q.run(commands.deliver_now(q.keys, ["a"], force=force, now=q.now))


def left(before: State) -> dict[str, Any]:
    """The attempts, and the orphaned ticket of a parked message, behind a delivery."""
    parked = set().union(*before.parked.values())
    return {"attempts": before.attempts or dict.fromkeys(parked, 0), "orphans": parked}
