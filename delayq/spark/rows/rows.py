"""Rows of a table as messages: Arrow in, `Message` out, and the mistakes of invalid rows."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator
from datetime import tzinfo
from itertools import repeat
from typing import Any, Final

import msgspec
import pyarrow as pa

from delayq.base.errors import InvalidMessage
from delayq.domain.message import RUN_PROPERTY, Message
from delayq.spark.options import WriteOptions
from delayq.spark.rows.columns import FIELDS, field_names, field_values
from delayq.spark.rows.ids import row_ids
from delayq.spark.rows.json_values import Errors
from delayq.spark.rows.origin import fields_of

#: A row with several mistakes is rejected for the first one: for its due time before its content.
_IN_ORDER: Final = sorted(FIELDS, key=lambda name: name in ("body", "properties"))
_NO_ID: Final = InvalidMessage("id", "is null: every row needs its own id")
_NO_DUE: Final = InvalidMessage("expectDate", "is null: every row needs its time")
_NO_TOPIC: Final = InvalidMessage("topic", "is null, and there is no option topic")


def messages_of(
    batch: pa.RecordBatch, options: WriteOptions, zone: Callable[[], tzinfo]
) -> Iterator[Message | InvalidMessage]:
    """Return each row as a message, or its mistake; not yet checked against the limits."""
    batch = fields_of(batch)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        yield from _messages_beside_bad_texts(batch, options, zone)
        return
    batch = batch.rename_columns(field_names(batch.schema.names, options.id_columns))
    errors: Errors = {}
    given = {
        name: field_values(batch.column(name), name, zone, errors) for name in _IN_ORDER if name in batch.schema.names
    }
    topics = _or(given.get("topic"), options.topic)
    if options.id_columns:
        given["id"] = row_ids([batch.column(name) for name in field_names(options.id_columns)], topics)
    if "body_type" in given and "body" in given:
        given["body"] = _typed(given["body"], given["body_type"], errors)
    run = {RUN_PROPERTY: options.run} if options.run else {}
    nothing = repeat(None)
    rows = zip(
        given["id"],
        topics,
        given.get("body", nothing),
        given.get("delay_time", nothing),
        given.get("expect_date", nothing),
        given.get("delay_level", nothing),
        _or(given.get("tags"), options.tags),
        given.get("keys", nothing),
        given.get("properties", nothing),
        given.get("ordering_key", nothing),
        given.get("max_attempts", nothing),
        given.get("expire_after", nothing),
        _or(given.get("window"), options.window),
        strict=False,
    )
    for number, row in enumerate(rows):
        id, topic, body, delay, date, level, tags, keys, properties, ordering, attempts, expire, window = row
        if number in errors:
            yield errors[number]
        elif id is None:
            yield _NO_ID
        elif not topic:
            yield _NO_TOPIC
        elif delay is None and date is None and level is None:
            yield _NO_DUE
        else:
            yield Message(
                topic=topic,
                body="" if body is None else body,
                delay_time=delay,
                expect_date=date,
                delay_level=level,
                tags=tags or "",
                keys=keys or (),
                properties=run | properties if properties else run,
                id=id,
                ordering_key=ordering or "",
                max_attempts=attempts,
                expire_after=expire,
                window=window,
                again=options.again,
            )


def _messages_beside_bad_texts(
    batch: pa.RecordBatch, options: WriteOptions, zone: Callable[[], tzinfo]
) -> Iterator[Message | InvalidMessage]:
    """Spark allows any bytes in texts: a row with one that is not UTF-8 is invalid, and the others are unaffected."""
    wrong = {row: name for row in range(batch.num_rows) if (name := _bad_text(batch.slice(row, 1)))}
    good = batch.take(pa.array([row for row in range(batch.num_rows) if row not in wrong], pa.int64()))
    others = messages_of(good, options, zone)
    for row in range(batch.num_rows):
        yield InvalidMessage(wrong[row], "is not valid UTF-8") if row in wrong else next(others)


def _bad_text(row: pa.RecordBatch) -> str | None:
    """Return the first column of a single row that is not UTF-8."""
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return str(name)
    return None


def _or(values: list[Any] | None, constant: str | int | None) -> Any:
    if values is None:
        return repeat(constant)
    return [constant if value is None else value for value in values] if constant else values


def _typed(bodies: list[Any], types: list[str | None], errors: Errors) -> list[Any]:
    """The bodies, read by their column `body_type`."""
    typed = []
    for number, (body, type) in enumerate(zip(bodies, types, strict=True)):
        try:
            typed.append(body if body is None or type is None else _READERS[type](body))
        except (KeyError, TypeError):
            typed.append(None)
            errors.setdefault(
                number, InvalidMessage("bodyType", "is 'text', 'json' or 'base64', of a body that is text")
            )
        except ValueError as error:
            typed.append(None)
            errors.setdefault(number, InvalidMessage("body", f"is not {type}: {error}"))
    return typed


def _text(body: str) -> str:
    if not isinstance(body, str):
        raise TypeError
    return body


def _json(body: str) -> msgspec.Raw:
    return msgspec.Raw(_text(body).encode())  # its numbers keep their digits


def _base64(body: str) -> bytes:
    return binascii.a2b_base64(_text(body), strict_mode=True)


_READERS: Final[dict[str, Callable[[Any], Any]]] = {"text": _text, "json": _json, "base64": _base64}
