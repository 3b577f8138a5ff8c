"""Backfill with Spark: a million rows of a Parquet file with the data source, compared with the Python client's bulk
schedule.

Spark has one core (local[1]) and has written before. The client is one process that schedules a message for each row. Both
read the same file while they are measured. Memory is the maximum resident memory of Spark's Python worker, with ten times
the rows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import Scale, in_pairs, progress, wait_for
from benchmarks.load.backlog import schedule_all
from benchmarks.load.spark_job import Job, Written, rows_of, write_table
from benchmarks.results import Figure, paired, single
from benchmarks.running.processes import Process, python, server_for
from delayq import Client, Message
from delayq.base.errors import ConfigError
from testbed.errors import ServerMissing

GOAL: Final = 0.8
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
    figures = [
        paired("backfill beside the client, on one core", "messages/s", pairs, goal=GOAL),
        single(
            f"Python worker's memory, with {TIMES} times the rows", "×",
            [one.worker / two.worker for one, two in zip(many, few, strict=True)], goal=GROWTH,
        ),
        single("Python worker's memory", "MiB", [one.worker / 2**20 for one in many]),
    ]  # fmt: skip
    return figures, msgspec.to_builtins({"few": few, "many": many})


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


@contextmanager
def _job(url: str, table: Path) -> Iterator[tuple[Process, Any]]:
    """A Spark that is ready to schedule, and the function that starts it."""
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        job = Job(url, str(table), folder)
        with python("-m", "benchmarks.load.spark_job", msgspec.json.encode(job).decode()) as process:

            def ready() -> bool:
                process.check()
                return Path(folder, "ready").exists()

            wait_for("ready Spark", ready, seconds=PATIENCE)
            yield process, Path(folder, "go").touch
