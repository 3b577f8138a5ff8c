"""The command backfill in a process of its own: it starts a Spark, or runs under spark-submit, or lacks what it needs."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from delayq import Client
from delayq.cli import main
from delayq.embedded import EmbeddedServer
from testbed.jars import SHORT_LIVED
from tests.house.processes import ROOT
from tests.support.spark import environment, need_java, spark_home
from tests.support.terminal import without_progress

pytestmark = pytest.mark.long

PAGE: Final = (ROOT / "docs" / "spark.md").read_text()
CSV: Final = "id,expect_date,body\n" + "".join(f"o{n},{2_000_000_000_000 + n},order {n}\n" for n in range(500))
#: Settings of a Spark that runs for one small job.
SMALL: Final = {"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text(CSV)
    return tmp_path / "orders.csv"


def words(table: Path) -> list[str]:
    start = [sys.executable, "-m", "delayq.cli", "backfill", str(table), "--format", "csv", "--topic", "t"]
    conf = (word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}"))
    return [*start, "--master", "local[1]", *conf, "--run", "r1"]


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(COLUMNS="120", **more)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_starts_a_spark_and_shows_its_progress_on_a_terminal(own_valkey: EmbeddedServer, table: Path) -> None:
    need_java()
    day = date(2033, 5, 18)  # begins in the zone of the machine, which is that of a session where nobody sets another
    pq.write_table(pa.table({"id": [f"o{n}" for n in range(500)], "expect_date": [day] * 500}), table)
    master, slave = pty.openpty()
    env = environment(COLUMNS="120", DELAYQ_REDIS_URL=own_valkey.url, TZ="Asia/Tokyo")
    parquet = ["parquet" if word == "csv" else word for word in words(table)]
    ran = subprocess.Popen(parquet, env=env, stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    seen = b""
    with ran:
        while True:
            try:
                some = os.read(master, 65_536)
            except OSError:  # the process has ended
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
    with Client(own_valkey.url) as client:
        found = client.get("o0")
    assert found is not None and found.due == 1_999_954_800_000  # midnight in Tokyo


def test_a_failure_names_the_file_with_the_log_of_spark(own_valkey: EmbeddedServer, tmp_path: Path) -> None:
    need_java()
    ran = run(words(tmp_path / "nowhere"), ROOT, DELAYQ_REDIS_URL=own_valkey.url, TMPDIR=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = without_progress(ran.stderr).splitlines()
    assert "Path does not exist" in line
    (log,) = tmp_path.glob("delayq-spark-*.log")
    assert str(log) in line and log.stat().st_size > 0


def test_without_java_or_the_extra_it_names_what_to_install(
    own_valkey: EmbeddedServer, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    url = own_valkey.url
    ran = run(words(table), ROOT, DELAYQ_REDIS_URL=url, PATH=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "there is no java on PATH" in ran.stderr and "needs Java" in ran.stderr
    (tmp_path / "pyspark.py").write_text("raise ImportError('no such package')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    ran = run(words(table), ROOT, DELAYQ_REDIS_URL=url, PYTHONPATH=path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "delayq: delayq backfill needs the extra [spark]: pip install 'delayq[spark]'.\n"
    undo = [sys.executable, "-m", "delayq.cli", "backfill", "undo", "r1"]
    ran = run(undo, ROOT, DELAYQ_REDIS_URL=url, PYTHONPATH=path)
    assert (ran.returncode, without_progress(ran.stderr)) == (1, "delayq: no message of the run r1 is pending.\n")


# -- spark-submit --------------------------------------------------------------------------------------------------------


def submits() -> list[tuple[dict[str, list[str]], list[str]]]:
    """The commands of the page: the options of spark-submit with their values, and the words for delayq."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        if "spark-submit " in block:
            rest = shlex.split(block.replace("\\\n", " "))
            rest = rest[rest.index("spark-submit") + 1 :]
            options: dict[str, list[str]] = {}
            while rest[0].startswith("--"):
                options.setdefault(rest[0], []).append(rest[1])
                rest = rest[2:]
            assert rest[0].endswith("backfill.py")
            found.append((options, rest[1:]))
    return found


def test_the_commands_for_clusters_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark knows their options and settings, and delayq its own words."""
    assert [options["--master"][0].partition("://")[0] for options, _ in submits()] == ["yarn", "k8s"]

    def classes(jar: str, prefix: str) -> bytes:
        """The classes of a package, which contain its texts."""
        (path,) = (spark_home() / "jars").glob(f"{jar}_*.jar")
        with ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist() if name.startswith(prefix))

    known = classes("spark-launcher", "org/apache/spark/launcher/SparkSubmitOptionParser")
    settings = classes("spark-yarn", "org/apache/spark/deploy/yarn/")
    settings += classes("spark-kubernetes", "org/apache/spark/deploy/k8s/Config")
    settings += classes("spark-core", "org/apache/spark/internal/config/")
    for options, mine in submits():
        assert [option for option in options if option.encode() not in known] == []
        for setting in options["--conf"]:
            name, equals, value = setting.partition("=")
            prefix, dot, variable = name.rpartition(".")
            # A variable for the driver stands behind the name of the setting.
            asked = prefix + dot if variable.isupper() or "_" in variable else name
            assert equals and value and asked.encode() in settings, setting
        assert main([*mine, "--redis-url", "redis://127.0.0.1:1/0"]) == 2
        assert "Redis is unreachable" in capsys.readouterr().err  # so the words were valid


def test_it_runs_under_spark_submit(own_valkey: EmbeddedServer, table: Path, tmp_path: Path) -> None:
    need_java()
    home = spark_home()
    lines = re.search(r"A file `backfill\.py` of two lines,\s+`(.+?)` and `(.+?)`", PAGE)
    assert lines is not None
    (tmp_path / "backfill.py").write_text("\n".join(lines.groups()) + "\n")
    (tmp_path / "env.tar").write_bytes(b"\0" * 10_240)  # an empty archive
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"} | SMALL
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client"]
    command += ["--archives", "env.tar#env", *(word for one in conf.items() for word in ("--conf", "=".join(one)))]
    command += ["backfill.py", "backfill", "orders.csv", "--format", "csv", "--topic", "t", "--rejects", "rejected"]
    ran = run(command, tmp_path, DELAYQ_REDIS_URL=own_valkey.url, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1")
    assert ran.returncode == 0, ran.stderr
    rows = [line.split("\t") for line in ran.stdout.splitlines()]  # Java may print something, too
    assert ["scheduled", "500"] in rows and ["rejected", "0"] in rows
