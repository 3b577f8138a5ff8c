"""A model of the records of calls: one record for all entries that a call receives first, beside a record for each entry.

    .venv/bin/python -m reliability.model records

`consumer_model.py` has the rules of leases, with a record for each entry. The scripts keep one record for the new entries of a
call, until something happens to a part of them. Here each step runs in both forms, and each reply must be the same. A step is
a receive of one or two messages, or the same call again, or an act. An act names some of the messages that a call has
received. A call may act after its lease has ended, and after another one has received the message. A repeated call that
no longer holds a message is a new call. Redis knows only the first entry of a record as pending. A trim keeps the entries from
the first pending one on, so no entry that is left may lie below it.
Not modelled: lanes, filters and entries that were trimmed, because they have a record for each entry in both forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

Act = Literal["ack", "back", "extend"]
Step = tuple[str, "State"]

MESSAGES, CALLS, END = 3, 3, 3
LEASE, PAUSE = 2, 1


class Rules(Struct, frozen=True):
    splits: bool = True  # an act on a part of a record first splits it; False: it finds no record of the entry
    complete: bool = True  # a split makes a record of each entry; False: it forgets the last one
    same_end: bool = True  # ... that ends when the lease of the call ends; False: it is a new lease
    all_of_it: bool = True  # an acknowledgement ends a record if it names all entries; False: if it names the first one
    splits_ended: bool = True  # a receive splits a record whose lease has ended; False: it takes the first entry alone
    finds_again: bool = True  # the same call again finds its record; False: it only looks for records of entries
    own_first: bool = True  # the first entry of a record is pending; False: the last one is


class Entry(NamedTuple):
    """The record of an entry: its state, its call, when its lease or pause ends, and how often it was leased."""

    how: Literal["leased", "handed back", "done"]
    call: int = -1
    until: int = 0
    leases: int = 0


class Record(NamedTuple):
    """All new entries of a call."""

    call: int
    ids: tuple[int, ...]
    until: int


#: The entries by number. An entry that nobody has received yet is not among them.
Entries = tuple[tuple[int, Entry], ...]


class State(Struct, frozen=True, cache_hash=True, gc=False):
    plain: Entries = ()  # a record for each entry
    stored: Entries = ()  # the records of entries beside the records of calls
    records: tuple[Record, ...] = ()
    pending: frozenset[int] = frozenset()
    read: int = 0
    received: tuple[tuple[int, ...], ...] = ()  # what each call has received
    now: int = 0


def _put(entries: Entries, id: int, entry: Entry) -> Entries:
    return tuple(sorted({**dict(entries), id: entry}.items()))


# -- a record for each entry -------------------------------------------------------------------------------------------


def _free(entries: Entries, now: int) -> list[int]:
    ended = [(one.until, id) for id, one in entries if one.how != "done" and one.until <= now]
    return [id for _, id in sorted(ended)]


def _lease(entries: Entries, id: int, call: int, now: int) -> Entries:
    leases = dict(entries)[id].leases if id in dict(entries) else 0
    return _put(entries, id, Entry("leased", call, now + LEASE, leases + 1))


def _again(entries: Entries, ids: tuple[int, ...], call: int, now: int) -> tuple[Entries, tuple[int, ...]]:
    known = dict(entries)
    held = tuple(id for id in ids if id in known and known[id].how == "leased" and known[id].call == call)
    for id in held:
        entries = _put(entries, id, known[id]._replace(until=now + LEASE))
    return entries, held


def _settle(entries: Entries, id: int, call: int, act: Act, now: int) -> tuple[Entries, str]:
    entry = dict(entries).get(id)
    if entry is None or entry.how == "done":
        return entries, "ok" if act == "ack" else "lost"
    if entry.call != call:
        return entries, "lost"
    if entry.how == "handed back":
        return entries, "ok" if act == "back" else "lost"
    after = {
        "ack": Entry("done"),
        "back": entry._replace(how="handed back", until=now + PAUSE),
        "extend": entry._replace(until=now + LEASE),
    }[act]
    return _put(entries, id, after), "ok"


# -- with records of calls ---------------------------------------------------------------------------------------------


def _split(s: State, record: Record, rules: Rules) -> State:
    ids = record.ids if rules.complete or len(record.ids) == 1 else record.ids[:-1]
    until = record.until if rules.same_end else s.now + LEASE
    stored = s.stored
    for id in ids:
        stored = _put(stored, id, Entry("leased", record.call, until, 1))
    records = tuple(one for one in s.records if one != record)
    return replace(s, stored=stored, records=records, pending=s.pending | set(ids))


def _receive(s: State, call: int, most: int, rules: Rules) -> tuple[State, tuple[int, ...]]:
    taken: list[int] = []
    while len(taken) < most:
        free = _free(s.stored, s.now)
        ended = sorted((one.until, one.ids, one) for one in s.records if one.until <= s.now)
        if ended and (not free or ended[0][:2] < (dict(s.stored)[free[0]].until, (free[0],))):
            record = ended[0][2]
            if not rules.splits_ended:
                rest = tuple(one for one in s.records if one != record)
                s = replace(s, records=rest, stored=_put(s.stored, record.ids[0], Entry("leased", record.call, 0, 1)))
                continue
            s = _split(s, record, rules)
        elif free:
            s = replace(s, stored=_lease(s.stored, free[0], call, s.now))
            taken.append(free[0])
        else:
            break
    new = tuple(range(s.read, min(s.read + most - len(taken), MESSAGES)))
    if new:
        pending = s.pending | {new[0] if rules.own_first else new[-1]}
        records = (*s.records, Record(call, new, s.now + LEASE))
        s = replace(s, read=new[-1] + 1, records=records, pending=pending)
    return s, (*taken, *new)


def _of(s: State, call: int) -> Record | None:
    return next((one for one in s.records if one.call == call), None)


def _repeat(s: State, ids: tuple[int, ...], call: int, rules: Rules) -> tuple[State, tuple[int, ...]]:
    stored, held = _again(s.stored, ids, call, s.now)
    record = _of(s, call) if rules.finds_again else None
    if record is None:
        return replace(s, stored=stored), held
    records = tuple(one._replace(until=s.now + LEASE) if one == record else one for one in s.records)
    return replace(s, stored=stored, records=records), tuple(id for id in ids if id in held or id in record.ids)


def _act(s: State, ids: tuple[int, ...], call: int, act: Act, rules: Rules) -> tuple[State, list[str]]:
    record = _of(s, call)
    if record is not None:
        if act == "ack" and (ids == record.ids or (not rules.all_of_it and ids[0] == record.ids[0])):
            rest = tuple(one for one in s.records if one != record)
            stored = s.stored
            for id in record.ids:
                stored = _put(stored, id, Entry("done"))
            return replace(s, stored=stored, records=rest, pending=s.pending - {record.ids[0]}), ["ok"] * len(ids)
        if rules.splits:
            s = _split(s, record, rules)
    results = []
    for id in ids:
        stored, result = _settle(s.stored, id, call, act, s.now)
        gone = {id} if dict(stored).get(id, Entry("leased")).how == "done" else set()
        s = replace(s, stored=stored, pending=s.pending - gone)
        results.append(result)
    return s, results


# -- both --------------------------------------------------------------------------------------------------------------


def steps(s: State, rules: Rules) -> Iterator[Step]:
    """Yield each possible step, with the state after it."""
    if s.now < END:
        yield "a tick", replace(s, now=s.now + 1)
    call = len(s.received)
    for most in (1, 2) if call < CALLS else ():
        after, got = _receive(s, call, most, rules)
        plain = s.plain
        free = _free(plain, s.now)
        expected = (*free, *range(s.read, MESSAGES))[:most]
        _same(f"call {call} receives", sorted(got), sorted(expected))
        for id in expected:
            plain = _lease(plain, id, call, s.now)
        yield f"call {call} receives {got}", replace(after, plain=plain, received=(*s.received, got))
    for call, ids in enumerate(s.received):
        after, got = _repeat(s, ids, call, rules)
        plain, expected = _again(s.plain, ids, call, s.now)
        if not expected:
            continue
        _same(f"call {call} is repeated", got, expected)
        yield f"call {call} is repeated", replace(after, plain=plain)
    for call, ids in enumerate(s.received):
        for some in chain.from_iterable(combinations(ids, count) for count in range(1, len(ids) + 1)):
            for act in ("ack", "back", "extend"):
                after, results = _act(s, some, call, act, rules)
                plain, wanted = s.plain, []
                for id in some:
                    plain, result = _settle(plain, id, call, act, s.now)
                    wanted.append(result)
                _same(f"call {call} sends {act} of {some}", results, wanted)
                yield f"call {call} sends {act} of {some}", replace(after, plain=plain)


def _same(what: str, got: object, expected: object) -> None:
    if got != expected:
        raise Broken(f"{what}: the reply is {got}, and with a record for each entry it is {expected}")


def wrong(s: State) -> str | None:
    """Return what a trim would remove too early."""
    left = [id for id, one in s.plain if one.how != "done"]
    if left and (not s.pending or min(left) < min(s.pending)):
        return "a trim removes a message that is not acknowledged"
    return None


def check(rules: Rules, limit: int = 400_000) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    return search(State(), lambda s: steps(s, rules), wrong, limit)
