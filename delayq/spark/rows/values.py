"""Values of Arrow columns, as messages have them: times in ms, nested values as JSON knows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from delayq.errors import InvalidMessage
from delayq.times import parse_duration, parse_instant

__all__ = ["Errors", "dues", "durations", "plain"]

#: Rows whose value is wrong, by their place in the batch.
Errors = dict[int, InvalidMessage]

#: How the HTTP API names the fields.
_NAMES: Final = {"delay_time": "delayTime", "expire_after": "expireAfter", "window": "window"}
_PER_MS: Final = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - in the zone of whoever reads it


def dues(column: pa.Array, zone: Callable[[], tzinfo], errors: Errors) -> list[int | None]:
    """Unix ms of timestamps, numbers and texts. What is finer than a ms is rounded up, so that nothing fires early.

    A timestamp without a zone is one of `zone`, as everywhere in Spark; as in Java, a time that a clock put forward
    leaves out is as much later, and of a time that comes twice the first one is meant.
    """
    type = column.type
    if not pa.types.is_timestamp(type):
        return _whole_or_text(column, "expectDate", parse_instant, errors)
    if type.tz is not None:
        return _milliseconds(column)
    here = zone()
    return [None if ms is None else _instant(ms, here) for ms in _milliseconds(column)]


def durations(column: pa.Array, name: str, errors: Errors) -> list[int | None]:
    """ms of intervals, numbers and texts; what is finer is rounded up."""
    if pa.types.is_duration(column.type):
        return _milliseconds(column)
    return _whole_or_text(column, _NAMES[name], parse_duration, errors)


def _milliseconds(column: pa.Array) -> list[int | None]:
    unit = _PER_MS[column.type.unit]
    numbers = column.cast(pa.int64()).to_pylist()
    if unit == 0:
        return [None if number is None else number * 1000 for number in numbers]
    return [None if number is None else -(-number // unit) for number in numbers]


def _instant(ms: int, zone: tzinfo) -> int:
    seconds, rest = divmod(ms, 1000)
    try:
        local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone)
        return int(local.timestamp()) * 1000 + rest
    except (ValueError, OverflowError):
        return ms  # beyond all limits, with or without a zone


def _whole_or_text(column: pa.Array, field: str, parse: Callable[[str], int], errors: Errors) -> list[int | None]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_integer(column.type):
        return values
    for row, text in enumerate(values):
        if text is None:
            continue
        try:
            text = text.strip()
            values[row] = int(text) if text.isascii() and text.removeprefix("-").isdecimal() else parse(text)
        except ValueError as error:
            values[row] = None
            errors.setdefault(row, InvalidMessage(field, f"{error}, not {text[:100]!r}"))
    return values


def plain(column: pa.Array) -> list[Any]:
    """Nested values as JSON has them.

    Instants are texts in UTC, whatever the zone of the session, so that the same row is always the same message.
    """
    return [_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())  # a number with all its digits
    return value
