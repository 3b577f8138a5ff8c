"""Without Spark, a table becomes the same messages as by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.spark.rows.tables import Table, mapped, read
from tests.backfill.test_local import FAR, csv, lines, local, messages, table_of_csv

__all__ = ["csv", "lines"]

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def by_spark(spark: Any, table: Table) -> list[Any]:
    return messages(mapped(read(spark, table), table).toArrow().to_batches(), table)


def test_csv_and_json_become_the_same_messages(spark: Any, csv: Path, lines: Path) -> None:
    for table in (table_of_csv(csv), Table(source=str(lines), format="json", topic="orders")):
        found = local(table)
        assert len(found) >= 4
        assert sorted(found, key=str) == sorted(by_spark(spark, table), key=str)


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_parquet_of_spark_becomes_the_same_messages(spark: Any, tmp_path: Path, kind: str) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame = spark.range(50).selectExpr(
            "concat('order-', id) as id",
            f"timestamp_millis({FAR} + 1000 * id) as expect_date",
            "named_struct('z', id, 'at', timestamp_millis(1000 * id), 'price', cast(id as decimal(9,2))) as body",
            "map('a', cast(id as string)) as properties",
            "array('k') as keys",
        )
        frame.repartition(3).write.parquet(str(tmp_path / "orders"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    table = Table(source=str(tmp_path / "orders"), format="parquet", topic="orders")
    assert sorted(local(table), key=str) == sorted(by_spark(spark, table), key=str)
    assert sorted(one.expect_date for one in local(table)) == [FAR + 1000 * number for number in range(50)]
