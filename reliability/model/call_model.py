"""A model of the named calls that move a message: what a queue remembers of them, while their replies are lost.

    .venv/bin/python -m reliability.model calls

Two calls give one message another due time by the same delay, and one call redrives it. Each has a name of its own. A step is
one Redis script, or something that happens to the message. A call runs again at any time, because its caller has missed the
reply, or because an old copy of it arrives late. Redis may go back to an earlier state, as after a fail-over. The id is one of
a caller, or one that delayq made: that one is forgotten with its delivery if nothing is left to remember.
`memory_model.py` has the rules of ended ids, and `deadline_model.py` shows until when a copy may arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Step = tuple[str, "State"]
Place = Literal["waiting", "in flight", "dead"]

MAX_MADE = 2
#: The change that each call makes, the place in which it finds the message, and the place after it.
CALLS: dict[str, tuple[str, Place, Place]] = {
    "first": ("move by 30m", "waiting", "waiting"),
    "second": ("move by 30m", "waiting", "waiting"),
    "third": ("redrive", "dead", "in flight"),
}


class Rules(Struct, frozen=True):
    by_name: bool = True  # calls are distinguished by their names; False: by what they do
    asks_first: bool = True  # a call first looks whether it ran before; False: only if it cannot be done now
    keeps_id: bool = True  # an id is remembered after its delivery if a call of it is
    forgets: bool = True  # the calls of an id are forgotten with it
    made_forgets: bool = True  # ... also when the id is scheduled again
    goes_back: bool = True  # the calls are kept beside the message; False: they survive when Redis goes back


class Stored(Struct, frozen=True, cache_hash=True, gc=False):
    """The facts in Redis about the id. `made` and `done` are truths beside them: the number of the message, and its changes."""

    place: Place | None = "waiting"
    ended: bool = False  # the id is remembered
    over: bool = False  # ... but its window has passed, and nothing has forgotten it yet
    calls: frozenset[str] = frozenset()  # the calls that are remembered
    made: int = 1
    done: frozenset[str] = frozenset()  # the calls that changed this message


class State(Struct, frozen=True, cache_hash=True, gc=False):
    now: Stored = Stored()
    saved: Stored | None = None  # what a replica has
    went_back: bool = False


def steps(s: State, given: bool, rules: Rules) -> Iterator[Step]:
    for call in CALLS:
        yield f"the {call} call runs", replace(s, now=_run(s.now, call, rules))
    for what, after in _happens(s.now, given, rules):
        yield what, replace(s, now=after)
    if s.saved is None:
        yield "a replica has this state", replace(s, saved=s.now)
    elif not s.went_back:
        calls = s.saved.calls if rules.goes_back else s.now.calls
        yield "Redis goes back", replace(s, now=replace(s.saved, calls=calls), went_back=True)


def _run(now: Stored, call: str, rules: Rules) -> Stored:
    does, finds, leads = CALLS[call]
    name = call if rules.by_name else does
    is_known = now.place is not None or (now.ended and not now.over)
    ran_before = is_known and name in now.calls
    can_run = now.place == finds
    if ran_before and (rules.asks_first or not can_run):
        if call not in now.done:
            raise Broken("a call that did nothing is answered as done")
        return now
    if call in now.done and can_run:
        raise Broken("a call changes a message twice")
    if call in now.done and is_known:
        raise Broken("a repeated call gets another answer than the first")
    if not can_run:
        return now
    return replace(now, place=leads, calls=now.calls | {name}, done=now.done | {call})


def _happens(now: Stored, given: bool, rules: Rules) -> Iterator[tuple[str, Stored]]:
    ended = replace(now, place=None, ended=True)
    if now.place == "waiting":
        yield "it is pulled", replace(now, place="in flight")
        yield "it is cancelled", ended
    elif now.place == "in flight":
        is_remembered = given or (rules.keeps_id and bool(now.calls))
        yield "it is delivered", ended if is_remembered else replace(now, place=None)
        yield "it dies", replace(now, place="dead")
    elif now.place == "dead":
        yield "it is discarded", ended
    if now.ended and not now.over:
        yield "the window passes", replace(now, over=True)
    if now.ended:
        yield "the id is forgotten", _forgotten(now, rules.forgets)
    if now.place is None and (not now.ended or now.over) and now.made < MAX_MADE:
        before = _forgotten(now, rules.made_forgets)
        yield "the id is scheduled again", replace(before, place="waiting", made=now.made + 1, done=frozenset())


def _forgotten(now: Stored, forgets: bool) -> Stored:
    return replace(now, ended=False, over=False, calls=frozenset() if forgets else now.calls)


def wrong(s: State) -> str | None:
    if s.now.calls and s.now.place is None and not s.now.ended:
        return "calls are remembered of an id that nobody knows"
    return None


def check(rules: Rules, given: bool = True, limit: int = 400_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    return search(State(), lambda s: steps(s, given, rules), wrong, limit)
