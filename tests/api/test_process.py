"""`python -m api` as a process: how it starts, logs, and stops."""

from __future__ import annotations

import json
import resource
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from delayq import Client, Message
from delayq.embedded.processes import LOCALHOST, free_port
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.stuck_output import StuckOutput
from tests.support.timeouts import HTTP_TIMEOUT, REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

MESSAGE = b'{"topic": "orders", "delayTime": 60000}'


class Api(OneProcess):
    """`python -m api`, and a request to it."""

    def __init__(self, redis_url: str, log: Path, *, ignoring_sigint: bool = False, **settings: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "api"]
        if ignoring_sigint:
            command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
        given = {"redis_url": redis_url, "redis_timeout": f"{REDIS_TIMEOUT}ms", "api_port": str(self.port)}
        super().__init__("api", command, given | settings, log)

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} if body else {}
        url = f"http://{LOCALHOST}:{self.port}{path}"
        answer = httpx2.request(method, url, content=body, headers=headers, timeout=HTTP_TIMEOUT)
        return answer.status_code, answer.json()

    def answers(self) -> bool:
        assert self.alive, self.said()
        try:
            return self.request("GET", "/livez")[0] == 200
        except httpx2.TransportError:
            return False

    def ended(self) -> int | None:
        """How it has ended."""
        eventually(lambda: not self.alive, "it has ended")
        return self.returncode


@contextmanager
def api_process(redis_url: str, folder: Path, **given: Any) -> Iterator[Api]:
    api = Api(redis_url, folder / "log", **given)
    api.start()
    try:
        eventually(api.answers, "the API answers")
        yield api
    finally:
        api.kill()


@pytest.mark.parametrize(("signum", "ignoring_sigint"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_either_signal_stops_it_in_order(
    valkey: ServerUnderTest, tmp_path: Path, signum: signal.Signals, ignoring_sigint: bool
) -> None:
    """A shell may start its background jobs with SIGINT ignored."""
    with api_process(valkey.url, tmp_path, ignoring_sigint=ignoring_sigint) as process:
        assert process.request("POST", "/v1/messages", MESSAGE)[0] == 201
        process.signal(signum)
        assert process.ended() == 0
        assert "Traceback" not in process.said()
    code, said = ends(Api(valkey.url, tmp_path / "other", queues="8"))
    assert (code, "16 queues" in said) == (2, True)


def test_a_request_under_way_is_finished_before_it_stops(valkey: ServerUnderTest, tmp_path: Path) -> None:
    with (
        api_process(valkey.url, tmp_path) as process,
        socket.create_connection((LOCALHOST, process.port)) as half,
        socket.create_connection((LOCALHOST, process.port)),  # idle: it must not hold up the stop
    ):
        head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        half.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(MESSAGE))
        assert half.recv(1_000).startswith(b"HTTP/1.1 100 ")  # now it is under way
        process.signal(signal.SIGTERM)
        eventually(lambda: "api_stopping" in process.said(), "it begins to stop")
        half.sendall(MESSAGE)
        assert half.recv(10_000).startswith(b"HTTP/1.1 201 ")
        assert process.ended() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can limit the memory of a running process")
def test_a_caller_whose_connection_has_ended_takes_no_message(valkey: ServerUnderTest, tmp_path: Path) -> None:
    body = b'{"group": "mail", "wait": "20s"}'
    head = "POST /v1/topics/orders:receive HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with api_process(valkey.url, tmp_path) as process, ThreadPoolExecutor(1) as threads:
        with socket.create_connection((LOCALHOST, process.port)) as gone:
            gone.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
            eventually(lambda: valkey.admin.info("clients")["blocked_clients"] == 1, "it waits")
        assert process.answers()  # it has seen the end of the connection
        stays = threads.submit(process.request, "POST", "/v1/topics/orders:receive", body)
        valkey.admin.xadd("orders", {"id": "a", "topic": "orders", "body": "", "due": "1"})
        status, answer = stays.result()
        assert (status, [one["id"] for one in answer["messages"]]) == (200, ["a"])


def test_a_caller_that_waits_for_messages_does_not_hold_up_the_stop(valkey: ServerUnderTest, tmp_path: Path) -> None:
    body = b'{"group": "mail", "wait": "30s"}'
    with api_process(valkey.url, tmp_path) as process, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(process.request, "POST", "/v1/topics/orders:receive", body)
        eventually(lambda: valkey.admin.info("clients")["blocked_clients"] == 1, "it waits")
        process.signal(signal.SIGTERM)
        assert waiting.result() == (200, {"messages": []})
        assert process.ended() == 0
        assert "Traceback" not in process.said()


def test_without_memory_it_blames_no_caller_and_lives(valkey: ServerUnderTest, tmp_path: Path) -> None:
    """H18 (the API is short of memory): Large requests are 503 first.

    Later failures are 503 or a closed connection (unknown), never blamed on callers.

    H18: A large request is refused before anything is done for it. The API continues.

    Each batch is scheduled, or answered 503, or its connection closes: never a 4xx, and never a crash in C.
    """
    batch = json.dumps({"messages": [json.loads(MESSAGE) | {"body": "x" * 250} for _ in range(700)]}).encode()
    seen: Counter[int | str] = Counter()

    def send(process: Api, _: int) -> None:
        for _ in range(4):
            try:
                status, answer = process.request("POST", "/v1/messages:batch", batch)
            except httpx2.TransportError:
                seen["closed"] += 1
                continue
            seen[status] += 1
            assert status == 503 or all(one["status"] == 201 for one in answer["results"]), answer

    with api_process(valkey.url, tmp_path) as process:
        assert process.request("POST", "/v1/messages:batch", batch)[0] == 200
        used = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + 4_000_000, hard))
        with ThreadPoolExecutor(20) as senders:
            list(senders.map(partial(send, process), range(40)))
        assert seen.keys() <= {200, 503, "closed"}
        assert seen[503] + seen["closed"] > 0
        resource.prlimit(process.pid, resource.RLIMIT_AS, (hard, hard))
        assert process.request("POST", "/v1/messages", MESSAGE)[0] == 201
        assert process.stop() == 0


