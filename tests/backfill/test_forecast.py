"""What a dry run finds, compared with what becomes of the rows."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Message
from delayq.config import load_settings
from delayq.spark.jobs.forecast import Room, forecast, room, twice
from delayq.spark.options import WriteOptions
from tests.backfill.conftest import HOUR, soon
from tests.cli.conftest import Given
from tests.support.amounts import amount

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

SCHEMA = "id string, topic string, body string, expect_date bigint, keys array<string>"


def test_every_row_is_checked_and_nothing_is_scheduled(spark: Any, given: Given) -> None:
    due = soon()
    given.client.schedule(Message(topic="t", id="there", body="x", expect_date=due))
    given.client.schedule(Message(topic="t", id="other", body="y", expect_date=due))
    given.client.schedule(Message(topic="t", id="gone", expect_date=due))
    given.client.cancel("gone")
    rows = [
        ("new", "t", "x", due, ["k"]), ("there", "t", "x", due, None), ("other", "t", "x", due, None),
        ("gone", "t", "", due, None), ("past", "t", "x", due - 2 * HOUR, None), (None, "t", "x", due, None),
        ("bad id", "t", "x", due, None), ("none", "t", "x", None, None), ("far", "t", "x", due * 3, None),
        ("topic", "a b", "x", due, None), ("keys", "t", "x", due, ["a b"]),
    ]  # fmt: skip
    frame = spark.createDataFrame(rows, SCHEMA)
    found = forecast(frame, WriteOptions(run="r1"), load_settings(redis_url=given.url))
    counts = found.counts
    assert (counts.read, counts.scheduled, counts.present, counts.skipped) == (len(rows), 1, 1, 0)
    assert counts.rejected == {"conflict": 1, "cancelled": 1, "past": 1, "id": 2, "due": 2, "topic": 1, "keys": 1}
    assert (found.keys, [count for _, count in found.dues.rows()]) == (1, [1])
    skipping = forecast(frame, WriteOptions(run="r1", past="skip"), load_settings(redis_url=given.url)).counts
    assert (skipping.skipped, skipping.rejected.get("past")) == (1, None)
    now = forecast(frame, WriteOptions(run="r1", past="now"), load_settings(redis_url=given.url)).counts
    assert (now.scheduled, now.skipped) == (2, 0)
    assert given.client.get("new") is None


@pytest.mark.parametrize("length", [10, 60])
def test_the_memory_is_about_what_they_really_take(spark: Any, given: Given, length: int) -> None:
    due, count = soon(), amount(10_000, 20_000)
    given.client.schedule(Message(topic="t", id="first", expect_date=due))
    ids = [f"{n:0{length}d}" for n in range(count)]
    rows = [(id, "t", "x" * 150, due + 17 * n, [f"order-{n}"]) for n, id in enumerate(ids)]
    found = forecast(spark.createDataFrame(rows, SCHEMA), WriteOptions(run="r1"), load_settings(redis_url=given.url))
    before = held(given)
    made = given.client.schedule_many(
        Message(topic=t, id=id, body=body, expect_date=at, keys=tuple(keys), properties={"backfill": "r1"})
        for id, t, body, at, keys in rows
    )
    assert len(made) == count
    assert found.memory("valkey") == pytest.approx(held(given) - before, rel=0.25)


def held(given: Given) -> int:
    """What the server's memory holds for good: a busy disk leaves megabytes in the buffer of its append-only file."""
    memory = given.admin.info("memory")
    return int(memory["used_memory"] - memory["mem_aof_buffer"] - memory["mem_clients_normal"])


def test_ids_that_stand_twice_are_found_if_their_messages_differ(spark: Any) -> None:
    rows = [(id, "t", body, soon(), None) for id, body in (("a", "x"), ("a", "x"), ("b", "x"), ("b", "y"))]
    assert twice(spark.createDataFrame(rows, SCHEMA).repartition(3), WriteOptions()) == 1


def test_a_redis_reports_how_much_room_it_has(given: Given) -> None:
    given.admin.config_set("maxmemory", 10**9)
    try:
        found = room(given.client.store)
    finally:
        given.admin.config_set("maxmemory", 0)
    assert (found.server, found.most, found.primaries) == ("valkey", 10**9, 1)
    assert found.too_small_for(10**9) and not found.too_small_for(1000)
    assert not room(given.client.store).too_small_for(10**15)
    assert not Room(server="redis", used=500, most=1000, primaries=3).too_small_for(1_500)
