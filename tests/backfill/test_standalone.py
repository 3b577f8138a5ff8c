"""Two hosts of a standalone cluster, speculation, and an executor that is killed in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet
import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from tests.support.spark import HOSTS, environment, standalone
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROWS: Final = 20_000
PARTS: Final = 8
FAR: Final = 2_000_000_000_000


def test_every_message_is_there_once_though_an_executor_was_killed(own_valkey: EmbeddedServer, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
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
        settings = {
            "spark.speculation": "true", "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.1",
            "spark.speculation.minTaskRuntime": "100ms", "spark.executor.memory": "512m", "spark.driver.host": HOSTS[0],
            "spark.driver.memory": "512m", "spark.sql.files.maxPartitionBytes": "100000",
            "spark.sql.files.openCostInBytes": "100000",
        }  # fmt: skip
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            env = environment(DELAYQ_REDIS_URL=own_valkey.url, SPARK_LOCAL_IP=HOSTS[0])
            job = subprocess.Popen(command, env=env, stdout=out, stderr=err)
            try:
                eventually(lambda: _there(client) > ROWS // 10 or job.poll() is not None, "some messages", 120)
                killed = _executors(tmp_path)
                os.kill(killed[HOSTS[1]], signal.SIGKILL)
                assert job.wait(110) == 0, (tmp_path / "err").read_text()
            finally:
                job.kill()
                job.wait()
        assert set(killed) == set(HOSTS), "both hosts had an executor"
        shape = (tmp_path / "out").read_text().replace(" ", "")
        assert f'"read":{ROWS}' in shape and '"rejected":0' in shape
        assert _there(client) == ROWS
        counters = [one.counters["scheduled"] for one in client.stats()]
        assert sum(counters) == ROWS, "none was scheduled twice"
        dues = {f"m{n}": FAR + n for n in range(ROWS)}
        found = {one.id: one.due for one in client.get_many([*dues]) if one is not None}
        assert found == dues


def _there(client: Client) -> int:
    return sum(one.scheduled for one in client.stats())


def _executors(folder: Path) -> dict[str, int]:
    """The process ids of the executors that work below this folder, by host."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
            where = (path.parent / "cwd").resolve()
        except OSError:
            continue
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and where.is_relative_to(folder):
            found[words[words.index("--hostname") + 1]] = int(path.parent.name)
    return found
