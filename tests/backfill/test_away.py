"""Redis is lost, or full, in the middle of a job: it goes on, or fails in clear words, and the same again completes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.spark.jobs.watched_write import run_job
from delayq.spark.writing.counts import Counts
from delayq.store.commands import plain
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

ROWS: Final = 6_000
FAR: Final = 2_000_000_000_000
#: Slow enough that the middle of it is met.
RATE: Final = "3000"
Run = Callable[[str], Counts]


@pytest.fixture
def client(own_valkey: EmbeddedServer) -> Iterator[Client]:
    with Client(own_valkey.url) as made:
        made.context()
        yield made


@pytest.fixture
def run(spark: Any, own_valkey: EmbeddedServer) -> Run:
    """Run the job; it gives up after so long without progress."""
    frame = spark.range(ROWS, numPartitions=2).selectExpr(
        "concat('m', id) as id", f"{FAR} + id as expect_date", "repeat('x', 500) as body"
    )

    def job(retry_for: str) -> Counts:
        options = {"redisUrl": own_valkey.url, "topic": "t", "run": "r1", "rate": RATE, "retryFor": retry_for}
        with Client(own_valkey.url) as own:
            return run_job(frame, options, own, lambda _: None)

    return job


def pool(client: Client) -> int:
    return sum(queue.pool for queue in client.stats())


@contextmanager
def in_the_middle(client: Client, *acts: Callable[[], None]) -> Iterator[None]:
    """Do that in another thread once a tenth of the rows is there."""

    def wait() -> None:
        eventually(lambda: pool(client) > ROWS // 10, "some messages")
        for act in acts:
            act()

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait)
        yield
        waiting.result(60)


def test_a_job_goes_on_when_redis_comes_back(run: Run, client: Client, own_valkey: EmbeddedServer) -> None:
    with in_the_middle(client, own_valkey.kill, own_valkey.start):
        counts = run("60s")
    assert (counts.read, counts.scheduled + counts.present, counts.all_rejected) == (ROWS, ROWS, 0)
    assert pool(client) == ROWS


def test_a_job_that_redis_left_fails_and_the_same_again_completes_it(
    run: Run, client: Client, own_valkey: EmbeddedServer
) -> None:
    said = r"Redis is away(.|\n)*What it had scheduled stays; run the same job again"
    with in_the_middle(client, own_valkey.kill), pytest.raises(Exception, match=said):
        run("200")
    own_valkey.start()
    _completed(run, client)


def test_a_job_that_redis_had_no_room_for_fails_and_the_same_again_completes_it(run: Run, client: Client) -> None:
    said = r"maxmemory(.|\n)*What it had scheduled stays; run the same job again"
    with in_the_middle(client, lambda: _limit(client, "1")), pytest.raises(Exception, match=said):
        run("200")
    _limit(client, "0")
    _completed(run, client)


def _completed(run: Run, client: Client) -> None:
    """What was there counts as such, and the rest is scheduled. (A task of a failed job may go on beside it for a while.)"""
    assert 0 < pool(client) < ROWS
    counts = run("60s")
    assert (counts.read, counts.scheduled + counts.present, counts.rejected) == (ROWS, ROWS, {})
    assert counts.present
    assert pool(client) == ROWS
    assert sum(queue.counters["scheduled"] for queue in client.stats()) == ROWS


def _limit(client: Client, size: str) -> None:
    client.store.run(plain("CONFIG", "SET", "maxmemory", size, read=bool))
