"""`python -m api` as a process: how it starts, logs, and stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
MESSAGE = b'{"topic": "orders", "delayTime": 60000}'


class Process:
    """A running API."""

    def __init__(self, popen: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.popen = popen
        self.port = port
        self.log = log

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(LOCALHOST, self.port, timeout=10)
        try:
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def answers(self) -> bool:
        assert self.popen.poll() is None, self.log.read_text()
        try:
            return self.request("GET", "/livez")[0] == 200
        except OSError:
            return False


def environment(redis_url: str, **settings: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    return env | {"DELAYQ_REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1"} | settings


@contextmanager
def api_process(redis_url: str, folder: Path, *, ignoring_sigint: bool = False, **given: str) -> Iterator[Process]:
    port = free_port()
    command = [sys.executable, "-m", "api"]
    if ignoring_sigint:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    log = folder / "log"
    with log.open("wb") as out:
        popen = subprocess.Popen(
            command, cwd=ROOT, env=environment(redis_url, DELAYQ_API_PORT=str(port), **given), stdout=out, stderr=out
        )
    process = Process(popen, port, log)
    try:
        eventually(process.answers, "the API answers")
        yield process
    finally:
        popen.kill()
        popen.wait()


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignoring_sigint", [False, True])
def test_either_signal_stops_it_in_order(
    valkey: ServerUnderTest, tmp_path: Path, signum: signal.Signals, ignoring_sigint: bool
) -> None:
    with api_process(valkey.url, tmp_path, ignoring_sigint=ignoring_sigint) as process:
        assert process.request("POST", "/v1/messages", MESSAGE)[0] == 201
        process.popen.send_signal(signum)
        assert process.popen.wait(60) == 0
        assert "Traceback" not in process.log.read_text()


def test_a_request_under_way_is_finished_before_it_stops(valkey: ServerUnderTest, tmp_path: Path) -> None:
    with (
        api_process(valkey.url, tmp_path) as process,
        socket.create_connection((LOCALHOST, process.port)) as half,
        socket.create_connection((LOCALHOST, process.port)),  # idle: it must not hold up the stop
    ):
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(MESSAGE)}"
        )
        half.sendall(head.encode() + b"\r\nexpect: 100-continue\r\n\r\n")
        assert half.recv(1_000).startswith(b"HTTP/1.1 100 ")  # now it is under way
        process.popen.send_signal(signal.SIGTERM)
        eventually(lambda: "api_stopping" in process.log.read_text(), "it begins to stop")
        half.sendall(MESSAGE)
        assert half.recv(10_000).startswith(b"HTTP/1.1 201 ")
        assert process.popen.wait(60) == 0


def test_its_log_is_json_where_nobody_looks_on(valkey: ServerUnderTest, tmp_path: Path) -> None:
    with api_process(valkey.url, tmp_path, DELAYQ_MIN_REPLICAS="1") as process:
        process.request("GET", "/v1/stats")
        process.popen.terminate()
        process.popen.wait(60)
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        assert {"event", "level", "timestamp"} <= lines[0].keys()
        assert any("only 0 replicas" in line.get("reason", "") for line in lines)
        assert not any("/v1/stats" in line["event"] for line in lines)  # no access log


def run(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "api"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30, check=False)


def test_a_wrong_setting_is_told_in_one_sentence() -> None:
    ran = run(environment("redis://127.0.0.1:1/0", DELAYQ_API_PORT="many"))
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_it_refuses_a_redis_of_another_layout(valkey: ServerUnderTest, tmp_path: Path) -> None:
    with api_process(valkey.url, tmp_path):
        pass
    ran = run(environment(valkey.url, DELAYQ_API_PORT=str(free_port()), DELAYQ_QUEUES="8"))
    assert ran.returncode == 2
    assert "16 queues" in ran.stderr


def test_a_port_in_use_is_told(valkey: ServerUnderTest) -> None:
    with socket.socket() as taken:
        taken.bind((LOCALHOST, 0))
        taken.listen()
        ran = run(environment(valkey.url, DELAYQ_API_PORT=str(taken.getsockname()[1])))
    assert ran.returncode != 0
    assert "address already in use" in ran.stderr
