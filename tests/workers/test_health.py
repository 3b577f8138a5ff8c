"""A worker's own port: where it is, what it answers, and that nobody holds it up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import Mock

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from delayq.config import Settings
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.testing import ManualClock
from tests.support.ipv6 import has_ipv6
from tests.support.raw_http import answers
from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually
from workers.node.duties.redis_clock import Skew
from workers.node.node import Node
from workers.telemetry import health

Serve = Callable[[str], Settings]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts the port of a worker that is well, at an address."""
    ports = []

    def start(host: str) -> Settings:
        settings = Settings(api_host=host, worker_port=free_port())
        ports.append(health.serve(host, settings.worker_port, node_with(), CollectorRegistry()))
        return settings

    yield start
    for port in ports:
        port.close()


def node_with(**trouble: Any) -> Any:
    """A node that is well but for the trouble."""
    well: dict[str, Any] = {
        "ready": True, "jobs": {}, "alarms": Mock(own=[], current={}), "skew": Skew(ManualClock()),
        "redis_clock": Mock(answers=True), "line": Mock(refused=""),
    }  # fmt: skip
    node = Mock(spec=Node, **well | trouble)
    node.own_complaints = partial(Node.own_complaints, node)
    node.complaints = partial(Node.complaints, node)
    return node


def get(address: str, path: str) -> httpx2.Response:
    return httpx2.get(f"http://{address}{path}", trust_env=False, timeout=HTTP_TIMEOUT)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_worker_answers_at_the_address_that_it_tells(host: str, serve: Serve) -> None:
    if host == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6: switch it on (sysctl net.ipv6.conf.lo.disable_ipv6=0)")
    answer = get(serve(host).address, "/livez")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize("host", ["::", ""])
def test_a_worker_at_every_address_answers_at_those_of_both_families(host: str, serve: Serve) -> None:
    port = serve(host).worker_port
    for address in ("127.0.0.1", *(["[::1]"] if has_ipv6() else [])):
        assert get(f"{address}:{port}", "/readyz").json() == {"status": "ready"}


def talk(port: int, sent: bytes) -> bytes:
    """Everything that is answered to these bytes."""
    with socket.create_connection((LOCALHOST, port)) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65_536), b""))


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
NEXT = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", 200),
        (b"GET /readyz?verbose HTTP/1.0\r\n", 200),
        (b"HEAD /livez HTTP/1.1\r\nHost: localhost\r\n", 200),
        (b"GET /nope HTTP/1.1\r\nHost: localhost\r\n", 404),
        (b"POST /livez HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n", 405),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n", 405),
        (b"GET /livez HTTP/2.0\r\n", 400),
        (b"\x16\x03\x01\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX-A: " + b"a" * 100_000 + b"\r\n", 431),
    ],
)
@pytest.mark.parametrize("more", [b"", OFFER, b"Content-Length: %d\r\n" % len(NEXT), b"Transfer-Encoding: chunked\r\n"])
def test_each_connection_is_one_request_whatever_it_offers(head: bytes, status: int, more: bytes, serve: Serve) -> None:
    port = serve(LOCALHOST).worker_port
    sent = talk(port, head + more + b"\r\n" + NEXT)
    if head.startswith(b"HEAD"):
        assert sent.startswith(b"HTTP/1.1 200 ") and sent.endswith(b"\r\n\r\n")
        return
    (answer,) = answers(sent)
    assert (answer.status, answer.headers["connection"]) == (status, "close")


def test_slow_callers_take_no_threads_and_keep_nobody_out(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: A worker's port has at most 64 connections, each for 10 s in all."""
    settings = serve(LOCALHOST)
    before = threading.active_count()
    slow = [socket.create_connection((LOCALHOST, settings.worker_port)) for _ in range(3 * health.CONNECTIONS)]
    for one in slow:
        one.send(b"GET /readyz HTTP/1.1\r\nX-A: ")
    assert get(settings.address, "/readyz").status_code == 200
    assert threading.active_count() <= before + 1  # what makes an answer
    for one in slow[: 2 * health.CONNECTIONS]:  # others came, and the oldest were closed
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""
    for one in slow:
        one.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nX-A: ", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_a_connection_ends_by_its_time_however_it_drips(
    sent: bytes, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the caller has its answer and keeps the connection."""
    monkeypatch.setattr(health, "SECONDS", 0.1)  # short, since nobody waits for an answer here
    with socket.create_connection((LOCALHOST, serve(LOCALHOST).worker_port)) as peer:

        def is_cut_off() -> bool:
            try:
                peer.send(sent[:1] and b"a")
                peer.settimeout(0.01)
                return not peer.recv(1_000)
            except TimeoutError:
                return False
            except OSError:
                return True

        peer.send(sent)
        eventually(is_cut_off, "the connection is cut off")


def test_a_queue_that_cannot_be_pulled_is_named_unless_redis_is_away_altogether() -> None:
    job = Mock(stuck=False, pulls_fail="WRONGTYPE of some key")
    node = node_with(jobs={3: job})
    assert node.complaints() == ["queue 3: nothing can be pulled: WRONGTYPE of some key"]
    node.redis_clock.answers = False
    assert node.complaints() == ["Redis does not answer"]


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (2_500, "is 2500 ms behind that of Redis, and 2000 is too much: synchronise both clocks (NTP)"),
        (-2_000, "is 2000 ms ahead of that of Redis, and 2000 is too much: synchronise both clocks (NTP)"),
        (
            0,
            "was 2000 ms or more from that of Redis, and is 0 ms from it now: this ends 30 s after it came below 1000 ms",
        ),
        (
            -1_500,
            "was 2000 ms or more from that of Redis, and is 1500 ms from it now: this ends 30 s after it came below 1000 ms",
        ),
    ],
)
def test_a_clock_that_was_corrected_is_not_called_wrong_any_more(ms: int, said: str) -> None:
    skew = Skew(ManualClock())
    skew.far, skew.ms = True, ms
    assert node_with(skew=skew).complaints() == [f"the clock of this worker {said}"]
