"""A model of the life of a consumer group: its record, its groups in the streams of a topic, reshards, trims and deletes.

    .venv/bin/python -m reliability.model group

A topic has a stream for each queue, and a reshard adds one. Each consumer knows the streams of one or of both layouts. It wants
its group to begin at the end. Its call makes the group in the streams that do not have it. For that it reads their ends, writes
the record, makes the groups, and writes the record once more. Each script may be repeated after a lost reply. The consumer may
die between two of them. A deleter reads the record, destroys the groups, and removes the record. A worker trims
what other groups have acknowledged, which is everything. An operator may destroy the group of a stream, and the Redis with the
record may go back to a state without it.
The promise: an entry that was appended after an answered call is received, or is in its stream where the group will read it. A
group in Redis has a record. A new group that begins at the end receives no older entry.
Not modelled: leases (`consumer_model.py`), filters, a stream that goes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Step = tuple[str, "State"]
Making = Literal["", "new", "made"]
Phase = Literal["idle", "looks", "records", "makes", "confirms"]

NONE = -1  # the stream does not have the group


class World(NamedTuple):
    """The possible events: all of them at once would be too many states."""

    consumers: int = 2
    streams: int = 2  # at the start
    reshard: bool = False
    entries: int = 2  # at most so many in each stream; each stream of the first layout begins with one
    lost: int = 0  # so many replies are lost
    deaths: int = 0
    deletes: int = 0
    trims: bool = False
    destroyed: int = 0  # so often an operator destroys the group of a stream
    goes_back: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the group is made once, in streams that all have an older entry."""
        return not (self.reshard or self.destroyed or self.deletes or self.goes_back)


#: The searches.
WORLDS = {
    "first calls": World(lost=1, deaths=1),
    "first calls, and trims": World(trims=True),
    "a delete": World(deletes=1, consumers=1, lost=1),
    "a reshard": World(streams=1, reshard=True, lost=1),
    "a reshard, and trims": World(streams=1, reshard=True, trims=True, consumers=1),
    "two deletes": World(streams=1, deletes=2, lost=1),
    "an operator": World(destroyed=1, trims=True, consumers=1),
    "a record that is lost": World(goes_back=True, reshard=True, streams=1, consumers=1),
}


class Rules(Struct, frozen=True):
    all_streams: bool = True  # the first call makes the group in all streams; False: in those that it asks
    looks: bool = True  # the end of a stream is read before the record; False: when the group is made
    from_zero: bool = True  # a group that was made begins at 0 in a stream without it; False: at its start
    unmade: bool = True  # a record is new until the group is in all streams; False: only for who wrote it
    compares: bool = True  # a delete removes only the record that it has read; False: any
    confirms: bool = True  # a call writes the record once more behind the groups; False: only before them
    renames: bool = True  # ... which changes it; False: it stays as it is
    asks: bool = True  # a call looks whether the record is made; False: only whether the streams have the group
    # A recorded group that a stream does not have has acknowledged nothing; False: it does not count.
    trim_asks: bool = True
    notes_first: bool = True  # a trim notes the ends of streams, then reads the records; False: the other way round


class Stream(Struct, frozen=True, cache_hash=True, gc=False):
    """`end` entries were appended, and the first `cut` ones trimmed. `read` is how many the group has passed, or NONE."""

    end: int = 0
    cut: int = 0
    read: int = NONE
    owed: frozenset[int] = frozenset()  # entries that the group has to receive


class Consumer(Struct, frozen=True, cache_hash=True, gc=False):
    phase: Phase = "idle"
    known: int = 1  # the streams of its layouts
    span: int = 0  # those in which it makes the group
    making: Making = ""  # the state in the record
    at: int = 0  # the next stream to make it in
    ends: tuple[int, ...] = ()  # the ends of these streams, from before the record


class Deleter(Struct, frozen=True, cache_hash=True, gc=False):
    span: int = 0
    at: int = 0
    changed: bool = False  # the record differs from the one that it has read


