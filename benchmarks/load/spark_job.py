"""A process with a Spark that schedules a table.

`spark_job JOB` has one core and uses the data source. It creates a file `ready` in its folder, waits for a file `go` there,
and prints its measurements as JSON.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now, rss, wait_for
from benchmarks.load.messages import DAY, make, spread
from delayq import Client
from delayq.spark.jobs.watched_write import run_job
from delayq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "order.remind"
#: Enough rows that the JVM has compiled the frequent code.
WARM_UP_ROWS: Final = 50_000
ROW_GROUP: Final = 100_000
PATIENCE: Final = 600.0


class Job(msgspec.Struct, frozen=True):
    """A table to schedule into this Redis; `folder` is for its files."""

    url: str
    table: str
    folder: str


class Written(msgspec.Struct, frozen=True):
    """The seconds of the write, and the maximum resident bytes of Spark's Python workers and of its JVM."""

    seconds: float
    worker: int
    jvm: int


def rows_of(count: int, name: str = "row") -> Iterator[dict[str, Any]]:
    """Yield the rows of the table; the client schedules the same rows as messages."""
    for number, one in enumerate(make(count, spread(int(now()) + DAY, DAY))):
        yield {
            "id": f"{name}-{number:09d}",
            "topic": TOPIC,
            "tags": one.tags,
            "body": one.body,
            "expect_date": one.expect_date,
        }


def write_table(folder: Path, name: str, count: int) -> Path:
    """Write a Parquet file with `count` rows."""
    import pyarrow as pa
    import pyarrow.parquet

    path = folder / f"{name}.parquet"
    rows = rows_of(count, name)
    table = pa.Table.from_pylist([*islice(rows, ROW_GROUP)])
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        while table.num_rows:
            writer.write_table(table)
            table = pa.Table.from_pylist([*islice(rows, ROW_GROUP)], table.schema)
    return path


class _Watch:
    """The maximum resident bytes of the processes below this one, read every 50 ms."""

    def __init__(self) -> None:
        self.worker = self.jvm = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.05):
            for pid, words in _below():
                try:
                    size = rss(pid)
                except (OSError, BenchmarkError):
                    continue  # the process has just ended
                if b"java" in words.split(b"\0", 1)[0]:
                    self.jvm = max(self.jvm, size)
                else:
                    self.worker = max(self.worker, size)


def _below() -> list[tuple[int, bytes]]:
    """The processes that this one started, directly or indirectly, with their command lines."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    mine, found = {_self()}, []
    while new := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= new
        found += [(pid, _words(pid)) for pid in new]
    return found


def _self() -> int:
    return int(Path("/proc/self").resolve().name)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _carry_out(job: Job) -> Written:
    """Warm up, wait for the start, schedule."""
    folder = Path(job.folder)
    write_table(folder, "warm", WARM_UP_ROWS)
    with Client(job.url) as client, session("benchmark", master="local[1]") as spark:
        _write(spark, client, str(folder / "warm.parquet"), job.url)
        (folder / "ready").touch()
        wait_for("start of the write", (folder / "go").exists, seconds=PATIENCE)
        with _Watch() as watch:
            began = time.perf_counter()
            _write(spark, client, job.table, job.url)
            return Written(time.perf_counter() - began, watch.worker, watch.jvm)


def _write(spark: SparkSession, client: Client, path: str, url: str) -> None:
    frame = spark.read.parquet(path)
    counts = run_job(frame, {"redisUrl": url}, client, lambda _: None)
    if counts.scheduled != counts.read or not counts.read:
        raise BenchmarkError(f"not all rows were scheduled: {counts.sentence}")


if __name__ == "__main__":
    print(msgspec.json.encode(_carry_out(msgspec.json.decode(sys.argv[1], type=Job))).decode(), flush=True)
