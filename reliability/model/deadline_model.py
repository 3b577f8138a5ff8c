"""A model of the deadlines of changes. It delays requests and replies, and sets the clock of Redis, in every order.

    .venv/bin/python -m reliability.model deadline

There is one message. A caller changes it over a connection that may delay everything for any time. Once the caller has the
result of this change, a newer change is made over another connection. Time is in ticks of the caller's monotonic clock. The
clock of Redis is ahead of it by an offset that may step. One tick stands for the cost of rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Step = tuple[str, "State"]
Kind = Literal["schedule", "reschedule", "cancel"]
Place = Literal["nothing", "as before", "as changed", "as changed since", "cancelled"]
Told = Literal["", "answered", "unknown", "not done"]

KINDS: tuple[Kind, ...] = ("schedule", "reschedule", "cancel")
WAIT = 2  # how long the caller waits for a reply
ASK_EVERY = 1  # how old the newest answer to TIME may be
END = 6
OFFSETS = (-1, 0, 1)
START: tuple[Place, ...] = ("nothing", "as before")


class Rules(Struct, frozen=True):
    deadline: bool = True  # a change that arrives after its deadline does nothing; False: it runs
    no_later: bool = True  # a deadline is no later than the caller waits; False: a tick more
    at_least: bool = True  # it uses the least lead of the clock of Redis; False: the greatest
    asks_first: bool = True  # the clock is asked before a change is sent; False: along with it
    newest: bool = True  # only the newest answer counts; False: also older ones, while they fit
    lost_is_unknown: bool = True  # a change without an answer is unknown; False: not done
    repeated_is_unknown: bool = True  # so is one that was sent before and is refused now; False: not done
    # Faults, which are no rules:
    set_back: bool = False  # the clock of Redis is also set back between its answer and the arrival of the change
    outlives: bool = False  # a change that was sent over a broken connection may still arrive


class Sent(Struct, frozen=True, gc=False):
    """A request on its way, or the reply to it."""

    until: int
    reply: Literal["", "done", "expired"] = ""
    time: int = 0  # the time in the refusal of Redis
    cut: bool = False  # its connection broke: nobody receives the reply


class State(Struct, frozen=True, gc=False):
    kind: Kind  # of the change
    place: Place
    now: int = 0
    offset: int = 0  # by how much the clock of Redis is ahead
    steps: int = 0  # of that clock
    asked: int | None = None  # when the question that is on its way was sent
    stamp: int | None = None  # the answer of Redis to it
    ahead: tuple[int, int] | None = (-1, 1)  # of the caller's, by the answer at 0: at least, at most
    begun: bool = False
    ready: bool = False  # the answer to TIME is new enough for the change
    waits: int = 0  # until when the caller waits
    sent: tuple[Sent, ...] = ()
    was_sent: bool = False
    late: bool = False  # was refused once
    unsure: bool = False  # was sent over a connection that broke
    ran: bool = False  # changed something
    told: Told = ""
    newer: bool = False  # the newer change is confirmed

    @property
    def clock(self) -> int:
        return self.now + self.offset


def changed(place: Place, kind: Kind, to: Place) -> Place:
    if kind == "schedule":
        return to if place == "nothing" else place
    if place in ("nothing", "cancelled"):
        return place
    return "cancelled" if kind == "cancel" else to


def steps(s: State, rules: Rules) -> Iterator[Step]:
    if s.told and not s.sent:
        return
    if s.now < END:
        yield "a tick", replace(s, now=s.now + 1)
    yield from clock_steps(s, rules)
    yield from redis_steps(s, rules)
    if s.told == "":
        yield from caller_steps(s, rules)
    elif not s.newer:
        for kind in KINDS:
            place = changed(s.place, kind, "as changed since")
            yield f"a newer {kind} is confirmed", replace(s, newer=True, place=place)


def clock_steps(s: State, rules: Rules) -> Iterator[Step]:
    if s.steps == 2:
        return
    fresh = s.now <= ASK_EVERY or s.ready or s.stamp is not None
    for offset in OFFSETS:
        if offset > s.offset or (offset < s.offset and (rules.set_back or not (fresh or s.sent))):
            yield f"the clock of Redis steps by {offset - s.offset}", replace(s, offset=offset, steps=s.steps + 1)


def learned(s: State, rules: Rules, time: int, sent: int | None) -> State:
    ahead = time - s.now - 1, END * 2 if sent is None else time + 1 - sent
    if s.ahead is not None and not rules.newest:
        both = max(ahead[0], s.ahead[0]), min(ahead[1], s.ahead[1])
        ahead = both if both[0] <= both[1] else ahead
    return replace(s, ahead=ahead)


def caller_steps(s: State, rules: Rules) -> Iterator[Step]:
    if not s.begun:
        yield f"the caller begins to {s.kind}", replace(s, begun=True, ready=s.now <= ASK_EVERY, waits=s.now + WAIT)
        return
    if s.stamp is not None:
        assert s.asked is not None
        answered = learned(s, rules, s.stamp, s.asked)
        yield "the answer to TIME arrives", replace(answered, ready=True, asked=None, stamp=None)
    elif s.asked is None and not s.ready:
        yield "TIME is sent", replace(s, asked=s.now)
    if not s.was_sent and (s.ready or (s.ahead is not None and not rules.asks_first)):
        yield "the change is sent", send(s, rules)
    for place, one in enumerate(s.sent):
        rest = (*s.sent[:place], *s.sent[place + 1 :])
        if one.cut or not one.reply:
            continue
        if one.reply == "done":
            yield "the caller receives: done", tell(replace(s, sent=rest), "answered")
        elif not s.late:
            again = learned(replace(s, sent=rest, late=True), rules, one.time, None)
            yield "the caller receives: too late, and sends it once more", send(again, rules)
        else:
            refused: Told = "unknown" if s.unsure and rules.repeated_is_unknown else "not done"
            yield "the caller receives: too late again", tell(replace(s, sent=rest), refused)
    unknown = (s.was_sent and rules.lost_is_unknown) or s.unsure
    if s.now >= s.waits:
        yield "the caller gives up", tell(s, "unknown" if unknown else "not done")
    if s.was_sent:
        held = tuple(replace(one, cut=True) for one in s.sent if rules.outlives and not one.reply)
        broke = replace(s, sent=held, unsure=True, was_sent=False, ready=False, ahead=None, asked=None, stamp=None)
        if s.unsure:
            yield "the connection breaks again", tell(broke, "unknown")
        else:
            yield "the connection breaks", replace(broke, waits=s.now + WAIT)


def send(s: State, rules: Rules) -> State:
    assert s.ahead is not None
    until = s.now + WAIT + s.ahead[0 if rules.at_least else 1] + (0 if rules.no_later else 1)
    return replace(s, sent=(*s.sent, Sent(until)), was_sent=True, waits=s.now + WAIT)


def tell(s: State, told: Told) -> State:
    if told == "not done" and s.ran:
        raise Broken("'not done' is answered for a change that took effect")
    return replace(s, told=told, asked=None, stamp=None, sent=tuple(one for one in s.sent if not one.reply))


def redis_steps(s: State, rules: Rules) -> Iterator[Step]:
    if s.asked is not None and s.stamp is None:
        yield "TIME arrives", replace(s, stamp=s.clock)
    for place, one in enumerate(s.sent):
        if one.reply:
            continue

        def replied(state: State, reply: Sent, at: int = place, heard: bool = not s.told) -> State:
            replies = (reply,) if heard and not reply.cut else ()
            return replace(state, sent=(*state.sent[:at], *replies, *state.sent[at + 1 :]))

        if s.clock > one.until and rules.deadline:
            yield "it arrives too late", replied(s, replace(one, reply="expired", time=s.clock))
            continue
        after = changed(s.place, s.kind, "as changed")
        if after != s.place and s.newer:
            raise Broken(f"a change takes effect behind a newer one; its caller had: {s.told}")
        if after != s.place and s.told == "not done":
            raise Broken("'not done' was answered for a change that takes effect")
        yield "it arrives", replied(replace(s, place=after, ran=s.ran or after != s.place), replace(one, reply="done"))


def check(rules: Rules, limit: int = 2_000_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    states = 0
    how = "every state"
    for kind in KINDS:
        for place in START:
            what, how, seen = search(State(kind, place), lambda s: steps(s, rules), lambda _: None, limit)
            states += seen
            if what is not None or how != "every state":
                return what, how, states
    return None, how, states
