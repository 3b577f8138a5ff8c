"""JSON, an object a line, as a table: the same with Spark and without, as both use nothing else.

What a column is follows from all its values, so there are two passes: `shape_of` finds the names and types of some lines,
`merged` puts those of several together, and `batch_of` reads lines by them. A line that is no JSON becomes a row of nulls,
which is rejected like any other row without an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

__all__ = ["NULL", "Shape", "batch_of", "merged", "schema_of", "shape_of"]

#: What is nested deeper is no message: it could only be read by ways that Python's own stack bounds.
_DEEPEST: Final = 100
_INT64: Final = range(-(2**63), 2**63)
_MOST_DIGITS: Final = 38  # of a decimal, in Spark and in Arrow
_WHOLE: Final = re.compile(rb"-?\d+")
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What some values are: `null`, `string`, `boolean`, `long`, `decimal`, `double`, `object` or `array`.

    `raw` are values of several kinds: texts stay as they are, and all others become the text that they are in the file.
    """

    kind: str
    fields: Mapping[str, Shape] = {}
    element: Shape | None = None


NULL: Final = Shape("null")
_RAW: Final = Shape("raw")
_NUMBERS: Final = ("long", "decimal", "double")
_ARROW: Final = {
    "null": pa.string(), "string": pa.string(), "raw": pa.string(), "boolean": pa.bool_(), "long": pa.int64(),
    "decimal": pa.decimal128(_MOST_DIGITS, 0), "double": pa.float64(),
}  # fmt: skip


def merged(one: Shape, other: Shape) -> Shape:
    """The shape of the values of both."""
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
    for row, _ in _rows(lines):
        if row is not None:
            shape = merged(shape, Shape("object", {name: _shape(bytes(value)) for name, value in row.items()}))
    return shape


def schema_of(shape: Shape) -> pa.Schema:
    """The columns of rows of this shape, in order of their names."""
    return pa.schema([pa.field(name, _arrow_type(shape.fields[name])) for name in sorted(shape.fields)])


def _arrow_type(shape: Shape) -> pa.DataType:
    if shape.element is not None:
        return pa.list_(_arrow_type(shape.element))
    if shape.kind != "object":
        return _ARROW[shape.kind]
    if not shape.fields:
        return pa.map_(pa.string(), pa.string())  # neither Spark nor Parquet has objects without names
    return pa.struct([*schema_of(shape)])  # names in order, too


def batch_of(lines: Iterable[bytes], shape: Shape) -> tuple[pa.RecordBatch, list[int]]:
    """The rows of these lines, with the columns of the shape of all lines; and of each row the number of its line."""
    found = list(_rows(lines))
    rows = [row if row is not None else {} for row, _ in found]
    schema = schema_of(shape)
    columns = [
        pa.array([_value(row.get(one.name), shape.fields[one.name]) for row in rows], one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema), [number for _, number in found]


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[Mapping[str, msgspec.Raw] | None, int]]:
    """The objects of lines, None for what is none, with the lines' numbers. A list of objects is several rows."""
    for number, line in enumerate(lines):
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            continue
        try:
            msgspec.json.decode(text)  # all of it, nested texts too: what follows cannot fail
            if _depth(text) > _DEEPEST:
                raise ValueError
        except (ValueError, RecursionError):
            yield None, number
            continue
        for one in [bytes(item) for item in _LIST.decode(text)] if text.startswith(b"[") else [text]:
            yield _OBJECT.decode(one) if one.startswith(b"{") else None, number


def _depth(text: bytes) -> int:
    """At least how deep it is nested: brackets within texts count, too, but nobody has so many."""
    deepest = depth = 0
    if text.count(b"{") + text.count(b"[") <= _DEEPEST:
        return 0
    for byte in text:
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _shape(text: bytes) -> Shape:
    match text[:1]:
        case b'"':
            return Shape("string")
        case b"{":
            return Shape("object", {name: _shape(bytes(value)) for name, value in _OBJECT.decode(text).items()})
        case b"[":
            element = NULL
            for value in _LIST.decode(text):
                element = merged(element, _shape(bytes(value)))
            return Shape("array", element=element)
        case b"n":
            return NULL
        case b"t" | b"f":
            return Shape("boolean")
    if not _WHOLE.fullmatch(text):
        return Shape("double")
    if len(text.lstrip(b"-")) > _MOST_DIGITS:
        return Shape("double")
    return Shape("long") if int(text) in _INT64 else Shape("decimal")


def _value(raw: msgspec.Raw | None, shape: Shape) -> Any:
    text = b"null" if raw is None else bytes(raw)
    if text == b"null":
        return None
    if shape.element is not None:
        return [_value(one, shape.element) for one in _LIST.decode(text)]
    match shape.kind:
        case "object":
            given = _OBJECT.decode(text)
            return {name: _value(given.get(name), one) for name, one in shape.fields.items()}
        case "long":
            return int(text)
        case "decimal":
            return Decimal(text.decode())
        case "double":
            return float(text)
        case "boolean":
            return text == b"true"
    return _STRING.decode(text) if text.startswith(b'"') else text.decode()
