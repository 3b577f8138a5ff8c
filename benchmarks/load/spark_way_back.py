"""A process that schedules a table by `delayq backfill`, has Redis lose all, and brings it back by `delayq reconcile --fix`.

It prints how many seconds the way back took. All commands are run in one Spark of two cores.
"""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import closing, redirect_stdout
from typing import Any

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.running.processes import connect
from delayq.cli import main as delayq
from delayq.spark.session import session

__all__: list[str] = []


def command(name: str, table: str, *words: str) -> dict[str, Any]:
    """What a command of delayq on the table answers."""
    said = io.StringIO()
    with redirect_stdout(said):
        delayq([name, table, "--run", "bench", "--json", *words])
    shape: dict[str, Any] = msgspec.json.decode(said.getvalue())
    return shape


def main() -> None:
    """Go there and back; a BenchmarkError if one row is not as it was, by its id and its due."""
    table = sys.argv[1]
    with session("benchmark", master="local[2]") as spark:
        rows = spark.read.parquet(table).count()
        if command("backfill", table)["scheduled"] != rows:
            raise BenchmarkError("not all rows were scheduled")
        with closing(connect(os.environ["DELAYQ_REDIS_URL"])) as connection:
            connection.flushall()
        began = time.perf_counter()
        found = command("reconcile", table, "--fix")
        seconds = time.perf_counter() - began
        if (found["missing"], found["fixed"]["scheduled"]) != (rows, rows):
            raise BenchmarkError(f"not all rows were missing and are back: {found}")
        found = command("reconcile", table)
        if found["same"] != rows or found["extra"]:
            raise BenchmarkError(f"not all rows are there as they were: {found}")
    print(seconds, flush=True)


if __name__ == "__main__":
    main()
