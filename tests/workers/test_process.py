"""`python -m workers` as a process: a signal that it inherited as ignored stops it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from delayq.client.client import Client
from delayq.config import load_settings
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

WORKER = [sys.executable, "-m", "workers"]
#: As a shell without job control does for what runs in the background.
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def test_sigint_stops_a_worker_that_inherited_it_as_ignored(valkey: ServerUnderTest, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IGNORING, *WORKER]
    process = OneProcess("w", command, {"redis_url": valkey.url, "node": "w"}, tmp_path / "log")
    process.start()
    try:
        with Client(settings=load_settings(redis_url=valkey.url)) as client:
            eventually(lambda: "w" in client.nodes(), "the worker has written its line")
            process.signal(signal.SIGINT)
            eventually(lambda: not process.alive, "it has ended")
            assert process.returncode == 0, process.said()
            assert client.nodes() == {}
    finally:
        process.kill()
