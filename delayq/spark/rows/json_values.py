"""Values of Arrow columns as JSON: for bodies, and for properties that are not plain texts.

`without_json` returns the types that have no JSON, before anything is written. A value that a type allows and JSON does
not, such as a date after the year 9999, makes only its row wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from delayq.base.errors import InvalidMessage

#: Rows with an invalid value, by their place in the batch.
Errors = dict[int, InvalidMessage]

#: The number of each unit of Arrow in a second.
PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - in the zone of whoever reads it
_FIRST_DAY: Final = date(1970, 1, 1)


def is_text(type: pa.DataType) -> bool:
    """Whether its values are texts."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def is_list(type: pa.DataType) -> bool:
    """Whether its values are lists."""
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def each_row(column: pa.Array, field: str, errors: Errors, read: Callable[[pa.Array], list[Any]]) -> list[Any]:
    """The column, read by `read`. If it raises ValueError for a wrong value, only the rows with such a value are wrong."""
    try:
        return read(column)
    except (ValueError, OverflowError):
        pass
    values: list[Any] = []
    for row in range(len(column)):
        try:
            values += read(column.slice(row, 1))
        except (ValueError, OverflowError) as error:
            values.append(None)
            errors.setdefault(row, InvalidMessage(field, str(error)))
    return values


# -- types ---------------------------------------------------------------------------------------------------------------


def without_json(type: pa.DataType, path: str) -> str | None:
    """The part of this type that has no JSON, as 'PATH is TYPE'; None if every part has JSON. `path` is where the type is."""
    return next(_without_json(type, path), None)


def _without_json(type: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(type):
        names = [str(field.name) for field in type]
        if twice := next((name for name in names if names.count(name) > 1), None):
            yield f"{path} has the field {twice} twice"
        for field in type:
            yield from _without_json(field.type, f"{path}.{field.name}")
    elif is_list(type):
        yield from _without_json(type.value_type, f"{path}[]")
    elif pa.types.is_map(type):
        if not any(is_one(type.key_type) for is_one in _KEYS):
            yield f"a key of the map {path} is {type.key_type}"
        yield from _without_json(type.item_type, f"{path}{{}}")
    elif not any(is_one(type) for is_one in _READERS):
        yield f"{path} is {type}"


# -- values --------------------------------------------------------------------------------------------------------------


def json_values(column: pa.Array) -> list[Any]:
    """Return the values, None for null. Raises ValueError for one that JSON does not have.

    Instants are texts in UTC, whatever the zone of the session, so that the same row is always the same message.
    """
    type = column.type
    if pa.types.is_struct(type):
        return _structs(column)
    if is_list(type):
        return _lists(column, json_values(column.flatten()))
    if pa.types.is_map(type):
        return _maps(column)
    return next(read for is_one, read in _READERS.items() if is_one(type))(column)


def _structs(column: pa.Array) -> list[Any]:
    names = [str(field.name) for field in column.type]
    there = column.is_valid().to_pylist()
    if not names:
        return [{} if one else None for one in there]
    rows = zip(*map(json_values, column.flatten()), strict=True)
    return [dict(zip(names, row, strict=True)) if one else None for one, row in zip(there, rows, strict=True)]


def _lists(column: pa.Array, flat: Sequence[Any]) -> list[Any]:
    lists: list[Any] = []
    at = 0
    for length in pc.list_value_length(column).to_pylist():
        lists.append(None if length is None else list(flat[at : at + length]))
        at += length or 0
    return lists


def _maps(column: pa.Array) -> list[Any]:
    offsets = column.offsets.to_pylist()
    start, end = offsets[0], offsets[-1]
    keys = map(_key, json_values(column.keys.slice(start, end - start)))
    pairs = list(zip(keys, json_values(column.items.slice(start, end - start)), strict=True))
    maps: list[Any] = []
    for there, begin, stop in zip(column.is_valid().to_pylist(), offsets, offsets[1:], strict=False):
        some = pairs[begin - start : stop - start] if there else []
        maps.append(dict(some) if there else None)
        if len({name for name, _ in some}) < len(some):
            raise ValueError("has a map with the same key twice")
    return maps


def _key(value: Any) -> str:
    """Return a name of JSON, which is always a text."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("has a map with a key that is null")
    return msgspec.json.encode(value).decode()


def _as_they_are(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _floats(column: pa.Array) -> list[Any]:
    values = _as_they_are(column)
    for value in values:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"has the number {value}, which JSON does not have; use a string or null")
    return values


def _decimals(column: pa.Array) -> list[Any]:
    return [None if one is None else msgspec.Raw(_digits(one)) for one in column.to_pylist()]


def _digits(number: Decimal) -> bytes:
    return format(number, "f").encode()  # a number with all its digits


def _days(column: pa.Array) -> list[Any]:
    numbers = column.cast(pa.date32()).cast(pa.int32()).to_pylist()
    return [None if days is None else _in_range(_FIRST_DAY, timedelta(days)).isoformat() for days in numbers]


def _timestamps(column: pa.Array) -> list[Any]:
    end = "" if column.type.tz is None else "Z"
    return [None if one is None else _in_range(_EPOCH, one[0]).isoformat() + one[1] + end for one in _parts(column)]


def _times(column: pa.Array) -> list[Any]:
    return [None if one is None else (_EPOCH + one[0]).time().isoformat() + one[1] for one in _parts(column)]


def _parts(column: pa.Array) -> Iterator[tuple[timedelta, str] | None]:
    """Return full seconds, and the rest as text."""
    per, bits = PER_SECOND[column.type.unit], column.type.bit_width
    for number in column.cast(pa.int32() if bits == 32 else pa.int64()).to_pylist():
        if number is None:
            yield None
            continue
        seconds, rest = divmod(number, per)
        digits = f"{rest * (PER_SECOND['ns'] // per):09}"
        shown = digits if digits[6:] != "000" else digits[:6]
        yield timedelta(seconds=seconds), f".{shown}" if rest else ""


def _in_range(start: Any, later: timedelta) -> Any:
    try:
        return start + later
    except OverflowError:
        raise ValueError("has a date before the year 1 or after 9999") from None


def _durations(column: pa.Array) -> list[Any]:
    """Return ISO 8601, exact to a microsecond like Spark's intervals."""
    numbers = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
    return [None if one is None else msgspec.to_builtins(timedelta(microseconds=one)) for one in numbers]


#: Plain values, by their types. Other types have no JSON.
_READERS: Final[dict[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]]] = {
    is_text: _as_they_are,
    pa.types.is_null: _as_they_are,
    pa.types.is_boolean: _as_they_are,
    pa.types.is_integer: _as_they_are,
    pa.types.is_floating: _floats,
    pa.types.is_decimal: _decimals,
    pa.types.is_binary: _as_they_are,  # base64
    pa.types.is_large_binary: _as_they_are,
    pa.types.is_date: _days,
    pa.types.is_timestamp: _timestamps,
    pa.types.is_time: _times,
    pa.types.is_duration: _durations,
}
#: The types that may be the key of a map: its text is the name in JSON.
_KEYS: Final = (
    is_text,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_time,
)
