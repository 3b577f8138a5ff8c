"""The command backfill on a real Spark and a real Valkey."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from delayq import Message
from delayq.cli import main
from delayq.spark.rows.tables import Table as Table_
from delayq.spark.rows.tables import read
from tests.backfill.conftest import HOUR, ORDERS, Table, soon
from tests.backfill.test_local import check_correcting
from tests.cli.conftest import Cli, Given
from tests.support.amounts import amount

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

#: Bad use, and a part of the sentence about it.
BAD_USE: Final = {
    ("nowhere",): "Path does not exist",
    ("x", "--format", "orc"): "--format must be one of parquet",
    ("x", "--map", "body"): "--map: use COLUMN=FIELD",
    ("x", "--map", "a=colour"): "no message has a field colour",
    ("x", "--past", "maybe"): "option past",
    ("x", "--delay-time", "soon"): "--delay-time: use a duration",
    ("x", "--delay-time", "1h", "--delay-level", "3"): "the due time is given in several ways",
    ("x", "--rate", "-1"): "--rate",
    ("x", "--run", "a b"): "option run",
    ("x", "--master", "local"): "--master",
    ("x", "--topic", "a b"): "topic",
}
#: A multiple of a hundred.
ROWS: Final = amount(20_000, 1_000_000)
#: Of a hundred rows, the row with this number is wrong: the field, its value as SQL, and the reason.
WRONG: Final = {
    1: ("id", "cast(null as string)", "id"),
    2: ("id", "concat('bad id ', n)", "id"),
    3: ("expect_date", "cast(null as bigint)", "due"),
    4: ("delay_time", "5000", "due"),
    5: ("expect_date", "99999999999999", "due"),
    6: ("expect_date", "1000000000000", "past"),
    7: ("topic", "'a b'", "topic"),
    8: ("keys", "array('a b')", "keys"),
    9: ("keys", "array('a', 'a')", "keys"),
    10: ("properties", "map('a\\tb', 'c')", "properties"),
    11: ("tags", "repeat('x', 300)", "tags"),
    12: ("ordering_key", "repeat('x', 300)", "ordering_key"),
    13: ("max_attempts", "0", "max_attempts"),
    14: ("expire_after", "-1", "expire_after"),
    15: ("body_type", "'xml'", "body"),
    16: ("body", "'{'", "body"),
}
GOOD: Final = {
    "id": "concat('m', n)", "topic": "'t'", "body": "'{}'", "body_type": "'json'", "expect_date": "{due} + n",
    "delay_time": "cast(null as bigint)", "keys": "array(concat('k', n))", "tags": "'x'",
    "properties": "cast(null as map<string,string>)", "ordering_key": "cast(null as string)", "max_attempts": "3",
    "expire_after": "cast(null as bigint)",
}  # fmt: skip


def test_the_same_again_schedules_nothing_and_a_run_can_be_undone(cli: Cli, given: Given, orders: Path) -> None:
    first = json.loads(cli("backfill", orders, *ORDERS, "--strict", "--json").out)
    assert first["scheduled"] == 1_000
    again = dict(cli("backfill", orders, *ORDERS).rows)
    assert (again["scheduled"], again["alreadyThere"]) == ("0", "1000")
    assert json.loads(cli("backfill", "undo", first["run"], "--json").out)["cancelled"] == 1_000
    assert sum(one.scheduled for one in given.client.queues()) == 0


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_refused_rows_can_be_corrected(cli: Cli, given: Given, spark: Any, tmp_path: Path, form: str) -> None:
    check_correcting(cli, given, tmp_path, form)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_refused_row_has_its_line_also_in_a_file_that_several_tasks_read(
    spark: Any, tmp_path: Path, form: str
) -> None:
    bodies = [f"body {number}" for number in range(50)]
    lines = ['"id","body"', "", *(f'"{n}","{body}"' for n, body in enumerate(bodies))]
    if form == "json":
        lines = ["", "", *(json.dumps({"id": n, "body": body}) for n, body in enumerate(bodies))]
    (tmp_path / "rows").write_text("\n".join(lines))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "300")
    try:
        found = read(spark, Table_(source=str(tmp_path / "rows"), format=form), rows=True).collect()
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert sorted((row["reject_line"], row["reject_file"], row["body"]) for row in found) == [
        (line, "rows", body) for line, body in enumerate(bodies, start=3)
    ]


def test_strict_schedules_nothing_if_one_row_is_rejected(cli: Cli, given: Given, table: Table) -> None:
    due = soon()
    for number, bad in enumerate(
        (("past", "t", "x", 10**12), ("good", "t", "y", due))
    ):  # the second has the id of another
        ran = cli("backfill", table([("good", "t", "x", due), bad], name=f"rows-{number}"), "--strict", "--json")
        shape = json.loads(ran.out)
        assert (ran.code, shape["scheduled"], shape["rejected"]) == (1, 0, 1)
        assert "nothing was scheduled" in ran.sentence()
        assert sum(one.scheduled for one in given.client.queues()) == 0


def test_a_dry_run_reports_when_and_how_much_and_schedules_nothing(cli: Cli, given: Given, orders: Path) -> None:
    given.admin.config_set("maxmemory", "1gb")
    try:
        shape = json.loads(cli("backfill", orders, *ORDERS, "--dry-run", "--json").out)
        given.admin.config_set("maxmemory", given.admin.info("memory")["used_memory"] + 100_000)
        tight = cli("backfill", orders, *ORDERS, "--dry-run")
    finally:
        given.admin.config_set("maxmemory", 0)
    assert (shape["dryRun"], shape["scheduled"], shape["maxMemory"]) == (True, 1_000, 1024**3)
    assert 200_000 < shape["memory"] < 500_000
    assert sum(one["messages"] for one in shape["buckets"]) == 1_000
    assert sum(int(row[1]) for row in tight.rows if row[0].startswith("20")) == 1_000
    assert tight.code == 0
    assert "Redis has too little memory" in tight.sentence()
    assert sum(one.scheduled for one in given.client.queues()) == 0


def test_relative_due_times_come_with_a_warning(cli: Cli, given: Given, table: Table) -> None:
    rows = table([("a", "1h"), ("b", "PT2H")], "id string, wait string")
    ran = cli("backfill", rows, "--topic", "t", "--delay-time-column", "wait", "--json")
    assert json.loads(ran.out)["scheduled"] == 2
    assert "repeat this run only within" in ran.err and "after its messages ended" in ran.err
    level = cli("backfill", rows, "--topic", "u", "--delay-level", "18", "--id-columns", "id", "--json")
    assert json.loads(level.out)["scheduled"] == 2 and "repeat this run only within" in level.err


def test_bad_use_is_refused_in_one_sentence(
    cli: Cli, given: Given, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, why in BAD_USE.items():
        assert why in cli("backfill", *words).refused(), words
    assert "Redis" in cli("backfill", "x", "--topic", "t", "--redis-url", "redis://127.0.0.1:1/0").refused()
    assert main(["backfill", "--help"]) == 0
    assert "--expect-date-column" in capsys.readouterr().out


def test_every_reason_is_counted_and_no_bad_row_stops_a_good_one(
    cli: Cli, given: Given, spark: Any, tmp_path: Path
) -> None:
    due = soon()
    fields = {name: sql.replace("{due}", str(due)) for name, sql in GOOD.items()}
    columns = []
    for name, good in fields.items():
        cases = "".join(f" when n % 100 = {n} then {sql}" for n, (field, sql, _) in WRONG.items() if field == name)
        columns.append(f"case{cases} else {good} end as {name}" if cases else f"{good} as {name}")
    rows = spark.range(ROWS).withColumnRenamed("id", "n").selectExpr(*columns)
    fields |= {"id": "concat('large', n)", "body": "repeat('x', 1100000)", "body_type": "'text'"}
    large = (
        spark.range(3).withColumnRenamed("id", "n").selectExpr(*(f"{sql} as {name}" for name, sql in fields.items()))
    )
    rows.unionByName(large).repartition(4).write.parquet(str(tmp_path / "rows"))
    for number in (20, 21, 22):  # taken ids, one of them of a cancelled message
        given.client.schedule(Message(topic="t", id=f"m{number}", body="other", expect_date=due + HOUR))
    given.client.cancel("m22")
    ran = cli("backfill", tmp_path / "rows", "--rejects", tmp_path / "rejects", "--json")
    shape = json.loads(ran.out)
    wanted: dict[str, int] = {"conflict": 2, "cancelled": 1, "body": 3}
    for _, _, reason in WRONG.values():
        wanted[reason] = wanted.get(reason, 0) + ROWS // 100
    assert (ran.code, shape["reasons"]) == (1, dict(sorted(wanted.items())))
    assert shape["read"] == ROWS + 3
    assert shape["scheduled"] == ROWS + 3 - sum(wanted.values())
    rejected = spark.read.parquet(str(tmp_path / "rejects"))
    found = {row["reject_reason"]: row["count"] for row in rejected.groupBy("reject_reason").count().collect()}
    assert found == wanted
    assert rejected.where("reject_detail is null or reject_detail = ''").count() == 0
    assert sum(one.scheduled for one in given.client.queues()) == shape["scheduled"] + 2
