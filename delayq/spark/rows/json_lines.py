"""JSON, one object per line, as a table: Spark and the local mode use the same code.

The type of a column follows from all its values, so there are two passes. `shape_of` finds the names and types of some
lines, `merged` combines several shapes, and `batch_of` reads lines by them. A line that is no JSON becomes a row of nulls,
which is rejected like any other row without an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

#: Deeper nesting is no message: a reader would depend on the limit of Python's stack.
_DEEPEST: Final = 100
_INT64: Final = range(-(2**63), 2**63)
_MOST_DIGITS: Final = 38  # of a decimal, in Spark and in Arrow
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Shape(msgspec.Struct, frozen=True, gc=False):
    """The common type of some values: `null`, `string`, `boolean`, `long`, `decimal`, `double`, `object` or `array`.

    `raw` are values of several kinds: texts are unchanged, and all others become their text in the file.
    """

    kind: str
    fields: Mapping[str, Shape] = {}
    element: Shape | None = None


NULL: Final = Shape("null")
_RAW: Final = Shape("raw")
_LONG, _DECIMAL, _DOUBLE = Shape("long"), Shape("decimal"), Shape("double")
#: Integers are `long`, `decimal` or `double` by their size.
_PLAIN: Final = {type(None): NULL, str: Shape("string"), bool: Shape("boolean"), float: _DOUBLE}
_NUMBERS: Final = ("long", "decimal", "double")
_ARROW: Final = {
    "null": pa.string(), "string": pa.string(), "raw": pa.string(), "boolean": pa.bool_(), "long": pa.int64(),
    "decimal": pa.decimal128(_MOST_DIGITS, 0), "double": pa.float64(),
}  # fmt: skip


def merged(one: Shape, other: Shape) -> Shape:
    """Return the shape of the values of both."""
    if one.kind == "null" or one == other:
        return other
    if other.kind == "null":
        return one
    if one.kind in _NUMBERS and other.kind in _NUMBERS:
        return max(one, other, key=lambda shape: _NUMBERS.index(shape.kind))
    if one.kind != other.kind:
        return _RAW
    if one.element is not None and other.element is not None:
        return Shape("array", element=merged(one.element, other.element))
    names = [*one.fields, *(name for name in other.fields if name not in one.fields)]
    return Shape("object", {name: merged(one.fields.get(name, NULL), other.fields.get(name, NULL)) for name in names})


def shape_of(lines: Iterable[bytes]) -> Shape:
    """The shape of the rows of these lines; `null` if no line is JSON."""
    shape = NULL
    for row in _rows(lines):
        if row.found is not None:
            shape = merged(shape, _shape(row.found))
    return shape


def schema_of(shape: Shape) -> pa.Schema:
    """Return the columns of rows of this shape, in order of their names."""
    return pa.schema([pa.field(name, _arrow_type(shape.fields[name])) for name in sorted(shape.fields)])


def _arrow_type(shape: Shape) -> pa.DataType:
    if shape.element is not None:
        return pa.list_(_arrow_type(shape.element))
    if shape.kind != "object":
        return _ARROW[shape.kind]
    if not shape.fields:
        return pa.map_(pa.string(), pa.string())  # neither Spark nor Parquet has objects without names
    return pa.struct([*schema_of(shape)])  # names in order, too


class Rows(NamedTuple):
    """The rows of some lines. Each has the number of its line, from 0 on, and its text."""

    batch: pa.RecordBatch
    lines: list[int]
    texts: list[bytes]


def batch_of(lines: Iterable[bytes], shape: Shape) -> Rows:
    """Return the rows of these lines, with the columns of the shape of all lines."""
    rows = list(_rows(lines))
    schema = schema_of(shape)
    columns = [pa.array(_column(rows, one.name, shape.fields[one.name]), one.type) for one in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Rows(batch, [row.line for row in rows], [row.text for row in rows])


class _Row(NamedTuple):
    """An object of a line: in Python, as its text, and the number of the line. None if the line is not a JSON object."""

    found: dict[str, Any] | None
    text: bytes
    line: int


def _rows(lines: Iterable[bytes]) -> Iterator[_Row]:
    """Yield the objects of lines. A list of objects is several rows."""
    for number, line in enumerate(lines):
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            continue
        try:
            found = msgspec.json.decode(text)
            if text.count(b"{") + text.count(b"[") > _DEEPEST and _is_too_deep(found):
                raise ValueError
        except (ValueError, RecursionError):
            yield _Row(None, text, number)
            continue
        several = (
            zip(found, map(bytes, _LIST.decode(text)), strict=True) if isinstance(found, list) else [(found, text)]
        )
        for one, its_text in several:
            yield _Row(one if isinstance(one, dict) else None, its_text, number)


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        nested = [one for one in level if isinstance(one, (dict, list))]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return any(isinstance(one, (dict, list)) for one in level)


def _shape(value: Any) -> Shape:
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain
    if isinstance(value, dict):
        return Shape("object", {name: _shape(one) for name, one in value.items()})
    if isinstance(value, list):
        element = NULL
        for one in value:
            element = merged(element, _shape(one))
        return Shape("array", element=element)
    return _LONG if value in _INT64 else _DECIMAL if abs(value) < 10**_MOST_DIGITS else _DOUBLE


def _column(rows: list[_Row], name: str, shape: Shape) -> list[Any]:
    if _has_raw(shape):  # an invalid value's text is only in the line
        texts = (_OBJECT.decode(row.text).get(name) if row.found is not None else None for row in rows)
        return [None if text is None else _from_text(bytes(text), shape) for text in texts]
    values = [None if row.found is None else row.found.get(name) for row in rows]
    return values if _is_as_decoded(shape) else [_from_value(value, shape) for value in values]


def _inner(shape: Shape) -> Iterable[Shape]:
    return shape.fields.values() if shape.element is None else (shape.element,)


def _has_raw(shape: Shape) -> bool:
    return shape.kind == "raw" or any(map(_has_raw, _inner(shape)))


def _is_as_decoded(shape: Shape) -> bool:
    """Return whether Arrow accepts the values as Python has them."""
    if shape.kind in ("decimal", "double") or (shape.kind == "object" and not shape.fields):
        return False
    return all(map(_is_as_decoded, _inner(shape)))


def _from_value(value: Any, shape: Shape) -> Any:
    if value is None:
        return None
    if shape.element is not None:
        return [_from_value(one, shape.element) for one in value]
    match shape.kind:
        case "object":
            return {name: _from_value(value.get(name), one) for name, one in shape.fields.items()}
        case "decimal":
            return Decimal(value)
        case "double":
            return float(value)
    return value


def _from_text(text: bytes, shape: Shape) -> Any:
    if text == b"null":
        return None
    if shape.element is not None:
        return [_from_text(bytes(one), shape.element) for one in _LIST.decode(text)]
    if shape.kind == "object":
        given = _OBJECT.decode(text)
        return {name: _from_text(bytes(given.get(name, b"null")), one) for name, one in shape.fields.items()}
    if shape.kind == "raw" and not text.startswith(b'"'):
        return text.decode()
    return _from_value(msgspec.json.decode(text), shape)