class State(Struct, frozen=True, cache_hash=True, gc=False):
    streams: tuple[Stream, ...]
    layouts: int  # so many streams exist
    consumers: tuple[Consumer, ...]
    record: Making = ""
    span: int = 0  # the streams of the record
    deleters: tuple[Deleter, ...] = ()
    noted: tuple[int, ...] | None = None  # the ends of streams that a trim has noted
    seen: bool | None = None  # whether this trim has read a record
    answered: bool = False
    lost: int = 0
    deaths: int = 0
    deletes: int = 0
    destroyed: int = 0
    gone_back: bool = False


def steps(s: State, rules: Rules, world: World) -> Iterator[Step]:
    for at in range(s.layouts):
        if s.streams[at].end < world.entries:
            yield f"an entry is appended to {at}", _append(s, at)
    if world.reshard and s.layouts < len(s.streams):
        yield "a reshard", replace(s, layouts=s.layouts + 1)
    for place, one in enumerate(s.consumers):
        if one.known < s.layouts:
            yield f"{place} reads the layouts", _with(s, place, replace(one, known=s.layouts))
        yield from _consumer_steps(s, place, one, rules, world)
    yield from _deleter_steps(s, rules, world)
    if world.trims:
        yield from _trim_steps(s, rules)
    if s.destroyed < world.destroyed:
        for at, stream in enumerate(s.streams):
            if stream.read != NONE:
                yield f"an operator destroys {at}", replace(_put(s, at, read=NONE), destroyed=s.destroyed + 1)
    if world.goes_back and not s.gone_back and s.record:
        yield "the record is lost", replace(s, record="", span=0, gone_back=True)


def _append(s: State, at: int) -> State:
    one = s.streams[at]
    owed = one.owed | {one.end} if s.answered and not s.deleters else one.owed
    return _put(s, at, end=one.end + 1, owed=owed)


# -- a call --------------------------------------------------------------------------------------------------------------


def _consumer_steps(s: State, place: int, one: Consumer, rules: Rules, world: World) -> Iterator[Step]:
    if one.phase == "idle":
        there = all(s.streams[at].read != NONE for at in range(one.known))
        if there and (s.record == "made" or not rules.asks):
            yield f"{place} receives", _received(s, one.known)
        else:
            yield f"{place} finds no group", _with(s, place, replace(one, phase="looks", span=one.known))
        return
    if s.deaths < world.deaths:
        yield f"{place} dies", _with(replace(s, deaths=s.deaths + 1), place, Consumer(known=one.known))
    for label, after, following in _run(s, one, rules, world):
        yield f"{place} {label}", _with(after, place, following)
        if s.lost < world.lost:
            yield f"{place} {label}, and the reply is lost", replace(after, lost=s.lost + 1, answered=s.answered)


def _run(s: State, one: Consumer, rules: Rules, world: World) -> Iterator[tuple[str, State, Consumer]]:
    """Run the script of a phase: yield a label, the state after it, and the consumer once it has the reply."""
    if one.phase == "looks":
        ends = tuple(stream.end for stream in s.streams[: one.span])
        yield "reads the ends", s, replace(one, phase="records", ends=ends)
    elif one.phase == "records":
        # A group that some stream has was made, whatever became of its record.
        has_some = any(s.streams[at].read != NONE for at in range(one.known))
        after = _recorded(s, one.span, "made" if not s.record and has_some else s.record or "new")
        is_new = after.record == "new" and (rules.unmade or not s.record)
        making: Making = "new" if is_new else "made"
        yield "records the group", after, replace(one, phase="makes", making=making)
    elif one.phase == "makes":
        stream = s.streams[one.at]
        end = one.ends[one.at] if rules.looks else stream.end
        first = end if one.making == "new" or not rules.from_zero else 0
        after = s
        if stream.read == NONE:
            if any(entry < first for entry in stream.owed):
                raise Broken("a group passes an entry that it has not received")
            if first == 0 and world.is_plain:
                raise Broken("a group that begins at the end receives an older entry")
            after = _put(s, one.at, read=first)
        is_last = one.at + 1 >= one.span or (stream.read == NONE and not rules.all_streams)
        following = replace(one, at=0 if is_last else one.at + 1, phase="confirms" if is_last else "makes")
        yield f"makes the group in {one.at}", after, following
    elif not rules.confirms:
        yield "ends the call", _received(s, 1 if not rules.all_streams else one.known), _idle(one)
    elif not s.record:
        yield "finds that the record is gone", s, replace(one, phase="looks")
    else:
        changed = tuple(replace(d, changed=d.changed or rules.renames) for d in s.deleters)
        after = replace(s, record="made", deleters=changed)
        yield "confirms the record", _received(after, one.known if rules.all_streams else 1), _idle(one)


