"""Without Spark, a table becomes the same messages as by Spark, or is refused with the same sentence."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from delayq.base.errors import ConfigError
from delayq.spark.options import WriteOptions
from delayq.spark.rows.tables import Table, messages_table
from tests.backfill.test_local import CELL, FAR, csv, local, messages, table_of_csv
from tests.support.amounts import amount

__all__ = ["csv"]

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

few = settings(
    max_examples=amount(3, 30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def by_spark(spark: Any, table: Table) -> list[Any]:
    options = WriteOptions(topic=table.topic, id_columns=table.id_columns)
    return messages(messages_table(spark, table, options).toArrow().to_batches(), table)


def both(spark: Any, table: Table) -> tuple[Any, Any]:
    """The messages by Spark and without, or why the table is refused."""
    found: list[Any] = []
    for read in (local, lambda table: by_spark(spark, table)):
        try:
            found.append(sorted(read(table), key=str))
        except ConfigError as error:
            found.append(str(error))
    return found[0], found[1]


def test_csv_becomes_the_same_messages(spark: Any, csv: Path) -> None:
    without, by = both(spark, table_of_csv(csv))
    assert len(without) == 8
    assert without == by


CSV_COLUMNS: Final[dict[str, Any]] = {
    "id": some.one_of(some.sampled_from(["a", "b", "7"]), CELL),
    "expect_date": some.sampled_from([str(FAR), f" {FAR} ", "2033-05-18T03:33:20Z", "", "soon", f"{FAR}.0"]),
    "body": CELL,
    "properties": some.sampled_from(["", '{"a": "x", "b": 1.50}', '{"a": null}', "{", "[]", " {} "]),
    "max_attempts": some.sampled_from(["", "3", " 3", "+3", "3.0", "1_0", "\u0663"]),
}


def quoted(cell: str) -> str:
    """As Spark writes it."""
    return '"' + cell.replace("\\", "\\\\").replace('"', '\\"') + '"'


@few
@given(
    some.lists(
        some.one_of(
            some.tuples(*CSV_COLUMNS.values()).map(lambda cells: ",".join(map(quoted, cells))),
            some.lists(some.one_of(CELL.map(quoted), some.sampled_from(["", "a", "1", " x "])), max_size=7).map(
                ",".join
            ),
            some.sampled_from(["", " ", "#c", ",,", '"a"', "\\"]),
        ),
        min_size=8,
        max_size=30,
    ),
    some.sampled_from(["\n", "\r\n"]),
)
def test_csv_of_any_cells_becomes_the_same_messages(spark: Any, lines: list[str], end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        path.write_bytes(end.join([",".join(CSV_COLUMNS), *lines]).encode())
        without, by = both(spark, Table(source=str(path), format="csv", topic="orders"))
    if isinstance(without, list):  # else it refuses a line that readers of CSV take for different things
        assert without == by
    else:
        assert "line " in without


# -- JSON ----------------------------------------------------------------------------------------------------------------

TEXT: Final = some.text(some.characters(codec="utf-8"), max_size=5)
SCALAR: Final = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**70), 2**130),
    TEXT,
    some.sampled_from([1, 1.5, 1e20, 0.1, -0.0, ""]),
)
NAMES: Final = some.sampled_from(["a", "b", "B", "z z", "", "ü", "x.y"])
VALUE: Final = some.recursive(
    SCALAR,
    lambda one: some.one_of(some.lists(one, max_size=3), some.dictionaries(NAMES, one, max_size=3)),
    max_leaves=6,
)
#: Of each column what rows may have. A row lacks some; what several kinds of values come to is a matter of all rows.
COLUMNS: Final[dict[str, Any]] = {
    "id": some.one_of(some.sampled_from(["a", "b", 7, "no good", ""]), some.integers(0, 2**70)),
    "expect_date": some.sampled_from([FAR, FAR + 1, str(FAR), "2033-05-18T03:33:20Z", "soon", 1.5]),
    "body": VALUE,
    "properties": some.one_of(some.none(), some.dictionaries(NAMES, SCALAR, max_size=4)),
    "keys": some.one_of(some.none(), some.lists(some.one_of(some.none(), some.sampled_from(["k", "a b"])), max_size=3)),
    "max_attempts": some.sampled_from([3, "4", "x", None, 2**70]),
    "expire_after": some.sampled_from([3_000, "30m", None]),
    "tags": some.sampled_from(["red", "", None]),
    "note": VALUE,
}
LINE: Final = some.one_of(
    some.fixed_dictionaries({}, optional=COLUMNS).map(json.dumps),
    some.fixed_dictionaries({}, optional=COLUMNS).map(
        lambda row: json.dumps({"id": "c", "expect_date": FAR} | row, ensure_ascii=False)
    ),
    some.sampled_from(["", "  ", "{", "5", "[]", '[{"id": "c"}, 5]', '{"id": NaN}', '{"id": "\\ud83d"}', "{} {}"]),
)


@few
@given(some.lists(LINE, min_size=8, max_size=40), some.sampled_from(["\n", "\r\n"]))
def test_json_whose_rows_differ_becomes_the_same_messages(spark: Any, lines: list[str], end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_bytes(end.join(lines).encode())
        without, by = both(spark, Table(source=str(path), format="json", topic="orders"))
    assert without == by


def test_rows_with_different_properties_are_all_scheduled(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [
        {"properties": {"a": "1"}},
        {"properties": {"b": 2, "c": None}},
        {"properties": {}},
        {},
    ]
    path.write_text("\n".join(json.dumps({"id": f"m{n}", "expect_date": FAR} | row) for n, row in enumerate(rows)))
    without, by = both(spark, Table(source=str(path), format="json", topic="orders"))
    assert [message.properties for message in without] == [{"a": "1"}, {"b": "2"}, {}, {}]
    assert without == by


# -- Parquet -------------------------------------------------------------------------------------------------------------

NOON: Final = datetime(2033, 5, 18, 12, 0, 0, 1, tzinfo=UTC)
INNER: Final = pa.struct([("at", pa.timestamp("us", tz="UTC")), ("price", pa.decimal128(9, 2)), ("raw", pa.binary())])
#: Of each field some types with their values; with `None` beside them.
TYPES: Final[dict[str, list[tuple[pa.DataType, list[Any]]]]] = {
    "Id": [
        (pa.string(), ["a", "b c", ""]),
        (pa.int64(), [1, -1]),
        (pa.decimal128(20, 0), [Decimal(2**64)]),
        (pa.decimal128(20, 2), [Decimal("7.00"), Decimal("7.50")]),
        (pa.float64(), [1.0]),
    ],
    "EXPECT_DATE": [
        (pa.int64(), [FAR, -1]),
        (pa.timestamp("us", tz="UTC"), [NOON]),
        (pa.timestamp("us"), [NOON.replace(tzinfo=None)]),
        (pa.date32(), [date(2033, 5, 18)]),
        (pa.decimal128(20, 3), [Decimal(FAR), Decimal(FAR) + Decimal("0.001")]),
        (pa.string(), [str(FAR), "soon"]),
        (pa.bool_(), [True]),
    ],
    "body": [
        (pa.string(), ["x", ""]),
        (pa.binary(), [b"\x00"]),
        (INNER, [{"at": NOON, "price": Decimal("1.50"), "raw": b"\x01"}, {"at": None, "price": None, "raw": None}]),
        (pa.list_(pa.map_(pa.string(), pa.float64())), [[[("a", 1.5)], []], []]),
        (pa.map_(pa.int32(), pa.date32()), [[(1, date(2030, 1, 1))]]),
        (pa.struct([("b", pa.list_(INNER))]), [{"b": [None]}]),
        (pa.list_(pa.float32()), [[float("nan")], [0.5]]),
    ],
    "properties": [
        (pa.map_(pa.string(), pa.string()), [[("a", "1"), ("b", None)], []]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)]]),
        (pa.struct([("a", pa.bool_()), ("b", pa.string())]), [{"a": True, "b": None}, {"a": None, "b": "x"}]),
        (pa.string(), ['{"a": 1.50, "b": null}', "[]", ""]),
        (pa.list_(pa.string()), [["a"]]),
    ],
    "keys": [
        (pa.list_(pa.string()), [["a"], ["a", None], []]),
        (pa.list_(pa.large_string(), 1), [["a"]]),
        (pa.string(), ["a  b", ""]),
    ],
    "tags": [
        (pa.dictionary(pa.int8(), pa.string()), ["red"]),
        (pa.large_string(), ["red", ""]),
        *(
            (type, [None])
            for type in (pa.null(), pa.uint32(), pa.uint64(), pa.timestamp("ms", tz="Asia/Tokyo"), pa.float32())
        ),
        *(
            (type, [None])
            for type in (pa.timestamp("s"), pa.list_(pa.date64()), pa.map_(pa.string(), pa.decimal128(5, 1)))
        ),
    ],
    "expire_after": [(pa.uint8(), [5]), (pa.uint64(), [5, 2**64 - 1]), (pa.string(), ["30m"])],
    "Max_Attempts": [
        (pa.int32(), [3]),
        (pa.string(), ["3", "x"]),
        (pa.decimal128(5, 1), [Decimal("3.0"), Decimal("3.5")]),
    ],
}


@some.composite
def typed_tables(draw: Any) -> pa.Table:
    rows = draw(some.integers(4, 20))
    columns = {}
    for name, types in TYPES.items():
        if name in ("Id", "EXPECT_DATE") or draw(some.booleans()):
            type, values = draw(some.sampled_from(types))
            value = some.one_of(some.sampled_from(values), some.none()) if name != "Id" else some.sampled_from(values)
            columns[name] = pa.array(draw(some.lists(value, min_size=rows, max_size=rows)), type)
    return pa.table(columns)


@few
@given(typed_tables(), some.lists(some.sampled_from([*TYPES]), max_size=3))
def test_parquet_of_any_types_becomes_the_same_messages(spark: Any, table: pa.Table, lacking: list[str]) -> None:
    fewer = table.select([name for name in table.schema.names if name not in lacking or name == "EXPECT_DATE"])
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate((fewer, table)):
            pyarrow.parquet.write_table(one, Path(folder, f"part-{number}.parquet"))
        without, by = both(spark, Table(source=folder, format="parquet", topic="orders"))
    assert without == by


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_parquet_of_spark_becomes_the_same_messages(spark: Any, tmp_path: Path, kind: str) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame = spark.range(50).selectExpr(
            "concat('order-', id) as id",
            f"timestamp_millis({FAR} + 1000 * id) as expect_date",
            "named_struct('z', id, 'at', timestamp_millis(1000 * id), 'price', cast(id as decimal(9,2))) as body",
            "map('a', interval '1' minute * id) as properties",
            "array('k') as keys",
            "interval '90' minute as expire_after",
            "named_struct('wait', interval '1' day) as ordered",
            "named_struct('v', parse_json('1')) as odd",
        )
        frame.repartition(3).write.parquet(str(tmp_path / "orders"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    source = str(tmp_path / "orders")
    without, by = both(spark, Table(source=source, format="parquet", topic="orders"))
    assert without == by
    assert {one.expire_after for one in without} == {5_400_000}
    for column, found in (("ordered", "'wait': 'P1D'"), ("odd", "body.v is variant, which no message can have")):
        others, by = both(spark, Table(source=source, format="parquet", topic="orders", columns={"body": column}))
        assert others == by and found in str(others)
    assert sorted(one.expect_date for one in without) == [FAR + 1000 * number for number in range(50)]
