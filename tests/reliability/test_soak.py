"""`python -m reliability.soak`, as it is documented: what it prints and what it keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from reliability.soak.report import JSON, Report
from tests.support.service import ROOT

pytestmark = pytest.mark.release


def test_the_command_of_the_page_runs_and_keeps_what_it_found(tmp_path: Path) -> None:
    from reliability.soak.plot import PLOT  # needs matplotlib, which the other layers do not install

    (command,) = [
        line.removeprefix(".venv/bin/python ")
        for line in (ROOT / "docs" / "chaos.md").read_text().splitlines()
        if line.startswith(".venv/bin/python -m reliability.soak ")
    ]
    words = command.replace("--minutes 10", "--minutes 0.1 --faults-every 3").split()
    out = tmp_path / "out"
    words[words.index("--out") + 1] = str(out)
    ran = subprocess.run([sys.executable, *words], cwd=ROOT, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, *_, verdict, last = ran.stdout.splitlines()
    assert first == f"seed 7, 0.1 min at 1000/s, in {out}"
    assert verdict == "verdict: guarantees kept, flatness not judged for all"
    assert "faults 2, lost 0, early 0, hard-cancel violations 0" in last
    report = msgspec.json.decode((out / JSON).read_bytes(), type=Report)
    assert {"w0", "api0", "api1", "redis"} <= {sample.name for sample in report.samples}
    assert (out / PLOT).read_bytes().startswith(b"\x89PNG")
