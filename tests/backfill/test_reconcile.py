"""reconcile and export: what should be pending beside what is, and the way back after Redis lost it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delayq import Client, Message
from tests.backfill.test_backfill import HOUR, ORDERS, now, orders, write
from tests.cli.conftest import Cli, Given
from tests.support.policies import put_policy

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

__all__ = ["orders"]

SCHEMA = "id string, topic string, body string, expect_date bigint"


def all_pending(client: Client) -> dict[str, int]:
    """The asked dues of all messages, by their ids."""
    found: dict[str, int] = {}
    for id in (f"order-{number}" for number in range(1_000)):
        one = client.get(id)
        assert one is not None and one.record is not None
        found[id] = one.record.asked
    return found


def compared(cli: Cli, *words: Any) -> tuple[int, dict[str, Any]]:
    ran = cli("reconcile", *words, "--json")
    return ran.code, json.loads(ran.out)


def test_after_redis_lost_everything_all_of_it_comes_back_as_it_was(cli: Cli, given: Given, orders: Path) -> None:
    assert cli("backfill", orders, *ORDERS, "--run", "r1").code == 0
    before = all_pending(given.client)
    assert compared(cli, orders, *ORDERS)[0] == 0
    given.admin.flushall()
    code, shape = compared(cli, orders, *ORDERS)
    assert (code, shape["missing"], shape["same"], shape["fixed"]) == (1, 1_000, 0, None)
    code, shape = compared(cli, orders, *ORDERS, "--fix", "--run", "r1")
    assert (code, shape["fixed"]["scheduled"]) == (0, 1_000)
    assert all_pending(given.client) == before
    code, shape = compared(cli, orders, *ORDERS)
    assert (code, shape["same"], shape["missing"], shape["extra"]) == (0, 1_000, 0, 0)


def test_each_kind_of_difference_is_counted_and_told(cli: Cli, given: Given, spark: Any, tmp_path: Path) -> None:
    due = now() + HOUR
    rows = [
        ("same", "demo", "x", due), ("missing", "demo", "x", due), ("past", "demo", "x", 1), ("late", "demo", "x", due),
        ("dead", "demo", "x", due), ("bad id", "demo", "x", due), ("none", "demo", "x", None),
    ]  # fmt: skip
    table = write(spark, tmp_path / "rows", rows, SCHEMA)
    for id, at in (("same", due), ("late", due + 1), ("extra", due)):
        given.client.schedule(Message(topic="demo", id=id, body="x", expect_date=at))
    given.client.schedule(Message(topic="other", id="elsewhere", expect_date=due))
    given.dead_letter("dead")
    given.parked("extra-parked", "t:somewhere")
    code, shape = compared(cli, table, "--report", tmp_path / "report")
    counts = {name: shape[name] for name in ("same", "missing", "past", "different", "dead", "extra", "wrong")}
    assert (code, counts) == (
        1,
        {"same": 1, "missing": 1, "past": 1, "different": 1, "dead": 1, "extra": 2, "wrong": 2},
    )

    def told(kind: str) -> list[str]:
        return sorted(row.id for row in spark.read.parquet(str(tmp_path / "report" / kind)).collect())

    assert told("missing") == ["missing"] and told("past") == ["past"] and told("wrong") == ["bad id", "none"]
    assert told("extra") == ["extra", "extra-parked"] and told("dead") == ["dead"]
    (different,) = (
        spark.read.parquet(str(tmp_path / "report" / "different"))
        .selectExpr("id", "unix_millis(expected_due) as expected", "unix_millis(due) as due")
        .collect()
    )
    assert (different.id, different.expected, different.due) == ("late", due, due + 1)


@pytest.mark.parametrize(
    ("past", "code", "counts"), [("reject", 1, (1, 0, 1)), ("skip", 0, (1, 1, 0)), ("now", 0, (2, 0, 0))]
)
def test_a_fix_does_with_what_is_past_as_it_is_told(
    cli: Cli, given: Given, spark: Any, tmp_path: Path, past: str, code: int, counts: tuple[int, ...]
) -> None:
    table = write(spark, tmp_path / "rows", [("new", "t", "x", now() + HOUR), ("old", "t", "x", 1)], SCHEMA)
    found, shape = compared(cli, table, "--fix", "--past", past)
    fixed = shape["fixed"]
    assert (found, (fixed["scheduled"], fixed["skipped"], fixed["rejected"])) == (code, counts)


def test_ids_of_columns_and_ordering_keys_are_compared_as_they_are_kept(
    cli: Cli, given: Given, spark: Any, tmp_path: Path
) -> None:
    rows = [(n, f"user-{n % 3}", now() + HOUR) for n in range(20)]
    table = write(spark, tmp_path / "rows", rows, "nr int, ordering_key string, expect_date bigint")
    words = (table, "--topic", "t", "--id-columns", "nr")
    assert cli("backfill", *words).code == 0
    code, shape = compared(cli, *words)
    assert (code, shape["same"]) == (0, 20)


def test_what_a_window_or_a_policy_has_spread_is_as_the_table_says(
    cli: Cli, given: Given, spark: Any, tmp_path: Path
) -> None:
    rows = [(f"m{n}", "orders", "x", now() + HOUR) for n in range(20)]
    table = write(spark, tmp_path / "rows", rows, SCHEMA)
    half = write(spark, tmp_path / "half", rows[:10], SCHEMA)
    assert cli("backfill", half).code == 0
    put_policy(given.client, window=600_000, expireAfter=HOUR)
    assert cli("backfill", table).code == 0
    code, shape = compared(cli, table)
    assert (code, shape["same"]) == (0, 20)
    cli("export", tmp_path / "out")
    assert json.loads(cli("backfill", tmp_path / "out", "--json").out)["alreadyThere"] == 20


def test_delays_cannot_be_compared(cli: Cli, given: Given, spark: Any, tmp_path: Path) -> None:
    table = write(spark, tmp_path / "rows", [("a", 5)], "id string, delay_time bigint")
    assert "only dates can be compared" in cli("reconcile", table, "--topic", "t").refused()


def test_a_report_folder_that_is_there_is_left_alone(cli: Cli, given: Given, orders: Path) -> None:
    assert cli("backfill", orders, *ORDERS).code == 0
    (orders / "missing").mkdir()
    assert "already exists" in cli("reconcile", orders, *ORDERS, "--report", orders).refused()


# -- export --------------------------------------------------------------------------------------------------------------


def test_an_export_is_scheduled_as_it_is(cli: Cli, given: Given, tmp_path: Path) -> None:
    due = now() + HOUR
    messages = [
        Message(topic="t", id="text", body="é", expect_date=due, tags="vip", keys=("a", "b"), properties={"x": "y"}),
        Message(topic="t", id="json", body={"n": 12345678901234567890, "x": [None]}, expect_date=due + 1),
        Message(topic="t", id="bytes", body=b"\x00\xff", expect_date=due + 2, max_attempts=3, expire_after=5_000),
        Message(topic="u", id="lane", body="x", delay_time=HOUR, ordering_key="user-7"),
    ]  # fmt: skip
    ids = [one.id for one in given.client.schedule_many(messages) if not isinstance(one, Exception)]
    before = [one.record.message(one.id) for one in given.client.get_many(ids) if one is not None and one.record]
    ran = cli("export", tmp_path / "out", "--json")
    assert (ran.code, json.loads(ran.out)["exported"]) == (0, 4)
    there = json.loads(cli("backfill", tmp_path / "out", "--json").out)
    assert (there["alreadyThere"], there["rejected"]) == (4, 0)
    given.admin.flushall()
    back = json.loads(cli("backfill", tmp_path / "out", "--run", "back", "--json").out)
    assert (back["scheduled"], back["rejected"]) == (4, 0)
    after = [one.record.message(one.id) for one in given.client.get_many(ids) if one is not None and one.record]
    assert [_without_run(one) for one in after] == before


def _without_run(message: Message) -> Message:
    import msgspec

    assert message.properties["backfill"] == "back"
    properties = {name: value for name, value in message.properties.items() if name != "backfill"}
    return msgspec.structs.replace(message, properties=properties)


def test_dead_letters_are_exported_with_their_reasons_and_come_back(
    cli: Cli, given: Given, spark: Any, tmp_path: Path
) -> None:
    given.scheduled("pending")
    given.dead_letter("dead", "no such user")
    assert dict(cli("export", tmp_path / "dead", "--dead").rows)["exported"] == "1"
    (row,) = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert (row.id, row.reason, row.state, row.attempts) == ("dead", "no such user", "dead", 1)
    given.admin.flushall()
    back = json.loads(cli("backfill", tmp_path / "dead", "--past", "now", "--json").out)
    assert (back["scheduled"], back["rejected"]) == (1, 0)


def test_an_export_can_be_of_a_part(cli: Cli, given: Given, tmp_path: Path) -> None:
    due = now() + HOUR
    for number in range(5):
        given.client.schedule(Message(topic=f"t{number % 2}", id=f"m{number}", expect_date=due + number))
    assert dict(cli("export", tmp_path / "a", "--topic", "t0").rows)["exported"] == "3"
    part = cli("export", tmp_path / "b", "--due-from", str(due + 1), "--due-to", str(due + 3))
    assert dict(part.rows)["exported"] == "2"
    assert "already exists" in cli("export", tmp_path / "a").refused()
    assert "option dueFrom" in cli("export", tmp_path / "c", "--due-from", "soon").refused()
