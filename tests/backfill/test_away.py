"""Redis is lost in the middle of a job: the job goes on, or it fails and the same again completes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.spark.jobs.watched_write import run_job
from delayq.spark.writing.counts import Counts
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

ROWS: Final = 3_000
FAR: Final = 2_000_000_000_000
#: Slow enough that the test meets the middle of the job.
RATE: Final = "1500"
Run = Callable[[str], Counts]


@pytest.fixture
def client(own_valkey: EmbeddedServer) -> Iterator[Client]:
    with Client(own_valkey.url) as made:
        made.context()
        yield made


@pytest.fixture
def run(spark: Any, own_valkey: EmbeddedServer) -> Run:
    """Runs the job, which gives up after this time without progress."""
    frame = spark.range(ROWS, numPartitions=2).selectExpr(
        "concat('m', id) as id", f"{FAR} + id as expect_date", "repeat('x', 500) as body"
    )

    def job(retry_for: str) -> Counts:
        options = {"redisUrl": own_valkey.url, "topic": "t", "run": "r1", "rate": RATE, "retryFor": retry_for}
        with Client(own_valkey.url) as own:
            return run_job(frame, options, own, lambda _: None)

    return job


def pool(client: Client) -> int:
    return sum(queue.pool for queue in client.queues())


@contextmanager
def in_the_middle(client: Client, *acts: Callable[[], None]) -> Iterator[None]:
    """Do this in another thread once a tenth of the rows is there."""

    def wait() -> None:
        eventually(lambda: pool(client) > ROWS // 10, "some messages")
        for act in acts:
            act()

    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait)
        yield
        waiting.result()


def test_a_job_goes_on_when_redis_comes_back(run: Run, client: Client, own_valkey: EmbeddedServer) -> None:
    with in_the_middle(client, own_valkey.kill, own_valkey.start):
        counts = run("60s")
    assert (counts.read, counts.scheduled + counts.present, counts.all_rejected) == (ROWS, ROWS, 0)
    assert pool(client) == ROWS


def test_a_job_that_redis_left_fails_and_the_same_again_completes_it(
    run: Run, client: Client, own_valkey: EmbeddedServer
) -> None:
    said = r"Redis is unreachable(.|\n)*What it had scheduled stays; run the same job again"
    with in_the_middle(client, own_valkey.kill), pytest.raises(Exception, match=said):
        run("200")
    own_valkey.start()
    assert 0 < pool(client) < ROWS
    counts = run("60s")  # a task of the failed job may go on beside it for a while
    assert (counts.read, counts.scheduled + counts.present, counts.rejected) == (ROWS, ROWS, {})
    assert counts.present
    assert pool(client) == ROWS
    assert sum(queue.counters["scheduled"] for queue in client.queues()) == ROWS