def test_its_log_is_json_where_nobody_looks_on(valkey: ServerUnderTest, tmp_path: Path) -> None:
    with api_process(valkey.url, tmp_path, min_replicas="1") as process:
        process.request("GET", "/v1/queues")
        process.stop()
        lines = [json.loads(line) for line in process.said().splitlines()]
        assert {"event", "level", "timestamp"} <= lines[0].keys()
        assert any("only 0 replicas" in line.get("reason", "") for line in lines)
        assert not any("/v1/queues" in line["event"] for line in lines)  # no access log


@pytest.mark.parametrize("module", ["api", "workers"])
def test_a_log_that_nobody_reads_any_more_does_not_hold_up_the_end(
    valkey: ServerUnderTest, tmp_path: Path, module: str
) -> None:
    """API or worker, of which a sender is stuck in a line for the same output."""
    with StuckOutput(tmp_path / "output") as output, Client(valkey.url, check_routes=False) as client:
        routes = '[{"name": "lines", "match": "*", "target": "log:"}]'
        process = Api(valkey.url, output.path, drain_timeout="2s", routes=routes, worker_port="0")
        process.command = [sys.executable, "-m", module]
        process.start()
        try:
            said = bytearray()

            def started() -> bool:
                said.extend(output.said())
                return b"worker_started" in said if module == "workers" else process.answers()

            eventually(started, "it has started")
            output.stop_reading()
            if module == "workers":
                client.schedule(Message(topic="orders", id="a", delay_time=0))
                eventually(lambda: not client.queues()[0].scheduled, "the message is on its way")
            assert process.stop() == 0
        finally:
            process.kill()


def ends(api: Api) -> tuple[int | None, str]:
    """How one ends that cannot start, and what it says."""
    api.start()
    return api.ended(), api.said()


def test_a_wrong_setting_and_a_port_in_use_are_told(valkey: ServerUnderTest, tmp_path: Path) -> None:
    code, said = ends(Api("redis://127.0.0.1:1/0", tmp_path / "log", api_port="many"))
    assert (code, len(said.splitlines())) == (2, 1)
    assert "Traceback" not in said
    with socket.socket() as taken:
        taken.bind((LOCALHOST, 0))
        taken.listen()
        code, said = ends(Api(valkey.url, tmp_path / "log", api_port=str(taken.getsockname()[1])))
    assert code != 0
    assert "address already in use" in said
