"""A process with a Spark of one core that waits for the word, and schedules a table by the data source.

It writes a file `ready` into its folder, waits there for one named `go`, and prints what it measured as JSON.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.harness import now, rss, wait_for
from benchmarks.load.messages import DAY, make, spread
from delayq import Client
from delayq.spark.jobs.watched_write import run_job
from delayq.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Job", "Said", "rows_of", "write_table"]

TOPIC: Final = "order.remind"
#: Enough that the JVM has compiled what is used often.
WARM_UP_ROWS: Final = 50_000
ROW_GROUP: Final = 100_000
PATIENCE: Final = 600.0


class Job(msgspec.Struct, frozen=True):
    """A table into this Redis, at most `rate` rows a second (0: as fast as it goes); files go into `folder`."""

    url: str
    table: str
    folder: str
    rate: int = 0


class Said(msgspec.Struct, frozen=True):
    """How long the write took (s), and the most that Spark's Python workers and its JVM had resident then (bytes)."""

    seconds: float
    worker: int
    jvm: int


def rows_of(count: int, name: str = "row") -> Iterator[dict[str, Any]]:
    """The rows of the table, which the client gets as messages."""
    for number, one in enumerate(make(count, spread(int(now()) + DAY, DAY))):
        yield {
            "id": f"{name}-{number:09d}",
            "topic": TOPIC,
            "tags": one.tags,
            "body": one.body,
            "expect_date": one.expect_date,
        }


def write_table(folder: Path, name: str, count: int) -> Path:
    """So many rows as a Parquet file."""
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
    """The most that the processes below this one have resident, looked at every 50 ms."""

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
                    continue  # it has just ended
                if b"java" in words.split(b"\0", 1)[0]:
                    self.jvm = max(self.jvm, size)
                else:
                    self.worker = max(self.worker, size)


def _below() -> list[tuple[int, bytes]]:
    """Processes that this one started, directly or not, with their command lines."""
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


def carry_out(job: Job) -> Said:
    """Warm up, wait, schedule."""
    folder = Path(job.folder)
    write_table(folder, "warm", WARM_UP_ROWS)
    with Client(job.url) as client, session("benchmark", master="local[1]") as spark:
        _write(spark, client, str(folder / "warm.parquet"), msgspec.structs.replace(job, rate=0), lambda _: None)
        (folder / "ready").touch()
        wait_for("the word", (folder / "go").exists, seconds=PATIENCE)
        with _Watch() as watch:
            began = time.perf_counter()
            _write(spark, client, job.table, job, lambda _: None)
            return Said(time.perf_counter() - began, watch.worker, watch.jvm)


def _write(spark: SparkSession, client: Client, path: str, job: Job, show: Callable[[Any], None]) -> None:
    frame = spark.read.parquet(path)
    counts = run_job(frame, {"redisUrl": job.url, "rate": str(job.rate) if job.rate else ""}, client, show)
    if counts.scheduled != counts.read or not counts.read:
        raise BenchmarkError(f"not all rows were scheduled: {counts.sentence}")


def main() -> None:
    """Carry out the job in the first argument; prints what it measured."""
    said = carry_out(msgspec.json.decode(sys.argv[1], type=Job))
    print(msgspec.json.encode(said).decode(), flush=True)


if __name__ == "__main__":
    main()
