"""Tables of every format, and their columns as fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.base.errors import ConfigError
from delayq.spark.rows.tables import Table, mapped, read

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=str)


@pytest.fixture
def orders(spark: Any) -> Any:
    return spark.createDataFrame(
        [(1, "x", 1_900_000_000_000), (2, "y", 1_900_000_001_000)], "order_no int, text string, at bigint"
    )


COLUMNS = {"id": "order_no", "body": "text", "expect_date": "at"}


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "jdbc", "table"])
def test_every_format_is_read_and_mapped(spark: Any, orders: Any, tmp_path: Path, format: str) -> None:
    source, options = str(tmp_path / "orders"), {}
    if format == "table":
        source = "some_orders"
        orders.createOrReplaceTempView(source)
    elif format == "jdbc":
        source, url = "orders", f"jdbc:derby:{tmp_path}/db"
        options = {"url": url, "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
        orders.write.jdbc(f"{url};create=true", source, properties={"driver": options["driver"]})
    else:
        orders.write.format(format).option("header", "true").save(source)
    table = Table(source=source, format=format, options=options, columns=COLUMNS, topic="t")
    found = rows_of(mapped(read(spark, table), table))
    assert [{name: str(value) for name, value in row.items()} for row in found] == [
        {"id": "1", "body": "x", "expect_date": "1900000000000"},
        {"id": "2", "body": "y", "expect_date": "1900000001000"},
    ]


def test_columns_that_are_called_as_fields_are_these_and_others_are_left_out(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "t", "x", 1)], "id string, topic string, colour string, delay_time int")
    table = Table(source="", format="table")
    assert mapped(frame, table).columns == ["id", "topic", "delay_time"]
    assert mapped(frame, Table(source="", format="table", topic="u")).columns == ["id", "delay_time"]
    assert mapped(frame, Table(source="", format="table", delay_level=3)).columns == ["id", "topic", "delay_level"]
    mapping = {"expect_date": "colour"}
    assert mapped(frame, Table(source="", format="table", columns=mapping)).columns == ["id", "topic", "expect_date"]


def test_columns_that_ids_are_made_of_stay(spark: Any) -> None:
    frame = spark.createDataFrame([("a", "b", "x")], "id string, Colour string, body string")
    table = Table(source="", format="table", id_columns=("colour", "body"), delay_time=5)
    assert rows_of(mapped(frame, table)) == [{"body": "x", "colour": "b", "delay_time": 5}]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (Table(source="", format="table", columns={"id": "nr"}), "unknown column nr; the columns are a.b, id, ID"),
        (Table(source="", format="table", id_columns=("x",)), "--id-columns: unknown column x"),
        (
            Table(source="", format="table", columns={"body": "id"}),
            "columns differ only in upper and lower case: id, ID",
        ),
    ],
)
def test_a_column_that_is_not_there_is_told(spark: Any, table: Table, why: str) -> None:
    frame = spark.createDataFrame([("1", "2", "3")], ["a.b", "id", "ID"])
    with pytest.raises(ConfigError, match=why):
        mapped(frame, table)


def test_a_column_with_a_dot_in_its_name_can_be_taken(spark: Any) -> None:
    frame = spark.createDataFrame([("1", "2")], ["a.b", "c`d"])
    table = Table(source="", format="table", columns={"id": "a.b", "body": "c`d"})
    assert rows_of(mapped(frame, table)) == [{"id": "1", "body": "2"}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "orc"}, "--format must be one of parquet, csv"),
        ({"columns": {"colour": "x"}}, "no message has a field colour"),
        ({"columns": {"id": "a"}, "id_columns": ("b",)}, "--id-column and --id-columns exclude each other"),
        ({"columns": {"expect_date": "a"}, "delay_time": 5}, "the due time is given in several ways"),
        ({"delay_level": 1, "delay_time": 5}, "the due time is given in several ways"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_read(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Table(**({"source": "x", "format": "parquet"} | options)).check()
