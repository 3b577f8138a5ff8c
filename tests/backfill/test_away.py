"""Redis is lost, or full, in the middle of a job: it goes on, or fails in clear words, and the same again completes it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.spark.counts import Counts
from delayq.spark.job import run_job
from delayq.store.commands import plain
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROWS: Final = 6_000
FAR: Final = 2_000_000_000_000
#: Slow enough that the middle of it is met.
RATE: Final = "3000"


@pytest.fixture
def client(own_valkey: EmbeddedServer) -> Iterator[Client]:
    with Client(own_valkey.url) as made:
        made.context()
        yield made


@pytest.fixture
def begin(spark: Any, own_valkey: EmbeddedServer) -> Iterator[Any]:
    """Begin a job in a thread."""
    frame = spark.range(ROWS, numPartitions=2).selectExpr(
        "concat('m', id) as id", f"{FAR} + id as expect_date", "repeat('x', 500) as body"
    )

    def job(retry_for: str) -> Counts:
        options = {"redisUrl": own_valkey.url, "topic": "t", "run": "r1", "rate": RATE, "retryFor": retry_for}
        with Client(own_valkey.url) as own:
            return run_job(frame, options, own, lambda _: None)

    with ThreadPoolExecutor(1) as thread:
        yield lambda retry_for: thread.submit(job, retry_for)


def pool(client: Client) -> int:
    return sum(queue.pool for queue in client.stats())


def in_the_middle(client: Client, job: Future[Counts]) -> None:
    eventually(lambda: pool(client) > ROWS // 10 or job.done(), "some messages", 60)
    assert not job.done(), job.result()
    assert pool(client) < ROWS


def test_a_job_goes_on_when_redis_comes_back(begin: Any, client: Client, own_valkey: EmbeddedServer) -> None:
    job = begin("60s")
    in_the_middle(client, job)
    own_valkey.kill()
    own_valkey.start()
    counts = job.result(90)
    assert (counts.read, counts.scheduled + counts.present, counts.all_rejected) == (ROWS, ROWS, 0)
    assert pool(client) == ROWS


def test_a_job_that_redis_left_fails_and_the_same_again_completes_it(
    begin: Any, client: Client, own_valkey: EmbeddedServer
) -> None:
    job = begin("200")
    in_the_middle(client, job)
    own_valkey.kill()
    try:
        with pytest.raises(Exception, match=r"Redis is away.*What it had scheduled stays; run the same job again"):
            job.result(90)
    finally:
        own_valkey.start()
    _completed(begin, client)


def test_a_job_that_redis_had_no_room_for_fails_and_the_same_again_completes_it(begin: Any, client: Client) -> None:
    job = begin("200")
    in_the_middle(client, job)
    _limit(client, "1")
    with pytest.raises(Exception, match=r"maxmemory.*What it had scheduled stays; run the same job again"):
        job.result(90)
    _limit(client, "0")
    _completed(begin, client)


def _completed(begin: Any, client: Client) -> None:
    """What was there counts as such, and the rest is scheduled."""
    before = pool(client)
    assert 0 < before < ROWS
    counts = begin("60s").result(90)
    assert (counts.read, counts.scheduled, counts.present, counts.rejected) == (ROWS, ROWS - before, before, {})
    assert pool(client) == ROWS
    assert sum(queue.counters["scheduled"] for queue in client.stats()) == ROWS


def _limit(client: Client, size: str) -> None:
    client.store.run(plain("CONFIG", "SET", "maxmemory", size, read=bool))
