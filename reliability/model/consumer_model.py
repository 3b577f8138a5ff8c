"""A model of the consumers of a group: leases, acknowledgements, hand-backs, dead letters, lost replies, deaths and fail-overs.

    .venv/bin/python -m reliability.model consumer

Two consumers share the messages of a stream. Each call receives one message at most. A reply may be lost after its script ran;
then the consumer repeats the call. A copy of a call whose reply was lost may run late, after newer calls. A consumer that dies
is replaced by a new one. A message that was handed back or whose leases ended too often becomes a dead letter, and is then
acknowledged. Redis knows what a call received as long as the call holds some of it; then a repeat of it is a new call. Dead
letters may be on another primary than the stream. A primary has a replica. An answer waits until the replica has the change
(DELAYQ_MIN_REPLICAS). A fail-over replaces the primary by its replica, and so loses changes without an answer.
Without DELAYQ_MIN_REPLICAS it also loses answered changes: a message may be received twice, and a new dead letter may be lost.
Time is in ticks of the clock of Redis. A consumer counts its lease from the moment when it sent the call.
Not modelled: late calls from before a deadline (`deadline_model.py`), trimmed entries, filters, clocks that are set.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]
How = Literal["new", "leased", "handed back", "done"]
Phase = Literal["idle", "receives", "is answered", "holds", "settles", "buries", "acks the dead letter"]
Act = Literal["ack", "back", "release"]

LEASE, PAUSE = 2, 2
MOST_LEASES, MOST_BACKS = 2, 1
FAR = 1_000  # every lease and every pause has ended
NOBODY = -1


class World(NamedTuple):
    """The possible events: all of them at once would be too many states."""

    messages: int = 1
    end: int = 5  # the last tick
    calls: int = 3  # so many receives
    lost: int = 1  # so many replies are lost
    late: bool = False  # a copy of one of these calls runs late
    deaths: int = 1
    failovers: int = 0
    acts: tuple[Act, ...] = ("ack", "back", "release")
    extends: bool = False
    slow: bool = False  # replies to receives take time
    goes_back: bool = False  # one Redis without DELAYQ_MIN_REPLICAS: a fail-over loses answered changes as well


#: The searches.
WORLDS = {
    "calls that run late": World(late=True, calls=2, end=5),
    "two messages": World(messages=2, calls=4, end=3, acts=("ack",), deaths=0),
    "a call that is repeated for long": World(messages=2, calls=2, lost=2, end=3, acts=("ack",), deaths=0),
    "a name that is used again": World(late=True, calls=3, end=2, acts=("release",), deaths=0),
    "leases that end or are extended": World(extends=True, slow=True, acts=("ack",), lost=0),
    "a fail-over": World(failovers=1, calls=2, end=4),
    "a fail-over, and dead letters": World(failovers=1, acts=("back",), deaths=0),
    "a Redis that goes back": World(failovers=1, calls=2, acts=("ack", "release"), deaths=0, goes_back=True),
}


class Rules(Struct, frozen=True):
    compares: bool = True  # a call settles only the message that its own call holds
    ends: bool = True  # a leased message is received again only when its lease has ended; False: at any time
    again: bool = True  # a message whose lease or pause has ended is received again; False: only new ones are
    repeats: bool = True  # a repeated call gets the messages of its first run; False: it leases others
    still: bool = True  # ... those that it still holds; False: all of them
    lasts: bool = True  # ... as long as it holds one; False: as long as its first lease
    forgets: bool = True  # Redis forgets a call that no longer holds a message; False: it keeps its name
    new_names: bool = True  # each call has a new name; False: a consumer has one name
    ack_again: bool = True  # a message without a state was acknowledged; False: its acknowledgement is lost
    back_once: bool = True  # a repeated hand-back changes nothing; False: it counts again
    pauses: bool = True  # a message that was handed back is received after its pause; False: at once
    dead_first: bool = True  # a dead letter is stored before the message is acknowledged; False: behind that
    from_sending: bool = True  # a consumer counts its lease from when it sent the call; False: from the answer
    confirms: bool = True  # an answer waits for the replica; False: it does not
    dead_confirms: bool = True  # ... and so does the answer that a dead letter is stored


class Entry(Struct, frozen=True, cache_hash=True, gc=False):
    """A message of the stream: its state in the group, the call of its lease, and when the lease or the pause ends."""

    how: How = "new"
    call: int = NOBODY
    until: int = 0
    leases: int = 0
    backs: int = 0


class Stored(Struct, frozen=True, cache_hash=True, gc=False):
    """The group in Redis; `received` has the message of each call that holds one, and when its first lease ends."""

    entries: tuple[Entry, ...]
    received: tuple[tuple[int, tuple[int, int]], ...] = ()


class Consumer(Struct, frozen=True, cache_hash=True, gc=False):
    """A process. `since` is when it sent the call, `until` when its lease ends by its own count."""

    phase: Phase = "idle"
    call: int = NOBODY
    message: int = NOBODY
    since: int = 0
    until: int = 0
    act: Act = "ack"


class Late(Struct, frozen=True, cache_hash=True, gc=False):
    """A call that may still run."""

    call: int
    message: int
    act: Act | Literal["receive"]


class State(Struct, frozen=True, cache_hash=True, gc=False):
    primary: Stored
    replica: Stored
    dead: tuple[bool, ...]  # the dead letters on their primary
    dead_replica: tuple[bool, ...]
    consumers: tuple[Consumer, ...] = (Consumer(), Consumer())
    late: Late | None = None
    now: int = 0
    calls: int = 0
    lost: int = 0
    deaths: int = 0
    failovers: int = 0
    handled: frozenset[int] = frozenset()
    given_up: frozenset[int] = frozenset()  # messages that became dead letters, which a Redis that goes back may lose
    acknowledged: frozenset[int] = frozenset()  # messages for which a consumer got this answer
    settled: frozenset[tuple[int, int]] = frozenset()  # messages that were acknowledged by these calls in Redis
    pauses: tuple[int, ...] = ()  # until when each message is not received, by the answer to its hand-back


# -- scripts -----------------------------------------------------------------------------------------------------------


def put(stored: Stored, at: int, entry: Entry, rules: Rules) -> Stored:
    entries = (*stored.entries[:at], entry, *stored.entries[at + 1 :])
    received = stored.received
    if rules.forgets and rules.still:
        received = tuple((call, known) for call, known in received if holds(entries, call))
    return replace(stored, entries=entries, received=received)


def holds(entries: tuple[Entry, ...], call: int) -> bool:
    return any(one.how == "leased" and one.call == call for one in entries)


def receive(stored: Stored, call: int, now: int, rules: Rules) -> tuple[Stored, int]:
    """Return the state that `receive` leaves in Redis, and the message of its reply, or NOBODY."""
    remembered = dict(stored.received).get(call) if rules.repeats else None
    if remembered is not None and (rules.lasts or now < remembered[1]):
        at = remembered[0]
        entry = stored.entries[at]
        if not rules.still or (entry.how == "leased" and entry.call == call):
            return put(stored, at, replace(entry, how="leased", call=call, until=now + LEASE), rules), at
    for at, entry in enumerate(stored.entries):
        free = {
            "new": True,
            "leased": rules.again and (entry.until <= now or not rules.ends),
            "handed back": rules.again and (entry.until <= now or not rules.pauses),
            "done": False,
        }[entry.how]
        if free:
            leased = Entry("leased", call, now + LEASE, entry.leases + 1, entry.backs)
            received = tuple(sorted({**dict(stored.received), call: (at, now + LEASE)}.items()))
            return put(replace(stored, received=received), at, leased, rules), at
    return stored, NOBODY


def settle(stored: Stored, at: int, call: int, act: Act, now: int, rules: Rules) -> tuple[Stored, str]:
    """Return the state that `settle_received` leaves in Redis, and its result."""
    entry = stored.entries[at]
    if entry.how in ("new", "done"):
        return stored, "ok" if act == "ack" and rules.ack_again else "lost"
    if entry.call != call and rules.compares:
        return stored, "lost"
    if entry.how == "handed back" and act == "ack":
        return stored, "lost"
    if act == "ack":
        return put(stored, at, Entry("done"), rules), "ok"
    if entry.how == "handed back" and (rules.back_once or act == "release"):
        return stored, "ok"
    if act == "release":
        return put(stored, at, Entry("handed back", call, now, entry.leases - 1, entry.backs), rules), "ok"
    if entry.backs + 1 > MOST_BACKS:
        return stored, "exhausted"
    return put(stored, at, Entry("handed back", call, now + PAUSE, entry.leases, entry.backs + 1), rules), "ok"


def extend(stored: Stored, at: int, call: int, now: int, rules: Rules) -> tuple[Stored, bool]:
    entry = stored.entries[at]
    if entry.how != "leased" or (entry.call != call and rules.compares):
        return stored, False
    return put(stored, at, replace(entry, until=now + LEASE), rules), True


def exhausted(entry: Entry) -> bool:
    return entry.leases - entry.backs > MOST_LEASES


# -- steps -------------------------------------------------------------------------------------------------------------


def steps(s: State, rules: Rules, world: World) -> Iterator[Step]:
    if s.now < world.end:
        yield "a tick", replace(s, now=s.now + 1)
    if world.failovers:
        yield from _replica_steps(s, world)
    if s.late is not None:
        yield "the late call runs", _run_late(s, s.late, rules)
    for place in range(len(s.consumers)):
        yield from _consumer_steps(s, place, rules, world)


def _replica_steps(s: State, world: World) -> Iterator[Step]:
    if world.goes_back:
        yield "the replica follows", replace(s, replica=s.primary, dead_replica=s.dead)
        if s.failovers < world.failovers:
            yield "Redis goes back", replace(s, primary=s.replica, dead=s.dead_replica, failovers=s.failovers + 1)
        return
    if s.primary != s.replica:
        yield "the replica follows", replace(s, replica=s.primary)
    if s.dead != s.dead_replica:
        yield "the replica of the dead letters follows", replace(s, dead_replica=s.dead)
    if s.failovers < world.failovers:
        yield "a fail-over", replace(s, primary=s.replica, failovers=s.failovers + 1)
        yield "a fail-over of the dead letters", replace(s, dead=s.dead_replica, failovers=s.failovers + 1)


def _run_late(s: State, late: Late, rules: Rules) -> State:
    if late.act == "receive":
        stored, _ = receive(s.primary, late.call, s.now, rules)
        return replace(s, primary=stored, late=None)
    after, _ = _settled(s, late.message, late.call, late.act, rules)
    return replace(after, late=None)


def _consumer_steps(s: State, place: int, rules: Rules, world: World) -> Iterator[Step]:
    one = s.consumers[place]
    if one.phase != "idle" and s.deaths < world.deaths:
        yield f"{place} dies, and another one starts", _with(replace(s, deaths=s.deaths + 1), place, Consumer())
    if one.phase == "idle":
        if s.calls < world.calls:
            name = s.calls if rules.new_names else place
            asking = Consumer("receives", name, NOBODY, s.now)
            yield f"{place} sends a call", _with(replace(s, calls=s.calls + 1), place, asking)
        return
    if one.phase == "is answered":
        since = one.since if rules.from_sending else s.now
        yield f"{place} has the reply", _with(s, place, replace(one, phase="holds", until=since + LEASE))
        return
    if one.phase == "holds":
        for act in world.acts:
            sent = replace(one, phase="settles", act=act, until=0)
            done = replace(s, handled=s.handled | {one.message}) if act == "ack" else s
            yield f"{place} sends {act}", _with(done, place, sent)
        if world.extends:
            stored, holds = extend(s.primary, one.message, one.call, s.now, rules)
            kept = replace(one, until=s.now + LEASE) if holds else Consumer()
            yield f"{place} extends its lease", _with(_confirmed(replace(s, primary=stored), rules, world), place, kept)
        return
    for label, after, following in _run(s, one, rules, world):
        yield f"{place} {label}", _with(_confirmed(after, rules, world), place, following)
        if s.lost < world.lost:
            unheard = replace(after, lost=s.lost + 1, acknowledged=s.acknowledged, pauses=s.pauses)
            yield f"{place} {label}, and the reply is lost", _with(unheard, place, one)
            if world.late and s.late is None:
                copy = Late(one.call, one.message, "receive" if one.phase == "receives" else one.act)
                if one.phase in ("receives", "settles"):
                    yield (
                        f"{place} {label}, the reply is lost, and a copy is late",
                        _with(replace(unheard, late=copy), place, one),
                    )
                    waits = replace(s, lost=s.lost + 1, late=copy)
                    yield f"{place} is without an answer, and its call is late", _with(waits, place, one)


def _run(s: State, one: Consumer, rules: Rules, world: World) -> Iterator[tuple[str, State, Consumer]]:
    """Run the call of a consumer: yield a label, the state after it, and the consumer once it has the reply."""
    if one.phase == "receives":
        stored, at = receive(s.primary, one.call, s.now, rules)
        after = replace(s, primary=stored)
        if at == NOBODY:
            yield "receives nothing", after, Consumer()
            return
        went_back = world.goes_back and s.failovers
        if at in s.acknowledged and not went_back:
            raise Broken("an acknowledged message is received again")
        if s.now < s.pauses[at] and not went_back:
            raise Broken("a message is received before its pause ends")
        for other, entry in enumerate(stored.entries):
            if other != at and entry.how == "leased" and entry.call == one.call:
                raise Broken("a message is leased to a call whose caller does not know it")
        if exhausted(stored.entries[at]):
            yield f"receives {at}, whose leases ended too often", after, _burial(one, at, rules)
        else:
            answered = replace(one, phase="is answered", message=at)
            held = replace(one, phase="holds", message=at, until=one.since + LEASE)
            yield f"receives {at}", after, answered if world.slow else held
    elif one.phase == "settles":
        after, result = _settled(s, one.message, one.call, one.act, rules)
        gone = after.primary.entries[one.message].how == "done"
        if result == "lost" and one.act == "ack" and gone and (one.message, one.call) in after.settled:
            raise Broken("an acknowledgement that was repeated is lost")
        if result == "exhausted":
            yield "may not hand it back again", after, _burial(one, one.message, rules)
            return
        if result == "ok" and one.act == "ack":
            after = replace(after, acknowledged=after.acknowledged | {one.message})
        if result == "ok" and one.act == "back":
            until = after.primary.entries[one.message].until
            after = replace(after, pauses=_at(after.pauses, one.message, until))
        yield f"gets the answer {result} to {one.act}", after, Consumer()
    elif one.phase == "buries":
        after = replace(s, dead=_at(s.dead, one.message, True), given_up=s.given_up | {one.message})
        yield "stores a dead letter", after, _after_burial(one, rules, "buries")
    elif one.phase == "acks the dead letter":
        after, _ = _settled(s, one.message, one.call, "ack", rules)
        yield "acknowledges what it gave up", after, _after_burial(one, rules, "acks the dead letter")


def _burial(one: Consumer, message: int, rules: Rules) -> Consumer:
    return replace(one, phase="buries" if rules.dead_first else "acks the dead letter", message=message, until=0)


def _after_burial(one: Consumer, rules: Rules, done: Phase) -> Consumer:
    if (done == "buries") is rules.dead_first:
        return replace(one, phase="acks the dead letter" if rules.dead_first else "buries")
    return Consumer()


def _settled(s: State, at: int, call: int, act: Act, rules: Rules) -> tuple[State, str]:
    before = s.primary.entries[at]
    stored, result = settle(s.primary, at, call, act, s.now, rules)
    after = replace(s, primary=stored)
    if act == "ack" and stored != s.primary:
        after = replace(after, settled=s.settled | {(at, call)})
    counts = result == "exhausted" or (act == "back" and stored != s.primary)
    if counts and before.how == "handed back" and before.call == call:
        raise Broken("a hand-back counts twice")
    return after, result


def _confirmed(s: State, rules: Rules, world: World) -> State:
    if world.goes_back:
        return s
    replica = s.primary if rules.confirms else s.replica
    return replace(s, replica=replica, dead_replica=s.dead if rules.dead_confirms else s.dead_replica)


def _with(s: State, place: int, one: Consumer) -> State:
    return replace(s, consumers=(*s.consumers[:place], one, *s.consumers[place + 1 :]))


def _at(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


# -- promises ----------------------------------------------------------------------------------------------------------


def wrong(s: State, rules: Rules, world: World) -> str | None:
    held = [one.message for one in s.consumers if one.phase == "holds" and one.until > s.now]
    if len(held) != len(set(held)) and not (world.goes_back and s.failovers):
        return "two consumers have a valid lease of one message"
    for at, entry in enumerate(s.primary.entries):
        is_kept = s.dead[at] or (world.goes_back and s.failovers and at in s.given_up)
        if entry.how == "done" and at not in s.handled and not is_kept:
            return "a message is lost: it is acknowledged, was never handled, and is no dead letter"
    if rules.still and any(not holds(s.primary.entries, call) for call, _ in s.primary.received):
        return "Redis remembers a call that holds nothing"
    for place, one in enumerate(s.consumers):
        if not _gets_on(s.primary, one, place, rules):
            return "a consumer that stays alive does not receive a message that is left"
    return None


@cache
def _gets_on(stored: Stored, one: Consumer, place: int, rules: Rules) -> bool:
    """Whether a consumer without another fault empties the stream, once all leases and pauses have ended."""
    if one.phase == "receives":
        stored, at = receive(stored, one.call, FAR, rules)
        if at != NOBODY:
            stored, _ = settle(stored, at, one.call, "ack", FAR, rules)
    elif one.phase != "idle":
        stored, _ = settle(stored, one.message, one.call, "ack", FAR, rules)
    for turn in range(1, 2 * len(stored.entries) + 1):
        call = FAR + turn if rules.new_names else place
        stored, at = receive(stored, call, FAR * (turn + 1), rules)
        if at != NOBODY:
            stored, _ = settle(stored, at, call, "ack", FAR * (turn + 1), rules)
    return all(entry.how == "done" for entry in stored.entries)


def check(rules: Rules, world: World, limit: int = 400_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    _gets_on.cache_clear()
    stored = Stored(tuple(Entry() for _ in range(world.messages)))
    none = (False,) * world.messages
    start = State(stored, stored, none, none, pauses=(0,) * world.messages)
    return search(start, lambda s: steps(s, rules, world), lambda s: wrong(s, rules, world), limit)
