"""`python -m tests.chaos`, as it is documented: what it prints, what it keeps, how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import ServerMissing
from testbed.zookeeper import available
from tests.chaos.history import FAULTS, FORWARDS, RUN, TRAFFIC
from tests.support.service import ROOT

pytestmark = pytest.mark.long

LAST = re.compile(
    r"messages [1-9]\d*, faults \d+, lost 0, early 0, hard-cancel violations 0, duplicates \d+ \(\d+\.\d{3} %\)"
)


@pytest.fixture
def needs_zookeeper() -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))


def chaos(*words: str, seconds: float = 110, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.usefixtures("needs_zookeeper")
def test_the_command_of_the_page_runs_and_keeps_its_history(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^\.venv/bin/python -m tests\.chaos (.+)$", (ROOT / "docs" / "faults.md").read_text(), re.M
    )
    words = command.replace("--minutes 1 ", "--minutes 0.15 ").split()
    ran = chaos(*words, "--history", str(tmp_path / "kept"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, *_, last = ran.stdout.splitlines()
    assert first == f"seed 7, 0.15 min, history in {tmp_path / 'kept'}"
    assert LAST.fullmatch(last)
    assert ", faults 0," not in last
    for name in (TRAFFIC, FORWARDS, FAULTS, RUN, "w0.log", "w2.log", "api0.log", "redis/valkey.log"):
        assert (tmp_path / "kept" / name).stat().st_size, name


@pytest.mark.usefixtures("needs_zookeeper")
@pytest.mark.timeout(260)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_minute_of_faults_at_random_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    ran = chaos("--minutes", "1", "--rate", "600", "--seed", str(seed), "--history", str(tmp_path), seconds=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout.splitlines()[-1])


@pytest.mark.usefixtures("needs_zookeeper")
def test_a_run_without_a_fault_has_shown_nothing_and_fails(tmp_path: Path) -> None:
    ran = chaos("--minutes", "0.05", "--faults-every", "1000", "--history", str(tmp_path))
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "WRONG: no fault was injected: True" in ran.stdout


def test_without_java_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    ran = chaos("--history", str(tmp_path), PATH=str(tmp_path), JAVA_HOME="")
    assert ran.returncode == 2
    assert ran.stdout == ""
    (sentence,) = ran.stderr.splitlines()
    assert sentence.startswith("chaos: ")
    assert "Java" in sentence
