"""Values of Arrow columns as fields of messages: times in ms, integers, ids, keys and properties.

Each function accepts all types that tables have for such a field, including texts, because CSV has nothing else. An
invalid value makes its row invalid, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from delayq.base.errors import InvalidMessage
from delayq.base.times import parse_duration, parse_instant
from delayq.spark.rows.json_values import PER_SECOND, Errors, each_row, is_list, is_text, json_values

#: How the HTTP API names the fields.
_NAMES: Final = {
    "delay_time": "delayTime", "delay_level": "delayLevel", "expire_after": "expireAfter",
    "max_attempts": "maxAttempts", "window": "window",
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - in the zone of whoever reads it
_DAY: Final = 86_400_000


def texts(column: pa.Array) -> list[Any]:
    """Return texts, or bytes, unchanged."""
    values: list[Any] = column.to_pylist()
    return values


def identifiers(column: pa.Array, errors: Errors) -> list[str | None]:
    """Return texts, and integers as their digits."""
    if pa.types.is_decimal(column.type):
        numbers = _whole_decimals(column, "id", errors)
        return [None if number is None else str(number) for number in numbers]
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found


def keys(column: pa.Array) -> list[tuple[Any, ...] | None]:
    """Return arrays of texts, and texts with spaces between the keys."""
    values = column.to_pylist()
    if is_list(column.type):
        return [None if some is None else tuple(some) for some in values]
    return [None if text is None else tuple(text.split()) for text in values]


def bodies(column: pa.Array, errors: Errors) -> list[Any]:
    """Return texts and bytes unchanged, and nested values as JSON."""
    return texts(column) if not pa.types.is_nested(column.type) else each_row(column, "body", errors, json_values)


# -- numbers and times ---------------------------------------------------------------------------------------------------


def dues(column: pa.Array, zone: Callable[[], tzinfo], errors: Errors) -> list[int | None]:
    """Unix ms of timestamps, days, numbers and texts. Fractions of a ms are rounded up, so that no message is early.

    A timestamp without a zone is in `zone`, as everywhere in Spark, and a day begins there. As in Java, a time in the gap of
    a clock change is later by the gap. If a time exists twice, the first counts.
    """
    type = column.type
    if pa.types.is_date(type):
        days = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
        return _local([None if day is None else day * _DAY for day in days], zone())
    if not pa.types.is_timestamp(type):
        return _milliseconds(column, "expectDate", parse_instant, errors)
    return _of_unit(column) if type.tz is not None else _local(_of_unit(column), zone())


def durations(column: pa.Array, name: str, errors: Errors) -> list[int | None]:
    """ms of intervals, numbers and texts. Fractions of a ms are rounded up."""
    if pa.types.is_duration(column.type):
        return _of_unit(column)
    return _milliseconds(column, _NAMES[name], parse_duration, errors)


def wholes(column: pa.Array, name: str, errors: Errors) -> list[int | None]:
    """Return integers: integers, decimals without a fraction, and their digits as text."""
    if pa.types.is_decimal(column.type):
        return _whole_decimals(column, _NAMES[name], errors)
    return _numbers_or_texts(column, _NAMES[name], _refuse_text, errors)


def _refuse_text(_text: str) -> int:
    raise ValueError("must be an integer")


def _milliseconds(column: pa.Array, field: str, parse: Callable[[str], int], errors: Errors) -> list[int | None]:
    if pa.types.is_decimal(column.type):
        return [None if one is None else int(one.to_integral_value(ROUND_CEILING)) for one in column.to_pylist()]
    return _numbers_or_texts(column, field, parse, errors)


def _numbers_or_texts(column: pa.Array, field: str, parse: Callable[[str], int], errors: Errors) -> list[int | None]:
    values: list[Any] = column.to_pylist()
    if not is_text(column.type):
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


def _whole_decimals(column: pa.Array, field: str, errors: Errors) -> list[int | None]:
    values: list[Any] = column.to_pylist()
    for row, number in enumerate(values):
        if number is None:
            continue
        values[row] = int(number)
        if values[row] != number:
            values[row] = None
            errors.setdefault(row, InvalidMessage(field, f"must be an integer, not {_shown(number)}"))
    return values


def _shown(number: Decimal) -> str:
    return format(number, "f")


def _of_unit(column: pa.Array) -> list[int | None]:
    """Return the ms of timestamps or intervals, rounded up."""
    per = PER_SECOND[column.type.unit]
    numbers = column.cast(pa.int64()).to_pylist()
    return [None if number is None else -(-number * 1000 // per) for number in numbers]


def _local(times: list[int | None], zone: tzinfo) -> list[int | None]:
    """Return times of a clock in the zone, as Unix ms."""
    return [None if ms is None else _instant(ms, zone) for ms in times]


def _instant(ms: int, zone: tzinfo) -> int:
    seconds, rest = divmod(ms, 1000)
    try:
        local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone)
        return int(local.timestamp()) * 1000 + rest
    except (ValueError, OverflowError):
        return ms  # outside of all limits, with or without a zone


# -- properties ----------------------------------------------------------------------------------------------------------


def properties(column: pa.Array, errors: Errors) -> list[dict[str, str] | None]:
    """Return maps, objects, and JSON objects as text: a value that is not text becomes its JSON, null is omitted."""
    return each_row(column, "properties", errors, _of_texts if is_text(column.type) else _of_nested)


def _of_texts(column: pa.Array) -> list[dict[str, str] | None]:
    return [None if text is None else _of_json(text) for text in column.to_pylist()]


def _of_json(text: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        given = {name: bytes(value) for name, value in found.items() if bytes(value) != b"null"}
        # The digits of a number are kept.
        return {name: _decoded(value) if value.startswith(b'"') else value.decode() for name, value in given.items()}
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError("as text must be a JSON object") from None


def _of_nested(column: pa.Array) -> list[dict[str, str] | None]:
    return [
        None if pairs is None else {name: _text(value) for name, value in pairs.items() if value is not None}
        for pairs in json_values(column)
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(value)
    return _decoded(encoded) if encoded.startswith(b'"') else encoded.decode()


def _decoded(text: bytes) -> str:
    return msgspec.json.decode(text, type=str)
