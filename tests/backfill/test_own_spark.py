"""The commands in processes of their own: with a Spark of their own, without the extra, on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from tests.house.processes import ROOT
from tests.support.spark import need_java

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = 250
CSV = "id,expect_date,body\n" + "".join(f"o{n},{2_000_000_000_000 + n},order {n}\n" for n in range(500))


def environment(url: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DELAYQ_", "PYSPARK_", "SPARK_"))}
    path = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
    return env | {"DELAYQ_REDIS_URL": url, "PYTHONPATH": path, "COLUMNS": "120"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text(CSV)
    return tmp_path / "orders.csv"


def words(table: Path) -> list[str]:
    start = [sys.executable, "-m", "delayq.cli", "backfill", str(table), "--format", "csv", "--topic", "t"]
    return [*start, "--master", "local[1]", "--conf", "spark.driver.memory=512m", "--run", "r1"]


def test_it_starts_a_spark_and_shows_how_far_it_is_on_a_terminal(own_valkey: EmbeddedServer, table: Path) -> None:
    need_java()
    master, slave = pty.openpty()
    ran = subprocess.Popen(
        words(table), env=environment(own_valkey.url), stdout=subprocess.PIPE, stderr=slave, text=True
    )
    os.close(slave)
    seen = b""
    with ran:
        while True:
            try:
                some = os.read(master, 65_536)
            except OSError:  # nobody has the other end any more
                break
            if not some:
                break
            seen += some
        assert ran.stdout is not None
        out = ran.stdout.read()
    os.close(master)
    assert ran.returncode == 0, seen.decode(errors="replace")
    assert dict(line.split("\t") for line in out.splitlines())["scheduled"] == "500"
    assert b"of 500 rows" in seen and b"WARN" not in seen


def test_what_spark_says_is_kept_in_a_file_that_is_named_when_it_fails(
    own_valkey: EmbeddedServer, tmp_path: Path
) -> None:
    need_java()
    env = environment(own_valkey.url) | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        words(tmp_path / "nowhere"), env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert "Path does not exist" in line
    (log,) = tmp_path.glob("delayq-spark-*.log")
    assert str(log) in line and log.stat().st_size > 0


def test_without_the_extra_it_says_what_to_install(own_valkey: EmbeddedServer, table: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no such package')\n")
    env = environment(own_valkey.url)
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    ran = subprocess.run(words(table), env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "delayq: delayq backfill needs the extra [spark]: pip install 'delayq[spark]'.\n"
    undo = [sys.executable, "-m", "delayq.cli", "backfill", "undo", "r1"]
    ran = subprocess.run(undo, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stderr) == (1, "delayq: no message of the run r1 is pending.\n")


def test_without_java_it_says_which(own_valkey: EmbeddedServer, table: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")
    env = environment(own_valkey.url) | {"PATH": str(tmp_path)}
    env.pop("JAVA_HOME", None)
    ran = subprocess.run(words(table), env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "there is no java on PATH" in ran.stderr and "needs Java" in ran.stderr
