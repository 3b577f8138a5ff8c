"""What becomes of rows: the task's part and the driver's, on a real Valkey, without Spark around them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from delayq import Client, Message
from delayq.base.clock import SystemClock
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.spark.rows.columns import check_columns
from delayq.spark.writing.report import read_report
from delayq.spark.writing.retrying import GivenUp
from delayq.store.keys import spread
from tests.spark.conftest import Write
from tests.support.final import FORWARDED, ended
from tests.support.policies import put_policy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

HOUR = 3_600_000
FAR = 2_000_000_000_000
LARGE = "x" * (1024 * 1024 + 1)

Row = dict[str, Any]


def rejected(folder: Path) -> dict[str, str]:
    """The reasons of the rejected rows by their ids."""
    table = pyarrow.parquet.read_table(folder)
    return dict(zip(table["id"].to_pylist(), table["reject_reason"].to_pylist(), strict=True))


def test_rows_are_scheduled_with_all_that_they_say(write: Write, client: Client) -> None:
    row = {
        "id": "a", "topic": "reviews", "tags": "vip", "keys": ["order-1", "user-7"], "body": "hello",
        "properties": [("source", "table")], "ordering_key": "user-7", "expect_date": FAR, "max_attempts": 3,
        "expire_after": 5_000,
    }  # fmt: skip
    schema = pa.RecordBatch.from_pylist([row | {"properties": None}]).schema
    place = schema.get_field_index("properties")
    schema = schema.set(place, pa.field("properties", pa.map_(pa.string(), pa.string())))
    assert write(pa.RecordBatch.from_pylist([row], schema=schema), run="r1").scheduled == 1
    (letter,) = client.find("order-1")
    assert letter.record is not None
    message = letter.record.message("a")
    assert message == Message(
        id="a",
        topic="reviews",
        tags="vip",
        keys=("order-1", "user-7"),
        body="hello",
        expect_date=FAR,
        properties={"backfill": "r1", "source": "table"},
        ordering_key="user-7",
        max_attempts=3,
        expire_after=5_000,
    )


def test_what_a_target_can_never_take_is_rejected_whatever_way_a_row_goes(
    write: Write, client: Client, folder: Path
) -> None:
    routes = (
        '[{"name": "kafka", "match": "k*", "target": "kafka://k:9092"},'
        ' {"name": "rocket", "target": "rocketmq://r:8081", "options": {"secretKey": "env:NOT_HERE"}}]'
    )
    rows: list[Row] = [
        {"id": "fine", "topic": "k.paid", "body": "", "tags": "a||b", "keys": None},
        {"id": "plain", "topic": "k:paid", "body": "x", "tags": None, "keys": None},
        {"id": "with-keys", "topic": "k:paid", "body": "x", "tags": None, "keys": ["order-1"]},
        {"id": "empty", "topic": "orders", "body": "", "tags": None, "keys": None},
        {"id": "tag", "topic": "orders", "body": "x", "tags": "a||b", "keys": None},
        {"id": "too", "topic": "orders", "body": "x", "tags": "a", "keys": None},
    ]
    counts = write([row | {"expect_date": FAR} for row in rows], commit=True, rejects=str(folder), routes=routes)
    assert (counts.scheduled, counts.rejected) == (2, {"topic": 2, "body": 1, "tags": 1})
    assert rejected(folder) == {"plain": "topic", "with-keys": "topic", "empty": "body", "tag": "tags"}
    assert [found is not None for found in client.get_many(["fine", "too"])] == [True, True]


def test_each_row_is_rejected_for_its_own_reason_and_the_others_are_scheduled(
    write: Write, client: Client, folder: Path
) -> None:
    client.schedule(Message(id="conflict", topic="orders", body="other", expect_date=FAR))
    client.schedule(Message(id="moved", topic="orders", body="b", expect_date=FAR + 1))
    client.schedule(Message(id="cancelled", topic="orders", body="b", expect_date=FAR))
    client.cancel("cancelled")
    row: Row = {
        "id": "good", "topic": None, "tags": None, "keys": None, "body": "b", "ordering_key": None, "delay_time": None,
        "expect_date": FAR, "delay_level": None, "max_attempts": None,
    }  # fmt: skip
    wrong: dict[str, tuple[Row, str]] = {
        "conflict": ({}, "conflict"),
        "moved": ({}, "conflict"),
        "cancelled": ({}, "cancelled"),
        "past": ({"expect_date": 10**12}, "past"),
        "seconds": ({"expect_date": 2_000_000_000}, "due"),
        "none": ({"expect_date": None}, "due"),
        "two": ({"delay_time": 1}, "due"),
        "early": ({"expect_date": -1}, "due"),
        "late": ({"expect_date": 10**13}, "due"),
        "negative": ({"expect_date": None, "delay_time": -1}, "due"),
        "level": ({"expect_date": None, "delay_level": 0}, "due"),
        "no good id": ({}, "id"),
        "large": ({"body": LARGE}, "body"),
        "topic": ({"topic": "a b"}, "topic"),
        "tags": ({"tags": "a\nb"}, "tags"),
        "keys": ({"keys": ["a", "a"]}, "keys"),
        "null-key": ({"keys": [None]}, "keys"),
        "ordering": ({"ordering_key": "\x01"}, "ordering_key"),
        "attempts": ({"max_attempts": 0}, "max_attempts"),
    }
    rows = [row | {"id": id} | changes for id, (changes, _) in wrong.items()]
    counts = write([*rows, row, row | {"id": None}], rejects=str(folder), commit=True)
    assert (counts.read, counts.scheduled, counts.present, counts.all_rejected) == (
        len(wrong) + 2,
        1,
        0,
        len(wrong) + 1,
    )
    assert rejected(folder) == {id: reason for id, (_, reason) in wrong.items()} | {None: "id"}
    assert client.get("good") is not None
    (again,) = pyarrow.parquet.read_table(folder).to_batches()
    assert "expect_date: " in again.column("reject_detail").to_pylist()[list(wrong).index("seconds")]
    check_columns(again.schema, (), "orders")  # once they are corrected they are written as they are
    assert write(again).rejected == counts.rejected
    assert [path.name for path in folder.iterdir() if path.name.startswith("_")] == []


def test_a_bad_text_among_plain_rows_is_rejected_alone(write: Write, client: Client) -> None:
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    columns = [pa.array(["a", "b", "c"]), texts, pa.array([FAR] * 3)]
    counts = write(pa.RecordBatch.from_arrays(columns, ["id", "body", "expect_date"]))
    assert (counts.scheduled, counts.rejected) == (2, {"body": 1})


def test_without_a_folder_the_write_fails_at_its_end_and_says_how_many_and_why(write: Write, client: Client) -> None:
    rows = [{"id": "a", "expect_date": FAR}, {"id": "b", "expect_date": 10**12}, {"id": "c d", "expect_date": FAR}]
    with pytest.raises(Exception, match=r"3 rows read: 1 scheduled, 0 already there, 2 rejected \(id 1, past 1\)"):
        write(rows, commit=True)
    assert client.get("a") is not None
    assert client.get("b") is None


def test_a_second_run_leaves_each_message_once_whatever_its_name(write: Write, client: Client) -> None:
    """F7 (Spark task retry or speculation): With ids from the rows, a partition written twice makes no duplicates."""
    rows = [{"id": f"m-{n}", "expect_date": FAR + n, "body": str(n)} for n in range(50)]
    rows += [{"id": "m-0", "expect_date": FAR, "body": "0"}]
    assert (first := write(rows, run="one")).scheduled == 50 and first.present == 1
    for run in ("one", "two", ""):
        counts = write(rows, run=run)
        assert (counts.scheduled, counts.present, counts.rejected) == (0, 51, {}), run
    assert sum(queue.pool for queue in client.queues()) == 50
    found = client.get("m-7")
    assert found is not None and found.record is not None and found.record.properties == {"backfill": "one"}


def test_a_moved_message_is_the_same_and_another_due_is_a_conflict(write: Write, client: Client) -> None:
    write([{"id": "a", "expect_date": FAR}], run="one")
    client.reschedule("a", expect_date=FAR + HOUR)
    assert write([{"id": "a", "expect_date": FAR}], run="two").present == 1
    assert write([{"id": "a", "expect_date": FAR + HOUR}], run="two").present == 1  # it is due when the row wants it
    assert write([{"id": "a", "expect_date": FAR + 1}], run="two").rejected == {"conflict": 1}


def test_a_relative_due_repeats_safely_while_the_message_is_there(write: Write) -> None:
    rows = [{"id": "a", "delay_time": HOUR}]
    assert write(rows, run="one").scheduled == 1
    assert write(rows, run="two").present == 1


def test_what_was_delivered_fires_nothing_again_whether_its_id_is_remembered_or_not(
    write: Write, valkey: ServerUnderTest, client: Client
) -> None:
    past = SystemClock().now() - HOUR
    rows = [{"id": "a", "expect_date": past}]
    assert write(rows, past="now").scheduled == 1
    assert write(rows).present == 1  # it is there, and due
    found = client.get("a")
    assert found is not None
    for key in ("pool", "queue"):  # delivered, as an owner leaves it
        valkey.admin.delete(f"delayq:{{{found.queue}}}:{key}")
    final = f"delayq:{{{found.queue}}}:final"
    assert found.record is not None
    valkey.admin.zadd(final, {"a": ended(past + HOUR, FORWARDED, found.record.digest)})
    assert write(rows).present == 1
    valkey.admin.zadd(final, {"a": ended(past + HOUR, FORWARDED, found.record.digest ^ 1)})
    assert write(rows).present == 1  # nothing is known of what it was: it may be the same row of another run
    valkey.admin.delete(final)
    assert write(rows).rejected == {"past": 1}
    assert write(rows, past="skip").skipped == 1
    assert client.get("a") is None


def test_a_repeated_task_rejects_nothing_that_fell_due_in_between(write: Write) -> None:
    clock = SystemClock()
    due = clock.now() + 2_000
    rows = [{"id": "a", "expect_date": due}]
    assert write(rows).scheduled == 1
    eventually(lambda: clock.now() > due, "it has fallen due")
    assert write(rows).present == 1


def test_an_unreachable_redis_is_tried_for_a_while_and_named_in_the_end(write: Write) -> None:
    url = f"redis://{LOCALHOST}:{free_port()}/0"
    with pytest.raises(GivenUp, match=r"Redis is unreachable.*gave up.*run the same job again"):
        write([{"id": "a", "expect_date": FAR}], redisUrl=url)
    with pytest.raises(GivenUp, match=r"Redis is unreachable.*gave up"):
        write([{"id": "a", "expect_date": FAR}], redisUrl=url, rate="10", retryFor="150")


def test_a_full_redis_fails_the_task_and_a_rerun_completes_it(write: Write, own_valkey: EmbeddedServer) -> None:
    rows = [{"id": f"m-{n}", "expect_date": FAR, "body": "x" * 1_000} for n in range(3_000)]
    with Client(own_valkey.url) as client:
        admin = client.store
        from delayq.store.commands import plain

        def limit(size: str) -> None:
            admin.run(plain("CONFIG", "SET", "maxmemory", size, read=bool))

        limit("3mb")
        with pytest.raises(GivenUp, match=r"maxmemory.*run the same job again"):
            write(rows, redisUrl=own_valkey.url)
        limit("0")
        counts = write(rows, redisUrl=own_valkey.url)
        assert counts.read == counts.scheduled + counts.present == 3_000
        assert sum(queue.pool for queue in client.queues()) == 3_000


def test_the_report_tells_what_was_committed_of_the_last_write_under_its_name(write: Write, client: Client) -> None:
    rows = [{"id": f"m-{n}", "expect_date": FAR} for n in range(10)]
    write(rows, report="nightly", run="r")
    report = read_report(client, "nightly")
    assert report.total is None and report.running.scheduled == 10
    write([*rows, {"id": "past", "expect_date": 10**12}], report="nightly", run="r", past="skip", commit=True)
    report = read_report(client, "nightly")
    assert report.total is not None
    assert (report.total.read, report.total.scheduled, report.total.present, report.total.skipped) == (11, 0, 10, 1)
    assert read_report(client, "unknown").total is None


def test_timestamps_mean_what_the_session_says(write: Write, client: Client) -> None:
    instant = datetime(2030, 7, 1, 12, 0, 0, 1, tzinfo=UTC)  # a µs more than a whole ms: rounded up
    zoned = pa.array([instant], pa.timestamp("us", tz="Asia/Tokyo"))
    write(pa.RecordBatch.from_arrays([pa.array(["zoned"]), zoned], names=["id", "expect_date"]))
    plain = pa.array([datetime(2030, 7, 1, 12, 0, 0)], pa.timestamp("us"))  # noqa: DTZ001 - it is the subject
    batch = pa.RecordBatch.from_arrays([pa.array(["plain"]), plain], names=["id", "expect_date"])
    write(batch, timeZone="Asia/Tokyo")
    with pytest.raises(GivenUp, match=r"TIMESTAMP_NTZ.*spark.sql.session.timeZone"):
        write(batch)
    noon = int(datetime(2030, 7, 1, 12, tzinfo=UTC).timestamp() * 1000)
    dues = {id: found.due for id in ("zoned", "plain") if (found := client.get(id))}
    assert dues == {"zoned": noon + 1, "plain": noon - 9 * HOUR}


def test_a_rate_is_kept_by_all_tasks_together(write: Write) -> None:
    rows = [{"id": f"m-{n}", "expect_date": FAR} for n in range(40)]
    began = datetime.now(UTC)
    assert write(rows, rate="100", run="together").scheduled == 40
    assert write(rows, rate="100", run="together").present == 40
    # What went last had to wait for the 75 before it; how much longer it takes says nothing.
    assert datetime.now(UTC) - began >= timedelta(milliseconds=740)


def test_rows_follow_the_policies_which_make_no_conflict_of_a_second_run(write: Write, client: Client) -> None:
    rows: list[Row] = [{"id": id, "expect_date": FAR} for id in "abc"]
    assert write(rows).scheduled == 3
    put_policy(client, window=60_000, expireAfter=HOUR, index=["topic"], pending=8)
    counts = write([*rows, *({"id": id, "expect_date": FAR} for id in "defghi")], rejects="")
    # Rows that are there ask for room, too.
    assert (counts.scheduled, counts.present, counts.rejected) == (5, 3, {"pending": 1})
    assert [found.due for found in client.get_many("ad") if found] == [FAR, FAR + spread("d", 60_000)]
    own = write([{"id": "x", "expect_date": FAR, "topic": "other"}, {"id": "a", "expect_date": FAR + 1}], window="5")
    assert (own.scheduled, own.rejected) == (1, {"conflict": 1})
    put_policy(client)
    assert write([*rows, *({"id": id, "expect_date": FAR} for id in "de")]).present == 5
