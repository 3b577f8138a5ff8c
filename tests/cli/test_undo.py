"""backfill undo: what is pending of a run is cancelled, whatever it is that holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq import Client, Message, Settings
from delayq.base.errors import StoreUnavailable
from delayq.store import commands
from tests.cli.conftest import Cli, Given
from tests.support.clusters import QUEUES, ClusterUnderTest

RUN = {"backfill": "r1"}


def many(count: int, run: str, size: int = 10) -> Iterator[Message]:
    for number in range(count):
        yield Message(
            topic="demo", id=f"{run}-{number}", body="x" * size, delay_time=3_600_000, properties={"backfill": run}
        )


def test_only_what_belongs_to_the_run_is_cancelled_and_again_there_is_nothing(cli: Cli, given: Given) -> None:
    given.client.schedule_many([*many(600, "r1"), *many(90, "r2")])
    given.scheduled("other")
    ran = cli("backfill", "undo", "r1")
    assert (ran.code, ran.rows, ran.err) == (0, [["cancelled", "600"], ["tooLate", "0"], ["dead", "0"]], "")
    assert sum(one.scheduled for one in given.client.queues()) == 91
    found = given.client.get("r1-7")
    assert found is not None and found.state == "cancelled"
    again = cli("backfill", "undo", "r1", "--json")
    assert (again.code, json.loads(again.out)) == (1, {"run": "r1", "cancelled": 0, "tooLate": 0, "dead": 0})
    assert again.sentence() == "no message of the run r1 is pending."


def test_what_is_too_late_is_counted_and_dead_letters_stay(cli: Cli, given: Given) -> None:
    given.scheduled("late", delay_time=0, properties=RUN)
    given.dead_letter("dead", "no", properties=RUN)
    given.scheduled("pending", properties=RUN)
    ran = cli("backfill", "undo", "r1", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"run": "r1", "cancelled": 1, "tooLate": 1, "dead": 1})
    assert "1 dead letter of the run left" in ran.sentence()
    assert [one.id for one in given.client.dead_letters().letters] == ["dead"]
    assert given.client.get("late").state == "removedInFlight"  # type: ignore[union-attr]  # removed, and remembered


def test_it_finds_them_in_every_layout(cli: Cli, given: Given) -> None:
    given.client.schedule_many(many(100, "r1"))
    assert cli("reshard", "--queues", "4").code == 0
    with Client(given.url) as client:
        client.schedule_many(
            Message(topic="demo", id=f"new-{n}", delay_time=3_600_000, properties=RUN) for n in range(100)
        )
    ran = cli("backfill", "undo", "r1", "--json")
    assert (ran.code, json.loads(ran.out)["cancelled"]) == (0, 200)


def test_the_corrected_file_of_a_run_that_was_undone_is_scheduled_at_once(
    cli: Cli, given: Given, tmp_path: Path
) -> None:
    def backfill(body: str, *more: str) -> dict[str, Any]:
        rows = [{"id": f"order-{number}", "expect_date": 2_000_000_000_000, "body": body} for number in range(20)]
        file = tmp_path / "orders.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        ran = cli(
            "backfill", str(file), "--format", "json", "--topic", "demo", "--local", "--run", "r1", "--json", *more
        )
        found: dict[str, Any] = json.loads(ran.out)
        return found

    assert backfill("wrong")["scheduled"] == 20
    assert cli("backfill", "undo", "r1").code == 0
    assert backfill("right")["scheduled"] == 20
    assert backfill("right")["alreadyThere"] == 20
    given.client.cancel_many([f"order-{number}" for number in range(5)])
    refused = backfill("right")
    assert (refused["scheduled"], refused["rejected"]) == (0, 5)
    assert backfill("right", "--again")["scheduled"] == 5
    found = given.client.get("order-1")
    assert found is not None and found.record is not None and found.record.body == "right"


def test_an_order_that_is_opened_again_is_scheduled_under_its_id(cli: Cli, given: Given) -> None:
    given.scheduled("order-1", keys=("k",))
    call = ("schedule", "demo", "anew", "--delay", "1h", "--id", "order-1")
    assert cli("cancel", "order-1").code == 0
    assert "set 'again'" in cli(*call).refused()
    assert [cli(*call, "--again").rows[0][2] for _ in range(2)] == ["scheduled", "already scheduled"]
    assert "again" in cli("schedule", "demo", "anew", "--delay", "1h", "--again").refused()


@pytest.mark.long
def test_it_finds_them_in_a_cluster(cli: Cli, cluster: ClusterUnderTest) -> None:
    with Client(cluster.url, settings=Settings(queues=QUEUES)) as client:
        client.schedule_many([*many(500, "r1"), *many(50, "r2")])
        ran = cli("backfill", "undo", "r1", "--json", "--redis-url", cluster.url)
        assert (ran.code, json.loads(ran.out)["cancelled"]) == (0, 500)
        assert sum(one.scheduled for one in client.queues()) == 50


def test_broken_off_it_says_how_far_it_came_and_can_be_done_again_in_small_pages_where_messages_are_large(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.client.schedule_many(many(500, "r1"))
    search = commands.find_by_property
    looks: list[int] = []
    most = 8

    def dies(keys: object, cursor: str, look: int, *rest: object) -> object:
        looks.append(look)
        if len(looks) > most:
            raise StoreUnavailable("Redis is away")
        return search(keys, cursor, look, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(commands, "find_by_property", dies)
    ran = cli("backfill", "undo", "r1", "--json")
    shape = json.loads(ran.out)
    assert ran.code == 2 and 0 < shape["cancelled"] < 500
    assert "Redis is away" in ran.sentence() and "run the same command again" in ran.sentence()
    most = 1_000_000
    again = cli("backfill", "undo", "r1", "--json")
    assert json.loads(again.out)["cancelled"] == 500 - shape["cancelled"]
    given.client.schedule_many(many(100, "r2", size=100_000))
    looks.clear()
    assert json.loads(cli("backfill", "undo", "r2", "--json").out)["cancelled"] == 100
    assert max(looks) <= 32


def test_what_is_no_run_is_refused(cli: Cli, given: Given) -> None:
    for run in ("", "a\nb", "x" * 9_000):
        assert cli("backfill", "undo", run).refused().startswith("RUN: ")
