"""The commands run in this process, on an empty Valkey. They find and use the Spark session of the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import Cli, Given, alone, cli, cli_server
from tests.cli.conftest import given as without_worker
from tests.spark.conftest import spark
from tests.support.nodes import publish_routes

__all__ = [
    "HOUR", "ORDERS", "SCHEMA", "Cli", "Given", "Table", "alone", "cli", "cli_server", "given", "soon", "spark",
    "without_worker",
]  # fmt: skip

HOUR: Final = 3_600_000
#: The options that make a message of an order.
ORDERS: Final = [
    "--topic",
    "orders.unpaid",
    "--id-column",
    "nr",
    "--expect-date-column",
    "due_at",
    "--map",
    "text=body",
]
SCHEMA: Final = "id string, topic string, body string, expect_date bigint"
Table = Callable[..., Path]


def soon() -> int:
    """In an hour, in Unix ms."""
    return time.time_ns() // 1_000_000 + HOUR


@pytest.fixture
def given(without_worker: Given) -> Given:
    """An empty server, and a worker that takes every topic for longer than any test lasts."""
    publish_routes(without_worker.url, [{"name": "streams", "match": "*", "target": "redis+stream:"}], age=-HOUR)
    return without_worker


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Table:
    """Writes rows as a Parquet table, and returns its folder."""

    def write(rows: list[tuple[Any, ...]], schema: str = SCHEMA, name: str = "rows") -> Path:
        spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / name))
        return tmp_path / name

    return write


@pytest.fixture
def orders(spark: Any, tmp_path: Path) -> Path:
    """A table of 1,000 orders that are due from an hour from now on, one a second."""
    frame = spark.range(1_000).selectExpr(
        "concat('order-', id) as nr",
        f"timestamp_millis({soon()} + 1000 * id) as due_at",
        "concat('order ', id) as text",
        "'red' as colour",
    )
    frame.repartition(2).write.parquet(str(tmp_path / "orders"))
    return tmp_path / "orders"
