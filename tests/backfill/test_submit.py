"""spark-submit: for real on this machine, and the commands for YARN and Kubernetes as far as they can be read here."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from delayq.cli import main
from delayq.embedded import EmbeddedServer
from tests.house.processes import ROOT
from tests.support.spark import environment, need_java

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PAGE = (ROOT / "docs" / "spark.md").read_text()


def spark_home() -> Path:
    pytest.importorskip("pyspark", reason="no pyspark: pip install 'delayq[spark]'")
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def submits() -> list[list[str]]:
    """The words of the commands on the page."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found = [shlex.split(block.replace("\\\n", " ")) for block in blocks if "spark-submit " in block]
    return [words[words.index("spark-submit") + 1 :] for words in found]


def parts(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The options of spark-submit with their values, and what delayq gets."""
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        options.setdefault(words[0], []).append(words[1])
        words = words[2:]
    assert words[0].endswith("backfill.py")
    return options, words[1:]


def test_there_is_a_command_for_each_kind_of_cluster() -> None:
    masters = [parts(words)[0]["--master"][0] for words in submits()]
    assert [master.partition("://")[0] for master in masters] == ["yarn", "k8s"]


def test_spark_knows_their_options_and_settings() -> None:
    jars = spark_home() / "jars"

    def classes(jar: str, prefix: str) -> bytes:
        """The classes of a package, with the texts that stand in them."""
        (path,) = jars.glob(f"{jar}_*.jar")
        with ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist() if name.startswith(prefix))

    known = classes("spark-launcher", "org/apache/spark/launcher/SparkSubmitOptionParser")
    settings = classes("spark-yarn", "org/apache/spark/deploy/yarn/")
    settings += classes("spark-kubernetes", "org/apache/spark/deploy/k8s/Config")
    settings += classes("spark-core", "org/apache/spark/internal/config/")
    for words in submits():
        options, _ = parts(words)
        assert [option for option in options if option.encode() not in known] == []
        for setting in options["--conf"]:
            name, equals, value = setting.partition("=")
            prefix, dot, variable = name.rpartition(".")
            # A variable for the driver is named behind the setting's own name.
            asked = prefix + dot if variable.isupper() or "_" in variable else name
            assert equals and value and asked.encode() in settings, setting


def test_delayq_takes_the_words_that_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for words in submits():
        _, mine = parts(words)
        assert main([*mine, "--redis-url", "redis://127.0.0.1:1/0"]) == 2
        assert "Redis is away" in capsys.readouterr().err  # so nothing was wrong with the words


def test_it_runs_under_spark_submit(own_valkey: EmbeddedServer, tmp_path: Path) -> None:
    need_java()
    home = spark_home()
    lines = re.search(r"A file `backfill\.py` of two lines,\s+`(.+?)` and `(.+?)`", PAGE)
    assert lines is not None
    (tmp_path / "backfill.py").write_text("\n".join(lines.groups()) + "\n")
    (tmp_path / "orders.csv").write_text("id,expect_date\n" + "".join(f"o{n},{2 * 10**12 + n}\n" for n in range(50)))
    (tmp_path / "env.tar").write_bytes(b"\0" * 10_240)  # an empty archive
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client"]
    command += ["--archives", "env.tar#env", *(word for one in conf.items() for word in ("--conf", "=".join(one)))]
    command += ["backfill.py", "backfill", "orders.csv", "--format", "csv", "--topic", "t", "--rejects", "rejected"]
    env = environment(DELAYQ_REDIS_URL=own_valkey.url, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1")
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = [line.split("\t") for line in ran.stdout.splitlines()]  # Java may have its say there, too
    assert ["scheduled", "50"] in rows and ["rejected", "0"] in rows
