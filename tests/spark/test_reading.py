"""What a reading task does, on a real Valkey, without Spark around it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")

import pyarrow as pa
from pyspark.sql.types import IntegerType, ShortType, StringType, StructField, StructType, TimestampType

from delayq import Client, Message
from delayq.base.errors import ConfigError
from delayq.config import load_settings
from delayq.spark.jobs.reading import MessageReader
from delayq.spark.options import ReadOptions
from delayq.spark.writing.retrying import GivenUp
from delayq.store.connect.store import Store
from tests.house.processes import ROOT
from tests.spark.conftest import QUEUES
from tests.support.queues import Queue, row
from tests.support.servers import ServerUnderTest

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

SCHEMA = StructType(
    [
        StructField("id", StringType()), StructField("queue", IntegerType()), StructField("state", StringType()),
        StructField("due", TimestampType()), StructField("reason", StringType()),
        StructField("dead_time", TimestampType()),
    ]
)  # fmt: skip
FAR = 2_000_000_000_000


def reader(server: ServerUnderTest, **options: str) -> MessageReader:
    given = {"retryFor": "0", **options}
    return MessageReader(SCHEMA, ReadOptions.parse(given), load_settings(redis_url=server.url))


def rows(server: ServerUnderTest, **options: str) -> list[dict[str, Any]]:
    """All rows of all tasks."""
    reading = reader(server, **options)
    return [one for part in reading.partitions() for batch in reading.read(part) for one in batch.to_pylist()]


@pytest.fixture
def q(valkey: ServerUnderTest, client: Client) -> Iterator[Queue]:
    """Queue 3 of the layout."""
    store = Store(valkey.url)
    yield Queue(store, valkey, QUEUES - 1)
    store.close()


def test_dead_letters_are_read_with_their_reasons_and_pending_ones_without_them(
    q: Queue, valkey: ServerUnderTest
) -> None:
    q.given(*(row(f"m-{n}", at=5_000 + n) for n in range(230)), now=4_000)
    q.bury(*q.take(now=6_000), reason="broken")
    q.given(row("later", at=FAR), row("parked", at=6_000), now=5_000)
    q.park("t:kafka", q.take_one(now=6_000))
    dead = rows(valkey, dead="true")
    assert sorted(one["id"] for one in dead) == sorted(f"m-{n}" for n in range(230))
    assert {(one["state"], one["reason"], one["due"], one["queue"]) for one in dead} == {("dead", "broken", None, 3)}
    assert dead[0]["dead_time"] is not None
    assert {(one["id"], one["state"]) for one in rows(valkey)} == {("later", "scheduled"), ("parked", "parked")}
    assert len(rows(valkey, state="all")) == 232
    assert rows(valkey, dead="true", topic="other") == []


def test_the_batches_are_exactly_of_the_types_that_the_caller_of_spark_asked_for(
    q: Queue, valkey: ServerUnderTest
) -> None:
    q.given(row("a", at=FAR), now=4_000)
    wanted = StructType([StructField("id", StringType(), nullable=False), StructField("queue", ShortType())])
    reading = MessageReader(wanted, ReadOptions.parse({"retryFor": "0"}), load_settings(redis_url=valkey.url))
    (batch,) = (batch for part in reading.partitions() for batch in reading.read(part))
    assert batch.schema.equals(pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("queue", pa.int16())]))
    assert batch.to_pylist() == [{"id": "a", "queue": 3}]


def test_a_damaged_record_is_told_of_and_stops_nothing(q: Queue, valkey: ServerUnderTest) -> None:
    q.given(row("a", at=FAR), row("b", at=FAR), now=4_000)
    generation = q.record("a").generation
    valkey.admin.hset(q.keys.pool, "a", generation + b"damaged")
    found = {one["id"]: one["reason"] for one in rows(valkey)}
    assert found == {"a": "corrupt record", "b": None}


def test_an_ordinary_page_is_as_many_trips_as_it_says(client: Client, valkey: ServerUnderTest) -> None:
    client.schedule_many(Message(id=f"m-{n}", topic="t", expect_date=FAR) for n in range(500))
    for page in ("1", "7", "1000"):
        assert sorted(one["id"] for one in rows(valkey, page=page)) == sorted(f"m-{n}" for n in range(500))


def test_what_cannot_be_read_is_refused_at_once(valkey: ServerUnderTest) -> None:
    with pytest.raises(ConfigError, match="dead letters have no due time"):
        reader(valkey, dead="true", dueFrom="5")
    with pytest.raises(ConfigError, match="unknown column nonsense; the columns are"):
        MessageReader(StructType([StructField("nonsense", StringType())]), ReadOptions(), load_settings())
    away = load_settings(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(GivenUp, match=r"Redis is unreachable"):
        MessageReader(SCHEMA, ReadOptions.parse({"retryFor": "0"}), away).partitions()


@pytest.mark.parametrize(
    ("missing", "act"),
    [
        ("pyspark", "import pyspark_delayq"),
        ("pyarrow", "import pyspark_delayq as p; p.DefaultSource({}).writer(None, False)"),
        ("pyarrow", "import pyspark_delayq as p; p.DefaultSource({}).reader(None)"),
    ],
)
def test_a_missing_extra_says_which_to_install(missing: str, act: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; {act}"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "pip install 'delayq[spark]'" in ran.stderr.splitlines()[-1]
