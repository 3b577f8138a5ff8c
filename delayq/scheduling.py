"""Scheduling messages: which queue, which id, how many in one script, and what became of each.

Written for bulk: the work here is done while the server works on what was sent before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from delayq.codec import due_head, encode, ids_ending, new_id
from delayq.errors import Conflict, DelayqError, InvalidMessage, StoreError
from delayq.message import Message, State
from delayq.plan import Context, Plan
from delayq.store import commands
from delayq.store.commands import Answers, Command
from delayq.store.keys import Layout, queue_keys

__all__ = ["CHUNK", "Outcome", "Scheduled", "level_delay", "schedule"]

CHUNK: Final = 500
CHUNK_BYTES: Final = 2 * 1024 * 1024


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """An accepted message: the id to use from now on, its queue, its due (Unix ms).

    `created` is False when this very message was there before; `state` is then 'scheduled' or 'delivered', and
    `due` the one first asked for (None when delivered).
    """

    id: str
    queue: int
    due: int | None
    state: str = State.SCHEDULED
    created: bool = True


Outcome = Scheduled | DelayqError


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


def schedule(context: Context, messages: Iterable[Message], now: int) -> Plan[list[Outcome]]:
    """Schedule messages; in order, what became of each. A bad one never stops the others."""
    outcomes: list[Any] = []
    sent: list[_Batch] = []
    answers = yield _commands(context, messages, now, outcomes, sent)
    for batch, answer in zip(sent, answers, strict=True):
        if isinstance(answer, StoreError):
            for id, (index, _) in zip(batch.ids, batch.places, strict=True):
                outcomes[index] = answer.about(id)
    return outcomes


def _commands(
    context: Context, messages: Iterable[Message], now: int, outcomes: list[Any], sent: list[_Batch]
) -> Iterator[Command[Any]]:
    limits, layout, routes = context.limits, context.layout, context.routes
    shared: _Batch | None = None  # messages that bring neither id nor ordering key share a suffix, so one script
    by_queue: dict[int, _Batch] = {}
    for index, message in enumerate(messages):
        outcomes.append(None)
        try:
            message.validate(limits, now)
            routes.check(message.topic)
            id = message.id
            when = message.expect_date
            kind = "a"
            if when is None:
                kind = "r"
                when = message.delay_time
                if when is None:
                    when = level_delay(limits.delay_levels, message.delay_level)
            body = encode(message, limits, due_head(when))
            if id is None and not message.ordering_key:
                if shared is None:
                    suffix = layout.random_suffix()
                    shared = _Batch(layout.queue_of(suffix), suffix)
                batch = shared
                whole = next(batch.made)
            else:
                whole = _whole_id(layout, id, message.ordering_key)
                queue = layout.queue_of(whole)
                found = by_queue.get(queue)
                batch = found if found is not None else by_queue.setdefault(queue, _Batch(queue))
        except InvalidMessage as error:
            outcomes[index] = error
            continue
        batch.kinds.append(kind if id is None else kind.upper())
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
            yield _command(batch, context, outcomes)
    for batch in ([shared] if shared is not None else []) + list(by_queue.values()):
        sent.append(batch)
        yield _command(batch, context, outcomes)


def _command(batch: _Batch, context: Context, outcomes: list[Any]) -> Command[None]:
    """The script call for a batch. Its outcomes are put in place when its reply is read, not at the end of all."""
    keys = queue_keys(batch.queue)
    command = commands.schedule(keys, "".join(batch.kinds), batch.ids, batch.bodies, retention=context.retention)

    def read(reply: Any) -> None:
        _place(batch, command.read(reply), outcomes)

    return Command(command.script, command.keys, command.args, read)


def _place(batch: _Batch, answers: Answers, outcomes: list[Any]) -> None:
    queue, now = batch.queue, answers.now
    for kind, id, (index, when) in zip(batch.kinds, batch.ids, batch.places, strict=True):
        absolute = kind == "a" or kind == "A"
        outcomes[index] = Scheduled(id, queue, (when if when > now else now) if absolute else now + when)
    for position, (status, due) in answers.others.items():
        index, id = batch.places[position][0], batch.ids[position]
        if status == "live":
            outcomes[index] = Scheduled(id, queue, due, created=False)
        elif status == "delivered":
            outcomes[index] = Scheduled(id, queue, None, State.DELIVERED, created=False)
        elif status == "invalid":
            outcomes[index] = InvalidMessage("delayTime", "the due lies too far ahead")
        else:
            outcomes[index] = Conflict(id, cancelled=status == "cancelled")


def _whole_id(layout: Layout, id: str | None, ordering_key: str) -> str:
    whole = id if id is not None else new_id()
    if ordering_key:
        whole = layout.keyed_id(whole, ordering_key)
        if len(whole) > 128:
            raise InvalidMessage("id", "at most 123 characters beside an orderingKey, whose hash is put behind it")
    return whole


def level_delay(levels: Sequence[int], level: int | None) -> int:
    """The delay of a level, in ms; a level above the last is the last."""
    assert level is not None
    return levels[min(level, len(levels)) - 1]
