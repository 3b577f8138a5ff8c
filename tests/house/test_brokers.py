"""./dev brokers: a real broker runs until it is stopped, and a stop never ends a process of somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testbed.brokers import Brokers
from testbed.errors import ServerMissing
from testbed.kafka import available
from tests.house.processes import ROOT, is_running
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


def run(folder: Path, *words: str) -> str:
    """What ./dev brokers prints."""
    command = [sys.executable, "-m", "testbed", *words, "--folder", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_kafka_runs_until_it_is_stopped(tmp_path: Path) -> None:
    try:
        available()
    except ServerMissing as error:
        pytest.skip(str(error))
    address = run(tmp_path, "up", "kafka").splitlines()[0].rpartition("//")[2]
    try:
        (process,) = Brokers(tmp_path).notes()["kafka"].processes
        assert os.getsid(process.pid) == process.pid  # Ctrl-C at the terminal does not reach it
        producer = Producer({"bootstrap.servers": address, "log_level": 2})
        producer.produce("t", b"x")
        assert producer.flush() == 0
        producer.close()
        assert "runs already" in run(tmp_path, "up", "kafka")
    finally:
        stopped = run(tmp_path, "down", "kafka")
    assert stopped == "kafka is stopped\n"
    eventually(lambda: not is_running(process.pid), "it has ended")
    assert not (tmp_path / "kafka").exists()


def test_a_process_that_has_the_id_of_a_broker_by_now_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        process = {"pid": stranger.pid, "began": "another moment"}
        notes = {"kafka": {"url": "kafka://127.0.0.1:1", "processes": [process], "data": str(tmp_path / "kafka")}}
        (tmp_path / "state.json").write_text(json.dumps(notes))
        assert run(tmp_path, "down") == "kafka is stopped\n"
        assert stranger.poll() is None
        stranger.kill()
    assert Brokers(tmp_path).notes() == {}
