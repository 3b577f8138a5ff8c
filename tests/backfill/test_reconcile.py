"""reconcile and export: they compare a table with what is pending, and restore what Redis lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")

from delayq import Client, Message
from tests.backfill.conftest import HOUR, ORDERS, Table, soon
from tests.cli.conftest import Cli, Given
from tests.support.policies import put_policy

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


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


def test_each_kind_of_difference_is_counted_and_listed(
    cli: Cli, given: Given, spark: Any, table: Table, tmp_path: Path
) -> None:
    due = soon()
    rows = [
        ("same", "demo", "x", due), ("missing", "demo", "x", due), ("past", "demo", "x", 10**12), ("late", "demo", "x", due),
        ("dead", "demo", "x", due), ("bad id", "demo", "x", due), ("none", "demo", "x", None),
    ]  # fmt: skip
    expected = table(rows)
    for id, at in (("same", due), ("late", due + 1), ("extra", due)):
        given.client.schedule(Message(topic="demo", id=id, body="x", expect_date=at))
    given.client.schedule(Message(topic="other", id="elsewhere", expect_date=due))
    given.dead_letter("dead")
    given.parked("extra-parked", "t:somewhere")
    code, shape = compared(cli, expected, "--report", tmp_path / "report")
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


def test_a_fix_treats_past_rows_by_its_option(cli: Cli, given: Given, table: Table) -> None:
    rows = table([("new", "t", "x", soon()), ("old", "t", "x", 10**12)])
    code, shape = compared(cli, rows, "--fix", "--past", "skip")
    fixed = shape["fixed"]
    assert (code, (fixed["scheduled"], fixed["skipped"], fixed["rejected"])) == (0, (1, 1, 0))


def test_ids_of_columns_ordering_keys_and_policies_make_no_difference(
    cli: Cli, given: Given, table: Table, tmp_path: Path
) -> None:
    schema = "nr int, ordering_key string, expect_date bigint"
    due = soon()
    rows = [(n, f"user-{n % 3}", due) for n in range(20)]
    half, whole = table(rows[:10], schema, "half"), table(rows, schema)
    words = ("--topic", "t", "--id-columns", "nr")
    assert cli("backfill", half, *words).code == 0
    put_policy(given.client, window=600_000, expireAfter=HOUR)
    assert cli("backfill", whole, *words).code == 0
    code, shape = compared(cli, whole, *words)
    assert (code, shape["same"]) == (0, 20)
    cli("export", tmp_path / "out")
    assert json.loads(cli("backfill", tmp_path / "out", "--json").out)["alreadyThere"] == 20


def test_delays_cannot_be_compared_and_a_report_overwrites_nothing(cli: Cli, given: Given, table: Table) -> None:
    rows = table([("a", 5)], "id string, delay_time bigint")
    assert "only dates can be compared" in cli("reconcile", rows, "--topic", "t").refused()
    dates = table([("a", "t", "x", soon())], name="dates")
    (dates / "missing").mkdir()
    assert "already exists" in cli("reconcile", dates, "--report", dates).refused()


# -- export --------------------------------------------------------------------------------------------------------------


def test_an_export_is_scheduled_as_it_is(cli: Cli, given: Given, tmp_path: Path) -> None:
    due = soon()
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
    due = soon()
    for number in range(5):
        given.client.schedule(Message(topic=f"t{number % 2}", id=f"m{number}", expect_date=due + number))
    words = ("--topic", "t0", "--due-from", str(due + 1), "--due-to", str(due + 3))
    assert dict(cli("export", tmp_path / "a", *words).rows)["exported"] == "1"
    assert "already exists" in cli("export", tmp_path / "a").refused()
    assert "--due-from: use a time" in cli("export", tmp_path / "c", "--due-from", "soon").refused()
