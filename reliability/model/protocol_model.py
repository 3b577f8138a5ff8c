"""A model of the protocol of one queue, with every interleaving of two nodes, one or two messages and a few faults.

    .venv/bin/python -m reliability.model protocol

A step is one Redis script, one coordinator event or one send. The search is breadth-first, so a counter-example is a
shortest one. One id may be scheduled twice, and once both clocks may go back. The search visits every state within the
bounds below. The model has no fail-over that rolls Redis back, no other clock steps, no parking, and no script that appends
messages to a stream. It checks liveness only by 'nothing in flight, yet a due message cannot be pulled'.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reliability.model.search import Broken, search

T = TypeVar("T")
Step = tuple[str, "State"]

LAST_TICK, MAX_OWNERS, MAX_EPOCHS, MAX_RETRIES = 2, 2, 2, 1
NODES = (0, 1)


class Rules(Struct, frozen=True):
    watermark: bool = True  # a pulled message is never cancelled 'hard'
    remember_exposed: bool = True  # a message that was in flight before is never cancelled 'hard'
    compare_generation: bool = True  # ack and retry touch only the very record that was pulled
    fence: bool = True  # pull and retry with an old epoch are refused
    own_epochs: bool = True  # an epoch names the claiming node; False: it is only the number that was read + 1
    forward_before_remove: bool = True
    due_as_offset: bool = True  # False: the offset is a rank in the ZSET
    lower_exposes: bool = True  # a message below a lowered watermark is never cancelled 'hard'


class Entry(Struct, frozen=True, cache_hash=True, gc=False):
    due: int
    generation: int


#: A number, and 1 + the node that claimed it. Greater ones fence smaller ones.
Epoch = tuple[int, int]
NONE: Epoch = (0, 0)


class Node(Struct, frozen=True, cache_hash=True, gc=False):
    epoch: Epoch = NONE  # NONE: does not believe that it owns the queue
    in_flight: frozenset[tuple[int, Entry]] = frozenset()  # of (id, Entry as pulled)
    sent: frozenset[tuple[int, Entry]] = frozenset()  # delivered, not acked yet
    rank: int = 0  # used by the rank-offset mutant only


class State(Struct, frozen=True, cache_hash=True, gc=False):
    entries: tuple[Entry | None, ...]
    scheduled: tuple[int, ...]  # how often each id was scheduled = its newest generation
    now: int = 0
    exposed: frozenset[int] = frozenset()
    watermark: int = -1
    epoch: Epoch = NONE
    owner: int | None = None  # by the coordinator
    owners: int = 0  # how often it changed its mind
    nodes: tuple[Node, ...] = (Node(),) * len(NODES)
    forwarded: frozenset[tuple[int, int]] = frozenset()  # (id, generation)
    hard: frozenset[tuple[int, int]] = frozenset()  # cancelled: must never be delivered
    soft: frozenset[tuple[int, int]] = frozenset()  # cancelled in flight: may have been delivered
    retries: int = 0
    went_back: bool = False  # both clocks were ahead, and are right again


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])


def steps(s: State, rules: Rules, reuse: bool) -> Iterator[Step]:
    if s.now < LAST_TICK:
        yield "tick", replace(s, now=s.now + 1)
    if s.now and not s.went_back and reuse:  # with two ids that would be too many states
        yield "both clocks go back", replace(s, now=0, went_back=True)
    for i, entry in enumerate(s.entries):
        if entry is None and s.scheduled[i] < (2 if reuse else 1):
            generation = s.scheduled[i] + 1
            for due in range(s.now, min(s.now + 1, LAST_TICK) + 1):
                yield (
                    f"schedule {i} due {due}",
                    replace(
                        s,
                        entries=put(s.entries, i, Entry(due, generation)),
                        scheduled=put(s.scheduled, i, generation),
                        exposed=s.exposed - {i},
                    ),
                )
        if entry is not None:
            floor = max(s.watermark, s.now) if rules.watermark else -1
            certain = entry.due > floor and not (rules.remember_exposed and i in s.exposed)
            gone = replace(s, entries=put(s.entries, i, None), exposed=s.exposed - {i})
            if not certain:
                yield f"cancel {i}: in flight", replace(gone, soft=s.soft | {(i, entry.generation)})
                continue
            if (i, entry.generation) in s.forwarded:
                raise Broken(f"{i} cancelled for certain, though it was delivered")
            yield f"cancel {i}: cancelled", replace(gone, hard=s.hard | {(i, entry.generation)})
            if entry.due < LAST_TICK:
                yield f"reschedule {i}", replace(s, entries=put(s.entries, i, replace(entry, due=LAST_TICK)))
    if s.owners < MAX_OWNERS:
        for n in NODES:
            if s.owner != n:
                yield f"coordinator names {n}", replace(s, owner=n, owners=s.owners + 1)
    for n in NODES:
        yield from node_steps(s, n, rules, reuse)


def node_steps(s: State, n: int, rules: Rules, reuse: bool) -> Iterator[Step]:
    node = s.nodes[n]
    current = node.epoch == s.epoch != NONE

    def having(**change: Any) -> tuple[Node, ...]:
        return put(s.nodes, n, replace(node, **change))

    if s.owner == n and not current:
        # It uses the number that it read, which may be older than the latest claim (shown with one id alone).
        for read in {s.epoch[0], max(0, s.epoch[0] - 1) if reuse else s.epoch[0]} - {MAX_EPOCHS}:
            claimed = (read + 1, 1 + n if rules.own_epochs else 0)
            if claimed < s.epoch:
                continue  # it is fenced, and nothing has changed
            nodes = put(s.nodes, n, Node(epoch=claimed, sent=node.sent))
            if any(other.epoch == claimed for m, other in enumerate(nodes) if m != n):
                raise Broken("two nodes own the queue under one epoch")
            yield f"{n} read {read} and claims", replace(s, epoch=claimed, nodes=nodes)
    if node.epoch != NONE or node.sent:
        yield f"{n} dies", replace(s, nodes=put(s.nodes, n, Node()))
    if node.epoch != NONE and not current and s.owner != n:
        yield f"{n} learns that it is fenced", replace(s, nodes=having(epoch=NONE))
    if node.epoch != NONE and (current or not rules.fence):
        held = {i for i, _ in node.in_flight | node.sent}
        ready = sorted((e.due, i, e) for i, e in enumerate(s.entries) if e and e.due <= s.now)
        if rules.due_as_offset:
            batch = [(i, e) for _, i, e in ready if i not in held][:1]
        else:
            batch = [(i, e) for _, i, e in ready[node.rank : node.rank + 1]]
            if ready and not batch and not held:
                raise Broken("a due message is behind the offset and nothing is in flight")
        for i, e in batch:
            yield (
                f"{n} pulls {i}",
                replace(
                    s,
                    entries=s.entries if rules.forward_before_remove else put(s.entries, i, None),
                    watermark=max(s.watermark, e.due),
                    nodes=having(in_flight=node.in_flight | {(i, e)}, rank=node.rank + 1),
                ),
            )
    if current and s.watermark > s.now:
        below = {i for i, e in enumerate(s.entries) if e and e.due == s.watermark} if rules.lower_exposes else set()
        yield f"{n} lowers the watermark", replace(s, watermark=s.watermark - 1, exposed=s.exposed | below)
    for i, e in node.in_flight:
        if s.now < e.due and not s.went_back:
            raise Broken(f"{i} delivered early")
        if (i, e.generation) in s.hard:
            raise Broken(f"{i} delivered after it was cancelled for certain")
        rest = node.in_flight - {(i, e)}
        yield (
            f"{n} forwards {i}",
            replace(
                s, forwarded=s.forwarded | {(i, e.generation)}, nodes=having(in_flight=rest, sent=node.sent | {(i, e)})
            ),
        )
        stored = s.entries[i]
        same = stored is not None and (stored == e or not rules.compare_generation)
        if (
            stored is not None
            and same
            and (current or not rules.fence)
            and s.retries < MAX_RETRIES
            and s.now < LAST_TICK
        ):
            yield (
                f"{n} retries {i}",
                replace(
                    s,
                    entries=put(s.entries, i, replace(stored, due=s.now + 1)),
                    exposed=s.exposed | {i},
                    retries=s.retries + 1,
                    nodes=having(in_flight=rest, rank=max(0, node.rank - 1)),
                ),
            )
    for i, e in node.sent:
        stored = s.entries[i]
        removes = stored is not None
        if stored is not None and rules.compare_generation:
            removes = stored == e
        yield (
            f"{n} acks {i}",
            replace(
                s,
                entries=put(s.entries, i, None) if removes else s.entries,
                nodes=having(sent=node.sent - {(i, e)}, rank=max(0, node.rank - 1)),
            ),
        )


def lost(s: State) -> str | None:
    for i, newest in enumerate(s.scheduled):
        for generation in range(1, newest + 1):
            entry = s.entries[i]
            pending = entry is not None and entry.generation == generation
            if not pending and (i, generation) not in s.forwarded | s.hard | s.soft:
                return f"{i} is gone and was never delivered"
    return None


def check(rules: Rules, ids: int, reuse: bool, limit: int) -> tuple[str | None, str, int]:
    start = State(entries=(None,) * ids, scheduled=(0,) * ids)
    return search(start, lambda s: steps(s, rules, reuse), lost, limit)