def _idle(one: Consumer) -> Consumer:
    return Consumer(known=one.known)


def _recorded(s: State, known: int, making: Making) -> State:
    """Write the record; its streams only become more."""
    span = max(s.span, known)
    changed = (
        tuple(replace(d, changed=True) for d in s.deleters) if (span, making) != (s.span, s.record) else s.deleters
    )
    return replace(s, record=making, span=span, deleters=changed)


def _received(s: State, known: int) -> State:
    """A call receives the entries of all streams that have the group, and is answered."""
    for at in range(known):
        one = s.streams[at]
        if one.read != NONE:
            s = _put(s, at, read=one.end, owed=frozenset(e for e in one.owed if e < one.read))
    return replace(s, answered=True)


# -- deletes, trims ------------------------------------------------------------------------------------------------------


def _deleter_steps(s: State, rules: Rules, world: World) -> Iterator[Step]:
    if s.deletes < world.deletes and s.record:
        nothing_owed = tuple(replace(one, owed=frozenset()) for one in s.streams)
        begun = replace(s, streams=nothing_owed, deletes=s.deletes + 1, answered=False)
        yield "a delete reads the record", replace(begun, deleters=(*s.deleters, Deleter(s.span)))
    for place, one in enumerate(s.deleters):
        others = (*s.deleters[:place], *s.deleters[place + 1 :])
        if one.at < one.span:
            moved = (*s.deleters[:place], replace(one, at=one.at + 1), *s.deleters[place + 1 :])
            yield f"a delete destroys {one.at}", replace(_put(s, one.at, read=NONE), deleters=moved)
        elif one.changed and rules.compares:
            yield "a delete finds another record", replace(s, deleters=others, answered=False)
        else:
            changed = tuple(replace(d, changed=True) for d in others)
            yield "a delete removes the record", replace(s, record="", span=0, deleters=changed, answered=False)


def _trim_steps(s: State, rules: Rules) -> Iterator[Step]:
    ends, there = tuple(one.end for one in s.streams), bool(s.record)
    may_note, may_read = s.noted is None, s.seen is None
    if may_note and (rules.notes_first or not may_read):
        yield "a trim notes the ends", replace(s, noted=ends)
    if may_read and (not rules.notes_first or not may_note):
        yield "a trim reads the records", replace(s, seen=there)
    if s.noted is None or s.seen is None:
        return
    after = s
    for at, one in enumerate(s.streams):
        if one.read == NONE and s.seen and rules.trim_asks:
            continue
        cut = max(one.cut, min(s.noted[at], one.end if one.read == NONE else one.read))
        if any(entry < cut for entry in one.owed):
            raise Broken("a trim removes an entry that the group has not received")
        after = _put(after, at, cut=cut)
    yield "a trim", replace(after, noted=None, seen=None)


def _put(s: State, at: int, **fields: object) -> State:
    streams = (*s.streams[:at], replace(s.streams[at], **fields), *s.streams[at + 1 :])
    return replace(s, streams=streams)


def _with(s: State, place: int, one: Consumer) -> State:
    return replace(s, consumers=(*s.consumers[:place], one, *s.consumers[place + 1 :]))


# -- promises ------------------------------------------------------------------------------------------------------------


def wrong(s: State) -> str | None:
    is_quiet = not s.deleters and all(one.phase == "idle" for one in s.consumers)
    if is_quiet and not s.record and not s.deaths and not s.gone_back and any(one.read != NONE for one in s.streams):
        return "a group in Redis has no record"
    return None


def check(rules: Rules, world: World, limit: int = 400_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    number = world.streams + world.reshard
    streams = tuple(Stream(end=int(at < world.streams)) for at in range(number))
    consumers = tuple(Consumer(known=world.streams) for _ in range(world.consumers))
    start = State(streams, world.streams, consumers)
    return search(start, lambda s: steps(s, rules, world), wrong, limit)
