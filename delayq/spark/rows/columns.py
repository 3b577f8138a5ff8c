"""The columns of a table, as the fields of messages: their allowed types, and how their values are read from Arrow.

A column is checked once, before anything is written; a wrong value is an error of its row, and only that row is
rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from typing import Any, Final, NamedTuple

import pyarrow as pa

from delayq.base.errors import ConfigError
from delayq.spark.rows import values
from delayq.spark.rows.ids import hashable
from delayq.spark.rows.json_values import Errors, is_list, is_text, without_json
from delayq.spark.rows.origin import OWN

#: Columns of which each row has exactly one.
DUES: Final = ("delay_time", "expect_date", "delay_level")


def is_bytes(type: pa.DataType) -> bool:
    """Whether its values are bytes."""
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


def _nested(type: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type) or pa.types.is_map(type) or is_list(type))


def _whole(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_decimal(type))


def _duration(type: pa.DataType) -> bool:
    return bool(_whole(type) or is_text(type) or pa.types.is_duration(type))


class Field(NamedTuple):
    """A field of messages: its allowed types, the error of other types, and how its values are read.

    A column of nothing but null (`void`) is allowed for every field.
    """

    accepts: Callable[[pa.DataType], bool]
    wanted: str
    read: Callable[[pa.Array, str, Callable[[], tzinfo], Errors], list[Any]]


_TEXT: Final = Field(is_text, "a string", lambda column, _name, _zone, _errors: values.texts(column))
_DURATION: Final = Field(
    _duration,
    "ms as an integer, an interval of days to seconds, or text such as '30m'",
    lambda column, name, _zone, errors: values.durations(column, name, errors),
)
_WHOLE: Final = Field(
    lambda type: _whole(type) or is_text(type),
    "a whole number",
    lambda column, name, _zone, errors: values.wholes(column, name, errors),
)
FIELDS: Final[Mapping[str, Field]] = {
    "id": Field(
        lambda type: is_text(type) or _whole(type),
        "a string, or an integer",
        lambda column, _name, _zone, errors: values.identifiers(column, errors),
    ),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": Field(
        lambda type: (
            is_text(type) or (is_list(type) and (is_text(type.value_type) or pa.types.is_null(type.value_type)))
        ),
        "an array of strings, or one string with spaces between them",
        lambda column, _name, _zone, _errors: values.keys(column),
    ),
    "body": Field(
        lambda type: is_text(type) or is_bytes(type) or _nested(type),
        "a string, binary, or a struct, map or array, which becomes JSON; cast it to a string",
        lambda column, _name, _zone, errors: values.bodies(column, errors),
    ),
    "body_type": _TEXT._replace(wanted="a string: 'text', 'json' or 'base64', which is the kind of the string in body"),
    "properties": Field(
        lambda type: is_text(type) or (_nested(type) and not is_list(type)),
        "a map, a struct, or text of a JSON object",
        lambda column, _name, _zone, errors: values.properties(column, errors),
    ),
    "ordering_key": _TEXT,
    "delay_time": _DURATION,
    "expect_date": Field(
        lambda type: _whole(type) or is_text(type) or pa.types.is_timestamp(type) or pa.types.is_date(type),
        "a timestamp, a date, Unix ms as an integer, or text with a zone such as '2027-01-31T08:00:00Z'",
        lambda column, _name, zone, errors: values.dues(column, zone, errors),
    ),
    "delay_level": _WHOLE,
    "max_attempts": _WHOLE,
    "window": _DURATION,
    "expire_after": _DURATION,
}
#: A row without these columns is plain.
RARE: Final = tuple(name for name in FIELDS if name not in ("id", "topic", "tags", "body", "expect_date"))


def field_names(names: Iterable[str], id_columns: Iterable[str] = ()) -> list[str]:
    """The columns' names as fields and `idColumns` are written: Spark ignores the case."""
    written = {name.lower(): name for name in (*id_columns, *FIELDS)}
    return [written.get(name.lower(), name) for name in names]


def check_columns(schema: pa.Schema, id_columns: tuple[str, ...], topic: str) -> None:
    """Raise ConfigError for columns that are unknown, missing, or of a type that cannot be read."""
    schema = pa.schema([field for field in schema if field.name.lower() not in OWN])
    names, id_columns = field_names(schema.names, id_columns), tuple(field_names(id_columns))
    types = dict(zip(names, schema.types, strict=True))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"the column {twice[0]} is there twice")
    for name in id_columns:
        if name not in types:
            raise ConfigError(f"option idColumns: there is no column {name}; there are {', '.join(names)}")
        if not hashable(types[name]):
            raise ConfigError(f"option idColumns: {name} is {types[name]}; use plain values, not nested ones")
    if id_columns and "id" in names and "id" not in id_columns:
        raise ConfigError("a column id and the option idColumns exclude each other; remove one of them")
    unknown = [name for name in names if name not in FIELDS and name not in id_columns]
    if unknown:
        raise ConfigError(
            f"no message has a field {', '.join(unknown)}: drop or rename the column; the fields are {', '.join(FIELDS)}"
        )
    for name, type in types.items():
        if name in FIELDS:
            _check_type(name, type)
    if "id" not in names and not id_columns:
        raise ConfigError(
            "every row needs its own id, so that a repeated task schedules nothing twice. Add a column id, or "
            "set the option idColumns to the columns that identify a row"
        )
    if "topic" not in names and not topic:
        raise ConfigError("give a column topic, or the option topic for all rows")
    if not any(name in names for name in DUES):
        raise ConfigError(f"no column has the due time: add one of {', '.join(DUES)}")


def no_message(path: str, type: str) -> ConfigError:
    """Return the error for a type of Spark that no message can have; `path` is its place in a column."""
    return ConfigError(
        f"{path} is {type}, which no message can have: cast it to a string (a variant by to_json), or drop the column"
    )


def _check_type(name: str, type: pa.DataType) -> None:
    field = FIELDS[name]
    if not pa.types.is_null(type) and not field.accepts(type):
        raise ConfigError(f"the column {name} is {type}; it must be {field.wanted}")
    if wrong := without_json(type, name):
        raise ConfigError(f"the column {name} cannot become JSON: {wrong}; cast it to a string, or drop it")


def field_values(column: pa.Array, name: str, zone: Callable[[], tzinfo], errors: Errors) -> list[Any]:
    """The values of the column `name` as `Message` takes them, None for null. Wrong values go to `errors`."""
    if pa.types.is_null(column.type):
        return [None] * len(column)
    return FIELDS[name].read(column, name, zone, errors)
