"""Scheduling messages: which queue, which id, how many in one script, and what became of each.

Written for bulk: the work here is done while the server works on what was sent before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from delayq.client.placement import CHUNK, find_places
from delayq.client.plan import Context, Plan
from delayq.codec import due_head, encode
from delayq.errors import Conflict, DelayqError, InvalidMessage, PastDue, StoreError
from delayq.ids import ids_ending, new_id
from delayq.message import Message, State
from delayq.store import commands
from delayq.store.commands import MOVED, Answers, Command
from delayq.store.keys import Layout, queue_keys

__all__ = ["Outcome", "Ready", "Scheduled", "level_delay", "schedule", "schedule_ready", "whole_id"]

CHUNK_BYTES: Final = 2 * 1024 * 1024


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """An accepted message: the id to use from now on, its queue, its due (Unix ms).

    `created` is False when this very message was there before; `state` is then 'scheduled', 'delivered', or 'dead' for a
    dead letter, and `due` the one first asked for (None when delivered).
    """

    id: str
    queue: int
    due: int | None
    state: str = State.SCHEDULED
    created: bool = True


Outcome = Scheduled | DelayqError


class Ready(NamedTuple):
    """Up to CHUNK messages of one queue, checked and encoded (behind `due_head`), with ids of the caller's and dates.

    `places` are where they stand in the call, with their dues (ms).
    """

    queue: int
    ids: list[str]
    bodies: list[bytes]
    places: list[tuple[int, int]]


class _Moved(NamedTuple):
    """A message that a closed queue did not have: to be scheduled in the next layout."""

    queue: int  # that was closed
    kind: str
    id: str
    body: bytes
    place: int  # in the call
    when: int  # ms


#: By places in the call.
_Outcomes = list[Any] | dict[int, Any]


class _Batch:
    """Messages of one queue on their way into one script."""

    __slots__ = ("bodies", "ids", "kinds", "made", "places", "queue", "size")

    def __init__(self, queue: int, suffix: str = "") -> None:
        self.queue = queue
        self.kinds: list[str] = []
        self.ids: list[str] = []
        self.bodies: list[bytes] = []
        self.places: list[tuple[int, int]] = []  # index in the call, ms
        self.size = 0
        self.made: Iterator[str] = ids_ending(suffix) if suffix else iter(())

    def add(self, kind: str, id: str, body: bytes, index: int, when: int) -> None:
        self.kinds.append(kind)
        self.ids.append(id)
        self.bodies.append(body)
        self.places.append((index, when))
        self.size += len(body)

    @property
    def full(self) -> bool:
        return len(self.places) >= CHUNK or self.size >= CHUNK_BYTES


_Put = Callable[[_Batch, Answers, _Outcomes, list[_Moved]], None]


def schedule(
    context: Context, messages: Iterable[Message], now: int, *, refuse_past: bool = False
) -> Plan[list[Outcome]]:
    """Schedule messages; in order, what became of each. A bad one never stops the others.

    With `refuse_past`, one whose `expect_date` has passed is a PastDue, unless it was there before.
    """
    outcomes: list[Any] = []
    sent: list[_Batch] = []
    moved: list[_Moved] = []
    at = "p" if refuse_past else "a"
    answers = yield _commands(context, messages, now, at, outcomes, sent, moved)
    _place_errors(sent, answers, outcomes)
    yield from _schedule_moved(context, moved, outcomes)
    return outcomes


def schedule_ready(
    context: Context, batches: Iterable[Ready], *, refuse_past: bool = False
) -> Plan[dict[int, Outcome]]:
    """Schedule what is encoded already: what became, by their places, of those that were not scheduled just so."""
    outcomes: dict[int, Outcome] = {}
    sent: list[_Batch] = []
    moved: list[_Moved] = []
    kind = "P" if refuse_past else "A"

    def commands() -> Iterator[Command[Any]]:
        for ready in batches:
            batch = _Batch(ready.queue)
            batch.kinds = [kind] * len(ready.ids)
            batch.ids, batch.bodies, batch.places = ready.ids, ready.bodies, ready.places
            sent.append(batch)
            yield _command(batch, context, outcomes, moved, _place_others)

    answers = yield commands()
    _place_errors(sent, answers, outcomes)
    yield from _schedule_moved(context, moved, outcomes)
    return outcomes


def _schedule_moved(context: Context, moved: list[_Moved], outcomes: _Outcomes) -> Plan[None]:
    """Schedule what closed queues did not take in the next layout, as often as it takes."""
    while moved:
        context.layouts.shut.update(one.queue for one in moved)
        places = yield from find_places(context, ((one.id, one.queue) for one in moved))
        sent = _regroup(moved, places, outcomes)
        again: list[_Moved] = []
        answers = yield [_command(batch, context, outcomes, again) for batch in sent]
        _place_errors(sent, answers, outcomes)
        moved = again


def _place_errors(sent: list[_Batch], answers: list[Any], outcomes: _Outcomes) -> None:
    for batch, answer in zip(sent, answers, strict=True):
        if isinstance(answer, StoreError):
            for id, (index, _) in zip(batch.ids, batch.places, strict=True):
                outcomes[index] = answer.about(id)


def _regroup(moved: list[_Moved], places: list[int | StoreError], outcomes: _Outcomes) -> list[_Batch]:
    """The messages by the queues that they are to be scheduled in next."""
    batches: list[_Batch] = []
    by_queue: dict[int, _Batch] = {}
    for one, place in zip(moved, places, strict=True):
        if isinstance(place, StoreError):
            outcomes[one.place] = place.about(one.id)
            continue
        batch = by_queue.get(place)
        if batch is None or batch.full:
            batch = by_queue[place] = _Batch(place)
            batches.append(batch)
        batch.add(one.kind, one.id, one.body, one.place, one.when)
    return batches


def _commands(
    context: Context, messages: Iterable[Message], now: int, at: str, outcomes: list[Any], sent: list[_Batch],
    moved: list[_Moved],
) -> Iterator[Command[Any]]:  # fmt: skip
    limits, routes = context.limits, context.routes
    known = context.layouts.known
    # Where to ask for an id that the caller gave, and for one that is made here.
    place, place_new = known[0].queue_of, known[0].queue_of
    if len(known) > 1:
        place_new = context.layouts.place_new
    shared: _Batch | None = None  # messages that bring neither id nor ordering key share a suffix, so one script
    by_queue: dict[int, _Batch] = {}
    for index, message in enumerate(messages):
        outcomes.append(None)
        try:
            message.validate(limits, now)
            routes.check(message)
            id = message.id
            when = message.expect_date
            kind = at
            if when is None:
                kind = "r"
                when = message.delay_time
                if when is None:
                    when = level_delay(limits.delay_levels, message.delay_level)
            body = encode(message, limits, due_head(when))
            if id is None and not message.ordering_key:
                if shared is None:
                    suffix = Layout.random_suffix()
                    shared = _Batch(place_new(suffix), suffix)
                batch = shared
                whole = next(batch.made)
            else:
                whole = whole_id(id, message.ordering_key)
                queue = place_new(whole) if id is None else place(whole)
                found = by_queue.get(queue)
                batch = found if found is not None else by_queue.setdefault(queue, _Batch(queue))
        except InvalidMessage as error:
            outcomes[index] = error
            continue
        batch.kinds.append(kind if id is None else kind.upper())  # what `add` does, without a call for each message
        batch.ids.append(whole)
        batch.bodies.append(body)
        batch.places.append((index, when))
        batch.size += len(body)
        if len(batch.places) == CHUNK or batch.size >= CHUNK_BYTES:
            if batch is shared:
                shared = None
            else:
                del by_queue[batch.queue]
            sent.append(batch)
            yield _command(batch, context, outcomes, moved)
    for batch in ([shared] if shared is not None else []) + list(by_queue.values()):
        sent.append(batch)
        yield _command(batch, context, outcomes, moved)


def _command(
    batch: _Batch, context: Context, outcomes: _Outcomes, moved: list[_Moved], put: _Put | None = None
) -> Command[None]:
    """The script call for a batch. Its outcomes are `put` in place when its reply is read, not at the end of all."""
    put = put or _place
    keys = queue_keys(batch.queue)
    command = commands.schedule(keys, "".join(batch.kinds), batch.ids, batch.bodies, retention=context.retention)

    def read(reply: Any) -> None:
        put(batch, command.read(reply), outcomes, moved)

    return Command(command.script, command.keys, command.args, read)


def _place(batch: _Batch, answers: Answers, outcomes: _Outcomes, moved: list[_Moved]) -> None:
    queue, now = batch.queue, answers.now
    for kind, id, (index, when) in zip(batch.kinds, batch.ids, batch.places, strict=True):
        absolute = kind in "aApP"
        outcomes[index] = Scheduled(id, queue, (when if when > now else now) if absolute else now + when)
    _place_others(batch, answers, outcomes, moved)


def _place_others(batch: _Batch, answers: Answers, outcomes: _Outcomes, moved: list[_Moved]) -> None:
    queue = batch.queue
    for position, (status, due) in answers.others.items():
        (index, when), id = batch.places[position], batch.ids[position]
        if status == "live":
            outcomes[index] = Scheduled(id, queue, due, created=False)
        elif status == State.DEAD:
            outcomes[index] = Scheduled(id, queue, due, State.DEAD, created=False)
        elif status == State.DELIVERED:
            outcomes[index] = Scheduled(id, queue, None, State.DELIVERED, created=False)
        elif status == "invalid":
            outcomes[index] = InvalidMessage("delayTime", "the due lies too far ahead")
        elif status == "past":
            outcomes[index] = PastDue(id)
        elif status == MOVED:
            moved.append(_Moved(queue, batch.kinds[position], id, batch.bodies[position], index, when))
        elif status == "conflict":
            outcomes[index] = Conflict(id, State.DELIVERED if due is None else "")
        else:
            outcomes[index] = Conflict(id, status)


def whole_id(id: str | None, ordering_key: str) -> str:
    """The id as it is kept: one is made if there is none, and an ordering key puts its hash behind it."""
    whole = id if id is not None else new_id()
    if ordering_key:
        whole = Layout.keyed_id(whole, ordering_key)
        if len(whole) > 128:
            raise InvalidMessage("id", "at most 123 characters beside an orderingKey, whose hash is put behind it")
    return whole


def level_delay(levels: Sequence[int], level: int | None) -> int:
    """The delay of a level, in ms; a level above the last is the last."""
    assert level is not None
    return levels[min(level, len(levels)) - 1]
