"""Backfill with Spark: a million rows of a Parquet file with the data source, compared with the Python client's bulk
schedule.

Spark has one core (local[1]) and has written before. The client is one process that schedules a message for each row. Both
read the same file while they are measured. Memory is the maximum resident memory of Spark's Python worker, with ten times
the rows. Then Redis loses all rows, and `delayq reconcile --fix` brings them back. With a rate of 5,000/s, the lateness of
other traffic of 1,000/s is measured like `lateness`, without and with a backfill.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import Scale, in_pairs, in_turns, progress, wait_for
from benchmarks.load.backlog import schedule_all
from benchmarks.load.spark_job import Job, Written, rows_of, write_table
from benchmarks.load.traffic import DELAYS, WARM_UP, Lateness, Plan, Traffic, lateness
from benchmarks.results import Figure, paired, single
from benchmarks.running.processes import Process, python, server_for, worker
from delayq import Client, Message
from delayq.base.errors import ConfigError
from testbed.errors import ServerMissing

GOAL: Final = 0.8
LIVE_TOPIC: Final = "order.cancel"
LIVE_RATE: Final = 1_000
#: Messages/s of the backfill beside live traffic, and the goal for the ratio of that traffic's p99.
JOB_RATE: Final = 5_000
LATER: Final = 2.0
#: At every scale: a tenth of them fills some windows of the writer, and the start of a job costs little in comparison.
ROWS: Final = 1_000_000
TIMES: Final = 10
GROWTH: Final = 1.2
PATIENCE: Final = 900.0
#: Rows that the client reads at a time, as the data source does.
BATCH: Final = 32_000


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure everything; raises ServerMissing without a suitable Java."""
    try:
        from delayq.spark.session import check_java, need_spark

        need_spark("this benchmark")
        check_java()
    except ConfigError as error:
        raise ServerMissing(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as name:
        folder = Path(name)
        progress(f"preparing {ROWS:,} rows")
        return _measure(scale, write_table(folder, "row", ROWS), write_table(folder, "few", ROWS // TIMES))


def _measure(scale: Scale, table: Path, tenth: Path) -> tuple[list[Figure], dict[str, Any]]:
    many: list[Written] = []

    def ours() -> float:
        many.append(_backfill(scale, table))
        return ROWS / many[-1].seconds

    pairs = in_pairs("backfill", scale.runs, lambda: _client(scale, table), ours)
    progress(f"memory with a {TIMES}th of the rows")
    few = [_backfill(scale, tenth) for _ in range(scale.runs)]
    back = _way_back(scale, tenth if scale.quick else table)
    measures = {"alone": partial(_late, scale, 0), "beside a backfill": partial(_late, scale, JOB_RATE)}
    rounds = in_turns("live traffic", scale.runs, measures, swap=True)
    without, beside = ([found[name] for found in rounds] for name in measures)
    late = [one.consumer["p99"] / two.consumer["p99"] for one, two in zip(beside, without, strict=True)]
    figures = [
        paired("backfill beside the client, on one core", "messages/s", pairs, goal=GOAL),
        single(
            f"Python worker's memory, with {TIMES} times the rows", "×",
            [one.worker / two.worker for one, two in zip(many, few, strict=True)], goal=GROWTH,
        ),
        single("Python worker's memory", "MiB", [one.worker / 2**20 for one in many]),
        single("live traffic's p99 alone", "ms", [one.consumer["p99"] for one in without]),
        single("live traffic's p99 beside a backfill with a rate", "ms", [one.consumer["p99"] for one in beside]),
        single("the one by the other", "×", late, goal=LATER),
    ]  # fmt: skip
    figures.append(single("lost and reconciled, row by row as it was", "s", [back]))
    details = {"few": few, "many": many, "lateness alone": without, "lateness beside": beside}
    return figures, msgspec.to_builtins(details)


def _client(scale: Scale, table: Path) -> float:
    """The rows/s of a script without Spark."""
    import pyarrow.parquet

    with server_for(scale) as running, Client(running.url) as client:
        schedule_all(client, [Message(**row) for row in rows_of(1, "warm")])
        began = time.perf_counter()
        for batch in pyarrow.parquet.ParquetFile(table).iter_batches(BATCH):
            schedule_all(client, (Message(**row) for row in batch.to_pylist()))
        return ROWS / (time.perf_counter() - began)


def _backfill(scale: Scale, table: Path) -> Written:
    with server_for(scale) as running, _job(running.url, table) as (process, go):
        go()
        process.wait(PATIENCE)
        return msgspec.json.decode(process.output().splitlines()[-1], type=Written)


def _way_back(scale: Scale, table: Path) -> float:
    """The seconds of `reconcile --fix` after Redis lost all rows of a table; a BenchmarkError if a row differs afterwards."""
    progress("delayq backfill, reconcile --fix and reconcile")
    with (
        server_for(scale) as running,
        python("-m", "benchmarks.load.spark_job", "way-back", str(table), DELAYQ_REDIS_URL=running.url) as process,
    ):
        process.wait(PATIENCE)
        return float(process.output().splitlines()[-1])


@contextmanager
def _job(url: str, table: Path, rate: int = 0) -> Iterator[tuple[Process, Any]]:
    """A Spark that is ready to schedule, and the function that starts it."""
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        job = Job(url, str(table), folder, rate)
        with python("-m", "benchmarks.load.spark_job", "write", msgspec.json.encode(job).decode()) as process:

            def ready() -> bool:
                process.check()
                return Path(folder, "ready").exists()

            wait_for("ready Spark", ready, seconds=PATIENCE)
            yield process, Path(folder, "go").touch


def _late(scale: Scale, rate: int) -> Lateness:
    """The lateness of live traffic; with a rate, beside a backfill of the same duration."""
    seconds = 8.0
    rows = int(JOB_RATE * (seconds + WARM_UP + 2))
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server_for(scale, rewrites=True) as running,
        worker(running.url),
        _job(running.url, write_table(Path(folder), "live", rows), rate) as (process, go),
    ):
        plan = Plan(running.url, (LIVE_TOPIC,), LIVE_RATE, 0, WARM_UP + seconds, DELAYS)
        with Traffic(plan, Path(folder)) as traffic:
            first = traffic.plan.start + 1000 * WARM_UP
            if rate:
                go()
            arrived, _ = traffic.wait()
            if rate:
                process.wait(PATIENCE)
        found = lateness([one for one in arrived if first <= one.due < first + 1000 * seconds])
    progress(f"live traffic: {found.consumer}")
    return found
