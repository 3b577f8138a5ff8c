"""`python -m reliability.chaos`, as it is documented: what it prints, what it keeps, how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.chaos.faults import KINDS
from reliability.chaos.history import FAULTS, FORWARDS, RUN, TRAFFIC, read
from testbed.errors import ServerMissing
from testbed.zookeeper import available
from tests.support.service import ROOT

LAST = re.compile(
    r"messages [1-9]\d*, faults [1-9]\d*, lost 0, early 0, hard-cancel violations 0, duplicates \d+ \(\d+\.\d{3} %\)"
)


@pytest.fixture
def needs_zookeeper() -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))


def chaos(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reliability.chaos", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.usefixtures("needs_zookeeper")
def test_faults_of_every_kind_break_no_promise_and_the_run_keeps_its_history(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^\.venv/bin/python -m reliability\.chaos (.+)$", (ROOT / "docs" / "chaos.md").read_text(), re.M
    )
    words = command.replace("--minutes 1 ", "--minutes 0.33 ").split()
    ran = chaos(*words, "--each-kind", "--rate", "400", "--history", str(tmp_path / "kept"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, *_, last = ran.stdout.splitlines()
    assert first == f"seed 7, 0.33 min, history in {tmp_path / 'kept'}"
    assert LAST.fullmatch(last)
    assert {line["fault"] for line in read(tmp_path / "kept" / FAULTS)} == KINDS.keys()
    for name in (TRAFFIC, FORWARDS, RUN, "w0.log", "w2.log", "api0.log", "redis/valkey.log"):
        assert (tmp_path / "kept" / name).stat().st_size, name


@pytest.mark.release
@pytest.mark.usefixtures("needs_zookeeper")
def test_a_minute_of_faults_at_random_breaks_no_promise(tmp_path: Path) -> None:
    ran = chaos("--minutes", "1", "--rate", "600", "--history", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)
