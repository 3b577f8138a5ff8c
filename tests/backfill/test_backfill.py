"""The command backfill, on a real Spark and a real Valkey."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from delayq.cli import main
from tests.cli.conftest import Cli, Given

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

HOUR = 3_600_000
#: Of an order: the options that make a message of it.
ORDERS = ("--topic", "orders.unpaid", "--id-column", "nr", "--expect-date-column", "due_at", "--map", "text=body")


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def orders(spark: Any, tmp_path: Path) -> Path:
    """A table of 1,000 orders, due from an hour from now on, one a second."""
    folder, due = tmp_path / "orders", now() + HOUR
    frame = spark.range(1_000).selectExpr(
        "concat('order-', id) as nr",
        f"timestamp_millis({due} + 1000 * id) as due_at",
        "concat('order ', id) as text",
        "'red' as colour",
    )
    frame.repartition(3).write.parquet(str(folder))
    return folder


def write(spark: Any, folder: Path, rows: list[tuple[Any, ...]], schema: str) -> Path:
    spark.createDataFrame(rows, schema).write.parquet(str(folder))
    return folder


def test_the_same_again_schedules_nothing_and_a_run_can_be_undone(cli: Cli, given: Given, orders: Path) -> None:
    first = cli("backfill", orders, *ORDERS)
    run = dict(first.rows)["run"]
    again = dict(cli("backfill", orders, *ORDERS).rows)
    assert (again["scheduled"], again["alreadyThere"]) == ("0", "1000")
    assert json.loads(cli("backfill", "undo", run, "--json").out)["cancelled"] == 1_000
    assert sum(one.scheduled for one in given.client.stats()) == 0


@pytest.mark.parametrize("bad", [("past", "t", 1, "x"), ("a", "t", None, "x"), ("good", "t", 4_000_000_000_000, "y")])
def test_strict_schedules_nothing_if_one_row_is_rejected(
    cli: Cli, given: Given, spark: Any, tmp_path: Path, bad: tuple[Any, ...]
) -> None:
    rows = [("good", "t", now() + HOUR, "x"), bad]
    if bad[0] == "good":  # the same id, another body
        rows = [("good", "t", now() + HOUR, "x"), ("good", "t", rows[0][2], "y")]
    table = write(spark, tmp_path / "rows", rows, "id string, topic string, expect_date bigint, body string")
    ran = cli("backfill", table, "--strict", "--json")
    shape = json.loads(ran.out)
    assert (ran.code, shape["scheduled"], shape["rejected"]) == (1, 0, 1)
    assert "nothing was scheduled" in ran.sentence()
    assert sum(one.scheduled for one in given.client.stats()) == 0


def test_strict_schedules_a_table_that_is_good(cli: Cli, given: Given, orders: Path) -> None:
    assert json.loads(cli("backfill", orders, *ORDERS, "--strict", "--json").out)["scheduled"] == 1_000


def test_a_dry_run_tells_when_and_how_much_and_schedules_nothing(cli: Cli, given: Given, orders: Path) -> None:
    given.admin.config_set("maxmemory", "1gb")
    try:
        shape = json.loads(cli("backfill", orders, *ORDERS, "--dry-run", "--json").out)
        lines = cli("backfill", orders, *ORDERS, "--dry-run")
        given.admin.config_set("maxmemory", given.admin.info("memory")["used_memory"] + 100_000)
        tight = cli("backfill", orders, *ORDERS, "--dry-run")
    finally:
        given.admin.config_set("maxmemory", 0)
    assert (shape["dryRun"], shape["scheduled"], shape["maxMemory"]) == (True, 1_000, 1024**3)
    assert 200_000 < shape["memory"] < 500_000
    assert sum(one["messages"] for one in shape["dues"]) == 1_000
    assert sum(int(row[1]) for row in lines.rows if len(row) == 3) == 1_000
    assert (lines.code, lines.err, tight.code) == (0, "", 0)
    assert "this does not fit" in tight.sentence()
    assert sum(one.scheduled for one in given.client.stats()) == 0


def test_relative_dues_come_with_a_warning(cli: Cli, given: Given, spark: Any, tmp_path: Path) -> None:
    table = write(spark, tmp_path / "rows", [("a", "1h"), ("b", "PT2H")], "id string, wait string")
    ran = cli("backfill", table, "--topic", "t", "--delay-time-column", "wait", "--json")
    assert json.loads(ran.out)["scheduled"] == 2
    assert "the same again is harmless only while its message lives" in ran.err
    level = cli("backfill", table, "--topic", "u", "--delay-level", "18", "--id-columns", "id", "--json")
    assert json.loads(level.out)["scheduled"] == 2 and "harmless" in level.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nowhere",), "Path does not exist"),
        (("x", "--format", "orc"), "--format is one of parquet"),
        (("x", "--map", "body"), "--map: write it as COLUMN=FIELD"),
        (("x", "--map", "a=colour"), "no message has a field colour"),
        (("x", "--past", "maybe"), "option past"),
        (("x", "--delay-time", "soon"), "--delay-time: write a duration"),
        (("x", "--delay-time", "1h", "--delay-level", "3"), "say when in one way"),
        (("x", "--rate", "-1"), "--rate"),
        (("x", "--run", "a b"), "option run"),
        (("x", "--master", "local"), "--master"),
        (("x", "--topic", "a b"), "topic"),
    ],
)
def test_bad_use_is_told_in_one_sentence(cli: Cli, given: Given, spark: Any, words: tuple[str, ...], why: str) -> None:
    assert why in cli("backfill", *words).refused()


def test_a_redis_that_is_away_is_told_before_spark_starts(cli: Cli, alone: None) -> None:
    assert "Redis" in cli("backfill", "x", "--topic", "t", "--redis-url", "redis://127.0.0.1:1/0").refused()


def test_the_help_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backfill", "--help"]) == 0
    assert "--expect-date-column" in capsys.readouterr().out
