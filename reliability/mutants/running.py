"""Runs pytest in a checkout, and reads what came of each test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

#: The layers of the suite, by the expression of marks that selects them.
LAYERS: Final = {"default": "not long and not release", "long": "long and not release", "release": "release"}
#: Seconds for one test of a patient run that has no timeout of its own.
PATIENCE: Final = 1_200
_NODE: Final = re.compile(r"^(\S+\.py::.+)$", re.MULTILINE)


class Ran(NamedTuple):
    """The result of a run: the passed and the failed tests with the seconds of each, and the last lines."""

    passed: Mapping[str, float]
    failed: Mapping[str, float]
    seconds: float
    hung: str  # the test that ran when the run was ended
    output: str


def collect_layers(checkout: Path, files: Sequence[str]) -> dict[str, str]:
    """The layer of each test of these files."""
    layers = {}
    expressions = LAYERS
    if "release:" not in (checkout / "pyproject.toml").read_text(encoding="utf-8"):  # pytest refuses unknown marks
        expressions = {"default": "not long", "long": "long"}
    for layer, marks in expressions.items():
        output = _pytest(checkout, ["--collect-only", "-q", "-m", marks, *files], None)[0]
        layers.update(dict.fromkeys(_NODE.findall(output), layer))
    return layers


def run_tests(
    checkout: Path,
    tests: Sequence[str],
    limit: float | None = None,
    *,
    exit_first: bool = False,
    patient: bool = False,
) -> Ran:
    """Run these tests in one process, for at most so many seconds; a `patient` run lets a single test take long."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        began = time.monotonic()
        options = ["-v", f"--junitxml={report}", *(["-x"] if exit_first else [])]
        options += ["-o", f"timeout={PATIENCE}"] if patient else []
        output, ended = _pytest(checkout, [*options, *tests], limit)
        seconds = time.monotonic() - began
        if not ended:
            begun = [line.partition(" ")[0] for line in output.splitlines() if "::" in line]
            return Ran({}, {}, seconds, begun[-1] if begun else "the first test", output)
        passed: dict[str, float] = {}
        failed: dict[str, float] = {}
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            if case.find("skipped") is None:
                bad = case.find("failure") is not None or case.find("error") is not None
                (failed if bad else passed)[name] = float(case.get("time", 0))
        return Ran(passed, failed, seconds, "", output)


def _pytest(checkout: Path, arguments: Sequence[str], limit: float | None) -> tuple[str, bool]:
    """Return its output, and whether it ended within so many seconds."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "--color=no", *arguments]
    # The copy's own code comes first, also in processes that tests start; and no compiled module outlives a change.
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=limit)[0], True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0], False
