"""`python -m workers` as a process: stopped by a signal that it inherited as ignored, started wrongly."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from delayq.client.client import Client
from delayq.config import load_settings
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.waiting import eventually

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


def test_a_wrong_setting_is_answered_with_one_sentence_and_exit_2(tmp_path: Path) -> None:
    process = OneProcess("w", WORKER, {"redis_url": "redis://127.0.0.1:1", "max_attempts": "0"}, tmp_path / "log")
    process.start()
    eventually(lambda: not process.alive, "it has ended")
    (sentence,) = [line for line in process.said().splitlines() if line.startswith("delayq worker: ")]
    assert process.returncode == 2
    assert "DELAYQ_MAX_ATTEMPTS" in sentence
    assert "Traceback" not in process.said()
