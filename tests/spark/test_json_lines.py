"""JSON, an object a line, as a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from delayq.spark.rows.json_lines import Shape, batch_of, merged, shape_of


def read(*lines: str | bytes) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """The table of these lines, in two parts as by two tasks."""
    found = [line.encode() if isinstance(line, str) else line for line in lines]
    shape = merged(shape_of(found[:1]), shape_of(found[1:]))
    shape = msgspec.json.decode(msgspec.json.encode(shape), type=Shape)
    batch = batch_of(found, shape).batch
    return batch.schema, batch.to_pylist()


@pytest.mark.parametrize(
    ("values", "type", "found"),
    [
        (("1", "2"), pa.int64(), [1, 2]),
        (("1", "2.5"), pa.float64(), [1.0, 2.5]),
        (("1", str(2**64)), pa.decimal128(38, 0), [Decimal(1), Decimal(2**64)]),
        ((str(2**64), "1.0"), pa.float64(), [float(2**64), 1.0]),
        (("1", str(10**38)), pa.float64(), [1.0, 1e38]),
        (("true", "null"), pa.bool_(), [True, None]),
        (("null", "null"), pa.string(), [None, None]),
        (("1.50", '"x\\u00e9"'), pa.string(), ["1.50", "xé"]),
        (('{"b":  1}', "true"), pa.string(), ['{"b":  1}', "true"]),
        (('[1, "a"]', "[]"), pa.list_(pa.string()), [["1", "a"], []]),
        (("[]", "[null]"), pa.list_(pa.string()), [[], [None]]),
        (("{}", "{}"), pa.map_(pa.string(), pa.string()), [[], []]),
        (('{"b": 1}', '{"a": 2.5, "b": null}'), pa.struct([("a", pa.float64()), ("b", pa.int64())]),
         [{"a": None, "b": 1}, {"a": 2.5, "b": None}]),
        (('{"b": 1}', '{"b": {"c": 1.0}}'), pa.struct([("b", pa.string())]), [{"b": "1"}, {"b": '{"c": 1.0}'}]),
    ],
)  # fmt: skip
def test_a_column_has_one_type_for_all_rows(values: tuple[str, str], type: pa.DataType, found: list[Any]) -> None:
    for order in (1, -1):
        schema, rows = read(*(f'{{"x": {value}}}' for value in values[::order]))
        assert schema.field("x").type == type
        assert [row["x"] for row in rows] == found[::order]


def test_what_is_no_json_is_a_row_of_nulls_and_a_list_is_several_rows() -> None:
    deep, deeper = "[" * 98 + "]" * 98, "[" * 100 + "]" * 100
    lines = (
        b'\xef\xbb\xbf{"x": "a"}', "", "  ", "{", '{"x": "b"} {}', '{"x": NaN}', b'{"x": "\xff"}', '"x"', '[{"x": "c"}, 5, {}]',
        '{"x": "\\ud83d"}', '{"x": 1e999}', f'{{"y": {deeper}}}', f'{{"x": "{deeper * 3}"}}', f'{{"y": {deep}}}', "[]",
    )  # fmt: skip
    _, rows = read(*lines)
    nulls = [None] * 6
    assert [row["x"] for row in rows] == ["a", *nulls[:5], "c", *nulls[:2], *nulls[:3], deeper * 3, None]
    assert shape_of([b"id,x", b"1,2"]).kind == "null"
