from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("target", "last"), [("stream", "puller"), ("kafka", "kafka-reports")])
def test_a_message_is_followed_through_the_files_that_it_passes(target: str, last: str) -> None:
    if target == "kafka":
        pytest.importorskip("confluent_kafka", reason="needs the extra [kafka]: pip install 'delayq[kafka]'")
    command = [sys.executable, "-m", "devtools.walk", target]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    *legs, total = ran.stdout.splitlines()
    assert legs[0].startswith("MainThread: ") and "api/routes/schedule.py" in ran.stdout
    assert any(leg.startswith(f"{last}: ") for leg in legs)
    assert re.fullmatch(r"\d+ files, [\d,]+ lines", total)
