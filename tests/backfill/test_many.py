"""Many rows, and every reason for which one is rejected."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from delayq import Message
from tests.backfill.test_backfill import HOUR, now
from tests.cli.conftest import Cli, Given

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

#: A multiple of a hundred. `DELAYQ_TEST_ROWS=1000000` makes them a million, as CONTRIBUTING.md has it.
ROWS: Final = int(os.environ.get("DELAYQ_TEST_ROWS", "100000"))
#: Of a hundred rows, so many are wrong in this way: the field as SQL, and the reason.
WRONG: Final = {
    1: ("id", "cast(null as string)", "id"),
    2: ("id", "concat('bad id ', n)", "id"),
    3: ("expect_date", "cast(null as bigint)", "due"),
    4: ("delay_time", "5000", "due"),
    5: ("expect_date", "99999999999999", "due"),
    6: ("expect_date", "1000", "past"),
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


def test_every_reason_is_counted_and_no_bad_row_stops_a_good_one(
    cli: Cli, given: Given, spark: Any, tmp_path: Path
) -> None:
    due = now() + HOUR
    columns = []
    for name, good in GOOD.items():
        cases = "".join(f" when n % 100 = {n} then {sql}" for n, (field, sql, _) in WRONG.items() if field == name)
        good = good.replace("{due}", str(due))
        columns.append(f"case{cases} else {good} end as {name}" if cases else f"{good} as {name}")
    rows = spark.range(ROWS).withColumnRenamed("id", "n").selectExpr(*columns)
    others = {"id": "concat('large', n)", "body": "repeat('x', 1100000)", "body_type": "'text'"}
    fields = {name: sql.replace("{due}", str(due)) for name, sql in GOOD.items()} | others
    large = (
        spark.range(3).withColumnRenamed("id", "n").selectExpr(*(f"{sql} as {name}" for name, sql in fields.items()))
    )
    rows.unionByName(large).repartition(4).write.parquet(str(tmp_path / "rows"))
    for number in (20, 21, 22):  # ids that are taken, or were
        given.client.schedule(Message(topic="t", id=f"m{number}", body="other", expect_date=due))
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
    assert sum(one.scheduled for one in given.client.stats()) == shape["scheduled"] + 2
