"""The columns of a table, as the fields of messages: what each may be, and how its values are read from Arrow.

A column is checked once, before anything is written; a value that is wrong is told of its row, and only that one is
rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, Final

import pyarrow as pa

from delayq.errors import ConfigError
from delayq.spark.rows.ids import hashable
from delayq.spark.rows.values import Errors, dues, durations, plain

__all__ = ["DUES", "FIELDS", "RARE", "check_columns", "field_values", "is_bytes", "is_text"]

#: Columns of which each row has exactly one.
DUES: Final = ("delay_time", "expect_date", "delay_level")


def is_text(type: pa.DataType) -> bool:
    """Whether its values are texts."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def is_bytes(type: pa.DataType) -> bool:
    """Whether its values are bytes."""
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


def _list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def _nested(type: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type) or pa.types.is_map(type) or _list(type))


def _texts_by_name(type: pa.DataType) -> bool:
    return bool(pa.types.is_map(type) and is_text(type.key_type) and is_text(type.item_type))


def _whole(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type))


#: Of each column: whether a type will do, and what to say of one that does not.
FIELDS: Final[Mapping[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "id": (lambda type: is_text(type) or _whole(type), "a string, or a whole number"),
    "topic": (is_text, "a string"),
    "tags": (is_text, "a string"),
    "keys": (
        lambda type: is_text(type) or (_list(type) and is_text(type.value_type)),
        "an array of strings, or one string with spaces between them",
    ),
    "body": (
        lambda type: is_text(type) or is_bytes(type) or _nested(type),
        "a string, binary, or a struct, map or array, which becomes JSON; cast it to a string",
    ),
    "body_type": (is_text, "a string: 'text', 'json' or 'base64', which says what the string in body is"),
    "properties": (_texts_by_name, "a map of strings to strings"),
    "ordering_key": (is_text, "a string"),
    "delay_time": (
        lambda type: _whole(type) or is_text(type) or pa.types.is_duration(type),
        "ms as a whole number, an interval, or text such as '30m'",
    ),
    "expect_date": (
        lambda type: _whole(type) or is_text(type) or pa.types.is_timestamp(type),
        "a timestamp, Unix ms as a whole number, or text with a zone such as '2027-01-31T08:00:00Z'",
    ),
    "delay_level": (_whole, "a whole number"),
    "max_attempts": (_whole, "a whole number"),
    "window": (
        lambda type: _whole(type) or is_text(type) or pa.types.is_duration(type),
        "ms as a whole number, an interval, or text such as '30m'",
    ),
    "expire_after": (
        lambda type: _whole(type) or is_text(type) or pa.types.is_duration(type),
        "ms as a whole number, an interval, or text such as '30m'",
    ),
}
#: Those without which a row is plain.
RARE: Final = tuple(name for name in FIELDS if name not in ("id", "topic", "tags", "body", "expect_date"))


def check_columns(schema: pa.Schema, id_columns: tuple[str, ...], topic: str) -> None:
    """Raise ConfigError for columns that are unknown, missing, or of a type that cannot be read."""
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the column {twice[0]} is there twice")
    for name in id_columns:
        if name not in names:
            raise ConfigError(f"option idColumns: there is no column {name}; there are {', '.join(names)}")
        if not hashable(schema.field(name).type):
            raise ConfigError(
                f"option idColumns: {name} is {schema.field(name).type}; take plain values, no nested ones"
            )
    if id_columns and "id" in names and "id" not in id_columns:
        raise ConfigError("there is a column id, and the option idColumns makes ids of others: leave one of them out")
    unknown = [name for name in names if name not in FIELDS and name not in id_columns]
    if unknown:
        raise ConfigError(
            f"no message has a field {', '.join(unknown)}: drop or rename the column; the fields are {', '.join(FIELDS)}"
        )
    for name in names:
        if name in FIELDS and not FIELDS[name][0](schema.field(name).type):
            raise ConfigError(f"the column {name} is {schema.field(name).type}; it has to be {FIELDS[name][1]}")
    if "id" not in names and not id_columns:
        raise ConfigError(
            "every row needs an id of its own, so that a repeated task schedules nothing twice: give a column id, or "
            "the option idColumns with the columns that tell a row from all others"
        )
    if "topic" not in names and not topic:
        raise ConfigError("give a column topic, or the option topic for all rows")
    if not any(name in names for name in DUES):
        raise ConfigError(f"no column says when: give one of {', '.join(DUES)}")


def field_values(column: pa.Array, name: str, zone: Callable[[], tzinfo], errors: Errors) -> list[Any]:
    """The values of the column `name` as `Message` takes them, None for null; those that are wrong go to `errors`."""
    type = column.type
    if name == "id" and not is_text(type):
        column = column.cast(pa.string())
    if name == "expect_date":
        return dues(column, zone, errors)
    if name in ("delay_time", "expire_after", "window"):
        return durations(column, name, errors)
    if name == "body" and _nested(type):
        return plain(column)
    values: list[Any] = column.to_pylist()
    if name == "keys":
        if is_text(type):
            return [None if text is None else tuple(text.split()) for text in values]
        return [None if keys is None else tuple(keys) for keys in values]
    if name == "properties":
        return [None if pairs is None else dict(pairs) for pairs in values]
    return values
