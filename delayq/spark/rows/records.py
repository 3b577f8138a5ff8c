"""Existing messages as rows of a table, and the comparison of a row with them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from delayq.client.scheduling.encoding import asked_due
from delayq.domain.codec import BODY_BYTES, BODY_JSON, RELATIVE, Record, due_head, encode
from delayq.domain.message import RUN_PROPERTY, Limits, Message
from delayq.store.commands import Found


def _body(record: Record) -> str:
    if record.flags & BODY_BYTES:
        return base64.b64encode(record.payload).decode()
    return record.payload.decode(errors="replace")  # it is valid, unless somebody has edited Redis


def _body_type(record: Record) -> str:
    if record.flags & BODY_BYTES:
        return "base64"
    return "json" if record.flags & BODY_JSON else "text"


def _micro(ms: int | None) -> int | None:
    return None if ms is None else ms * 1000


_OF_RECORD: Final[Mapping[str, Callable[[Record], Any]]] = {
    "topic": lambda record: record.topic,
    "tags": lambda record: record.tags or None,
    "keys": lambda record: list(record.keys),
    "body": _body,
    "body_type": _body_type,
    "properties": lambda record: list(record.properties.items()),
    "ordering_key": lambda record: record.ordering_key or None,
    "asked_due": lambda record: _micro(record.asked),
    "first_due": lambda record: _micro(record.first_asked),
    "max_attempts": lambda record: record.max_attempts,
    "expire_after": lambda record: record.own_expire_after,
}
_OF_FOUND: Final[Mapping[str, Callable[[Found], Any]]] = {
    "id": lambda one: one.id,
    "due": lambda one: _micro(one.due),
    "attempts": lambda one: one.attempts,
    "queue": lambda one: one.queue,
    "state": lambda one: one.state,
    "reason": lambda one: one.reason if one.record is not None else one.reason or "corrupt record",
    "dead_time": lambda one: _micro(one.ended),
}
#: All columns. The columns of the record are null where it is damaged.
COLUMNS: Final = frozenset((*_OF_RECORD, *_OF_FOUND))


def batch_of(messages: Sequence[Found], schema: pa.Schema) -> pa.RecordBatch:
    """The messages, with the columns of the schema."""
    columns = []
    for field in schema:
        if field.name in _OF_FOUND:
            of_found = _OF_FOUND[field.name]
            values = [of_found(one) for one in messages]
        else:
            of_record = _OF_RECORD[field.name]
            values = [None if one.record is None else of_record(one.record) for one in messages]
        columns.append(pa.array(values, type=field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_NO_LIMITS = Limits(body=2**40)
_UNMADE: Final = b"0" * 7  # the generation of a record that is not in a pool


def same_message(record: Record, row: Message) -> bool:
    """Return whether the message in the pool is the one of this row, except for the run that scheduled it.

    This holds also if its due time was relative and the row has the resulting absolute time, as in an export.
    """
    properties = {name: value for name, value in row.properties.items() if name != RUN_PROPERTY}
    if (run := record.properties.get(RUN_PROPERTY)) is not None:
        properties[RUN_PROPERTY] = run
    due = asked_due(row)
    if due is None:
        if not record.flags & RELATIVE:
            return False
    elif due not in (record.first_asked, record.asked):
        return False
    wanted = Record(_UNMADE + encode(msgspec.structs.replace(row, properties=properties), _NO_LIMITS, due_head(0)))
    one, other = wanted.call, record.call
    return one[0] | RELATIVE == other[0] | RELATIVE and one[1:] == other[1:]
