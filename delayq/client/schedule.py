"""Scheduling messages: which queue, which id, how many in one script, and what became of each.

Written for bulk: the work here is done while the server works on what was sent before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from delayq.client.plan import CHUNK, Context, Plan, find_places
from delayq.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.errors import Conflict, DelayqError, InvalidMessage, PastDue, StoreError
from delayq.message import Limits, Message, State, level_delay
from delayq.routes import Routes
from delayq.store import commands
from delayq.store.commands import MOVED, Answers, Command, Retention
from delayq.store.keys import Layout, Layouts, ids_ending, new_id, queue_keys

__all__ = [
    "Encoded",
    "Outcome",
    "Ready",
    "Scheduled",
    "asked_due",
    "encode_all",
    "schedule_encoded",
    "schedule_ready",
    "spread",
    "whole_id",
]

CHUNK_BYTES: Final = 2 * 1024 * 1024


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """An accepted message: the id to use from now on, its queue, its due (Unix ms).

    `created` is False when this very message was there before; `state` is then 'scheduled', 'delivered', or 'dead' for a
    dead letter, and `due` the one first asked for (None when delivered). `window` is that over which this call spread it.
    """

    id: str
    queue: int
    due: int | None
    state: str = State.SCHEDULED
    created: bool = True
    window: int | None = None


Outcome = Scheduled | DelayqError


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A message, checked and encoded (behind `due_head`): what a script takes of it, whichever queue it goes to.

    `id` is whole; it is None where the message brings neither id nor ordering key, so that any queue will do. Then `when` is
    not yet spread over the `window`.
    """

    kind: str
    id: str | None
    body: bytes
    when: int  # ms
    window: int | None = None

    def spread_by(self, id: str) -> tuple[int, bytes]:
        """The time and the body for an id that was made just now."""
        assert self.window is not None
        when = self.when + spread(id, self.window)
        return when, due_head(when) + self.body[DUE_HEAD_LENGTH:]


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
    """Messages of one queue, for one script."""

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

    def command(self, retention: Retention) -> Command[Answers]:
        return commands.schedule(
            queue_keys(self.queue), "".join(self.kinds), self.ids, self.bodies, retention=retention
        )


def encode_all(
    messages: Iterable[Message], limits: Limits, routes: Routes, now: int, *, refuse_past: bool = False
) -> Iterator[Encoded | InvalidMessage]:
    """Each message checked and encoded, or what is wrong with it; `now` (Unix ms) bounds dates."""
    at = "p" if refuse_past else "a"
    for message in messages:
        try:
            message.validate(limits, now)
            routes.check(message)
            id = message.id
            kind = at
            when = message.expect_date
            if when is None:
                kind = "r"
                when = message.delay_time
                if when is None:
                    when = level_delay(limits.delay_levels, message.delay_level)
            if id is not None:
                kind, id = kind.upper(), whole_id(id, message.ordering_key)
            elif message.ordering_key:
                id = whole_id(None, message.ordering_key)
            window = message.window
            if window is not None and id is not None:
                when += spread(id, window)
            yield Encoded(kind, id, encode(message, limits, due_head(when)), when, window)
        except InvalidMessage as error:
            yield error


def schedule_encoded(context: Context, given: Iterable[Encoded | InvalidMessage]) -> Plan[list[Outcome]]:
    """Schedule messages; in order, what became of each. A bad one never stops the others.

    They are drawn from `given` while the server works on those before them.
    """
    outcomes: list[Any] = []
    batches: list[_Batch] = []
    windows: dict[int, int] = {}
    answers = yield _commands(_by_queue(context.layouts, given, outcomes, windows), batches, context.retention)
    moved = _place(batches, answers, outcomes)
    yield from _schedule_moved(context, moved, outcomes)
    for index, window in windows.items():
        if isinstance(outcome := outcomes[index], Scheduled):
            outcomes[index] = msgspec.structs.replace(outcome, window=window)
    return outcomes


def schedule_ready(context: Context, given: Iterable[Ready], *, refuse_past: bool = False) -> Plan[dict[int, Outcome]]:
    """Schedule what is encoded already: what became, by their places, of those that were not scheduled just so."""
    outcomes: dict[int, Outcome] = {}
    batches: list[_Batch] = []
    answers = yield _commands(_ready_batches(given, "P" if refuse_past else "A"), batches, context.retention)
    moved = _place(batches, answers, outcomes, others_only=True)
    yield from _schedule_moved(context, moved, outcomes)
    return outcomes


def _schedule_moved(context: Context, moved: list[_Moved], outcomes: _Outcomes) -> Plan[None]:
    """Schedule what closed queues did not take in the next layout, as often as it takes."""
    while moved:
        context.layouts.shut.update(one.queue for one in moved)
        places = yield from find_places(context, ((one.id, one.queue) for one in moved))
        batches = _regroup(moved, places, outcomes)
        answers = yield [batch.command(context.retention) for batch in batches]
        moved = _place(batches, answers, outcomes)


def _commands(batches: Iterable[_Batch], drawn: list[_Batch], retention: Retention) -> Iterator[Command[Answers]]:
    """The script call of each batch; the batches, for the answers, in `drawn`."""
    for batch in batches:
        drawn.append(batch)
        yield batch.command(retention)


