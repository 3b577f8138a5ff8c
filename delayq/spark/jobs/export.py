"""Pending messages or dead letters as a table of fields, which can be scheduled unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delayq.spark.source import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The fields of messages, followed by other facts, which are ignored when the table is scheduled.
_COLUMNS: Final = (
    "id", "topic", "asked_due as expect_date", "body", "body_type", "tags", "keys", "properties", "ordering_key",
    "max_attempts", "expire_after", "due", "attempts", "queue", "state", "reason", "dead_time",
)  # fmt: skip


def save(spark: SparkSession, options: Mapping[str, str], folder: str) -> int:
    """Write the messages of these options into a new folder, as Parquet. Return their number."""
    spark.dataSource.register(DefaultSource)
    found = spark.read.format("delayq").options(**options).load().selectExpr(*_COLUMNS)
    found.write.mode("errorifexists").parquet(folder)
    return spark.read.parquet(folder).count()
