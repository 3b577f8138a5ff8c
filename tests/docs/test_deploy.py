"""The example of docs/tasks/deploy.md: an API with a key and a worker, started by the commands of the page."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from tests.docs.blocks import ROOT, blocks_of

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "tasks" / "deploy.md"


def test_the_example_deploys_an_api_with_a_key_and_a_worker(own_valkey: EmbeddedServer, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on PATH: install it (apt install curl)")
    (block,) = (one for one in blocks_of(PAGE) if one.note == "run by tests/docs/test_deploy.py")
    script = block.text.replace("redis://127.0.0.1:6379/0", own_valkey.url)
    for port in ("8080", "8081"):
        script = script.replace(port, str(free_port()))
    env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    env |= {"PATH": os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", ""))), "no_proxy": "*"}
    output = tmp_path / "output"
    with output.open("wb") as file:
        running = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = running.wait()
        finally:
            os.killpg(running.pid, signal.SIGKILL)  # the API and the worker, which outlive the script
    printed = output.read_text(encoding="utf-8", errors="replace")
    assert status == 0, printed
    assert '"id":"unpaid-55"' in printed
    assert 'unpaid-55\t-\t{"order":55}' in printed
