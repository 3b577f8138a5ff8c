"""Two hosts of a standalone cluster: one stands still, so that its task gets a speculative copy; one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.spark.writing.counts import Counts
from delayq.store import commands
from delayq.store.commands import plain
from delayq.store.keys import KEYS
from testbed.process import stand_still
from tests.support.spark import HOSTS, environment, standalone
from tests.support.waiting import eventually

pytestmark = pytest.mark.release

PARTS: Final = 6
PART_ROWS: Final = 2_000
ROWS: Final = PARTS * PART_ROWS
#: What the processes that write have in their command lines.
PYTHON: Final = "pyspark.daemon"
FAR: Final = 2_000_000_000_000
SETTINGS: Final = {
    "spark.speculation": "true", "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms", "spark.executor.memory": "512m", "spark.driver.host": HOSTS[0],
    "spark.driver.memory": "512m", "spark.sql.files.maxPartitionBytes": "10000",
    "spark.sql.files.openCostInBytes": "10000", "spark.ui.enabled": "false", "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false",
}  # fmt: skip


def test_every_message_is_there_once_though_an_executor_was_killed_and_a_task_ran_twice(
    own_valkey: EmbeddedServer, tmp_path: Path
) -> None:
    """F7: A partition that is written again, or by two tasks at once, makes no duplicates.

    This is shown on a Spark cluster whose executor is killed, and with the Python client in
    tests/spark/test_writing.py.
    """
    table, events = tmp_path / "table", tmp_path / "events"
    table.mkdir()
    events.mkdir()
    for part in range(PARTS):
        numbers = range(part, ROWS, PARTS)
        rows = {
            "id": [f"m{n}" for n in numbers],
            "expect_date": [FAR + n for n in numbers],
            "body": ["x" * 100] * len(numbers),
        }
        pyarrow.parquet.write_table(pa.table(rows), table / f"part-{part}.parquet")
    with standalone(tmp_path / "spark") as master, Client(own_valkey.url) as client:
        command = [sys.executable, "-m", "delayq.cli", "backfill", str(table), "--topic", "t", "--run", "r1"]
        command += ["--master", master, "--rate", "2000", "--json"]
        settings = {**SETTINGS, "spark.eventLog.dir": events.as_uri()}
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        env = environment(DELAYQ_REDIS_URL=own_valkey.url, SPARK_LOCAL_IP=HOSTS[0])
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            job = subprocess.Popen(command, env=env, stdout=out, stderr=err)
        stopped: list[int] = []
        try:
            eventually(
                lambda: job.poll() is not None or _stop_in_the_middle(client, tmp_path / "spark", stopped),
                "a task on each host, stopped while it writes",
            )
            assert job.poll() is None, (tmp_path / "err").read_text()
            # One host stays at a stand in the middle of its task, the other loses its executor in the middle of its own.
            writing = _at_work(client)
            (executor,) = _processes(tmp_path / "spark" / HOSTS[1], "CoarseGrainedExecutorBackend")
            os.kill(executor, signal.SIGKILL)
            _go_on(_processes(tmp_path / "spark" / HOSTS[1], PYTHON))
            assert job.wait() == 0, (tmp_path / "err").read_text()
        finally:
            _go_on(stopped)
            job.kill()
            job.wait()
        shape = json.loads((tmp_path / "out").read_text())
        assert (shape["read"], shape["rejected"]) == (ROWS, 0)
        ended = _ended(events)
        lost = {task for task, one in ended.items() if one.reason == "ExecutorLostFailure"} & {*writing}
        assert lost, "it had been writing when it was killed"
        stages = {ended[task].stage for task in lost}  # the schemas of the files are merged in a stage before
        copies = [one.host for one in ended.values() if one.is_copy and one.reason == "Success" and one.stage in stages]
        assert copies == [HOSTS[1]], "the task of the slow host was done by its copy"
        assert sum(one.scheduled for one in client.queues()) == ROWS
        counters = [one.counters["scheduled"] for one in client.queues()]
        assert sum(counters) == ROWS, "none was scheduled twice"
        dues = {f"m{n}": FAR + n for n in range(ROWS)}
        found = {one.id: one.due for one in client.get_many([*dues]) if one is not None}
        assert found == dues


def _lines(client: Client) -> dict[int, Counts]:
    """What each attempt of a task has told of itself, by Spark's number of it."""
    (name,) = client.store.run(plain("KEYS", KEYS.report("*"), read=list)) or [b""]
    fields = client.store.run(commands.reported(KEYS, name.decode().removeprefix(KEYS.report("")))) if name else {}
    return {
        int(field.rpartition(" ")[2]): msgspec.convert(msgspec.json.decode(text)["counts"], Counts)
        for field, text in fields.items()
        if field.startswith("task ")
    }


def _at_work(client: Client) -> list[int]:
    """The attempts that have scheduled something, and are not done."""
    return [attempt for attempt, counts in _lines(client).items() if counts.scheduled > 0 and counts.read < PART_ROWS]


def _stop_in_the_middle(client: Client, folder: Path, stopped: list[int]) -> bool:
    """Stop all that writes, and say whether there is a task in its middle on each host; if not, it goes on.

    Whoever looks first and stops then may stop what has come to its end meanwhile: a task tells how far it is once a second.
    """
    if len(_at_work(client)) < len(HOSTS):
        return False
    for pid in _processes(folder, PYTHON):
        stopped.append(pid)
        stand_still(pid)
    if len(_at_work(client)) == len(HOSTS):
        return True
    _go_on(stopped)
    stopped.clear()
    return False


def _go_on(stopped: list[int]) -> None:
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class _Attempt(NamedTuple):
    """Where an attempt ran, how it ended, and whether it was a speculative copy."""

    stage: int
    host: str
    reason: str
    is_copy: bool


def _ended(events: Path) -> dict[int, _Attempt]:
    """Every attempt by its number, from Spark's event log."""
    found = {}
    (log,) = (path for path in events.iterdir() if not path.name.startswith("."))
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            task = event["Task Info"]
            reason = event["Task End Reason"]["Reason"]
            found[task["Task ID"]] = _Attempt(event["Stage ID"], task["Host"], reason, task["Speculative"])
    return found


def _processes(folder: Path, name: str) -> list[int]:
    """The processes that work below this folder, and have this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
            where = (path.parent / "cwd").resolve()
        except OSError:
            continue
        if name in words and where.is_relative_to(folder):
            found.append(int(path.parent.name))
    return found