def _by_queue(
    layouts: Layouts, given: Iterable[Encoded | InvalidMessage], outcomes: list[Any], windows: dict[int, int]
) -> Iterator[_Batch]:
    """The messages by their queues, each batch when it is full; `outcomes` grows by a place for each of them.

    `windows` gets those over which messages are spread, by their places.
    """
    known = layouts.known
    # Where to ask for an id that the caller gave, and for one that is made here.
    place, place_new = known[0].queue_of, known[0].queue_of
    if len(known) > 1:
        place_new = layouts.place_new
    shared: _Batch | None = None  # messages for which any queue will do share a suffix, so one script
    by_queue: dict[int, _Batch] = {}
    for index, one in enumerate(given):
        if isinstance(one, InvalidMessage):
            outcomes.append(one)
            continue
        outcomes.append(None)
        id, body, when = one.id, one.body, one.when
        if one.window is not None:
            windows[index] = one.window
        if id is None:
            if shared is None:
                suffix = Layout.random_suffix()
                shared = _Batch(place_new(suffix), suffix)
            batch = shared
            id = next(batch.made)
            if one.window is not None:
                when, body = one.spread_by(id)
        else:
            queue = place(id) if one.kind.isupper() else place_new(id)
            found = by_queue.get(queue)
            batch = found if found is not None else by_queue.setdefault(queue, _Batch(queue))
        batch.kinds.append(one.kind)  # what `add` does, without a call for each message
        batch.ids.append(id)
        batch.bodies.append(body)
        batch.places.append((index, when))
        batch.size += len(body)
        if len(batch.places) == CHUNK or batch.size >= CHUNK_BYTES:
            if batch is shared:
                shared = None
            else:
                del by_queue[batch.queue]
            yield batch
    if shared is not None:
        yield shared
    yield from by_queue.values()


def _ready_batches(given: Iterable[Ready], kind: str) -> Iterator[_Batch]:
    for ready in given:
        batch = _Batch(ready.queue)
        batch.kinds = [kind] * len(ready.ids)
        batch.ids, batch.bodies, batch.places = ready.ids, ready.bodies, ready.places
        yield batch


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


def _place(
    batches: list[_Batch], answers: list[Any], outcomes: _Outcomes, *, others_only: bool = False
) -> list[_Moved]:
    """Put every outcome where its message stands in the call; those that are to be asked for elsewhere.

    With `others_only`, not of those that were scheduled just so.
    """
    moved: list[_Moved] = []
    for batch, answer in zip(batches, answers, strict=True):
        queue = batch.queue
        if isinstance(answer, StoreError):
            for id, (index, _) in zip(batch.ids, batch.places, strict=True):
                outcomes[index] = answer.about(id)
            continue
        if not others_only:
            now = answer.now
            for kind, id, (index, when) in zip(batch.kinds, batch.ids, batch.places, strict=True):
                absolute = kind in "aApP"
                outcomes[index] = Scheduled(id, queue, (when if when > now else now) if absolute else now + when)
        for position, (status, due) in answer.others.items():
            (index, when), id = batch.places[position], batch.ids[position]
            if status == MOVED:
                moved.append(_Moved(queue, batch.kinds[position], id, batch.bodies[position], index, when))
            else:
                outcomes[index] = _outcome(id, queue, status, due)
    return moved


def _outcome(id: str, queue: int, status: str, due: int | None) -> Outcome:
    """What became of a message that was not scheduled just so."""
    if status == "live":
        return Scheduled(id, queue, due, created=False)
    if status == State.DEAD:
        return Scheduled(id, queue, due, State.DEAD, created=False)
    if status == State.DELIVERED:
        return Scheduled(id, queue, None, State.DELIVERED, created=False)
    if status == "invalid":
        return InvalidMessage("delayTime", "the due lies too far ahead")
    if status == "past":
        return PastDue(id)
    if status == "conflict":
        return Conflict(id, State.DELIVERED if due is None else "")
    return Conflict(id, status)


def whole_id(id: str | None, ordering_key: str) -> str:
    """The id as it is kept: one is made if there is none, and an ordering key puts its hash behind it."""
    whole = id if id is not None else new_id()
    if ordering_key:
        whole = Layout.keyed_id(whole, ordering_key)
        if len(whole) > 128:
            raise InvalidMessage("id", "at most 123 characters beside an orderingKey, whose hash is put behind it")
    return whole


def asked_due(message: Message) -> int | None:
    """The due (Unix ms) that a message with an id asks for; None if that is relative."""
    if message.expect_date is None or message.window is None:
        return message.expect_date
    assert message.id is not None
    return message.expect_date + spread(message.id, message.window)


def spread(id: str, window: int) -> int:
    """By how many ms a due is later within its window: the first 8 bytes of the id's BLAKE2b, modulo the window.

    A suffix that chooses the queue is no part of it: an ordering key, or another layout, changes no due.
    """
    own = id[:-5] if Layout.has_suffix(id) else id
    return int.from_bytes(blake2b(own.encode()).digest()[:8]) % window
