"""HTTP requests to a service: as many as it answers, or at an even rate.

`http_load URL BODIES CONNECTIONS SECONDS KEY [RATE]` is the sender in a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks import BenchmarkError
from benchmarks.results import percentile
from benchmarks.running.processes import ROOT


class Load(msgspec.Struct, frozen=True):
    """The requests: their URL, number of connections, duration, and API key, if any.

    `bodies` is a file with one body a line.
    """

    url: str
    bodies: Path
    connections: int
    seconds: float
    key: str = ""


class Paced(msgspec.Struct, frozen=True):
    """Answers a second, and the ms from the planned time of a request to its answer."""

    rate: float
    p50: float
    p99: float


def post(load: Load) -> float:
    """POST the bodies, each connection waiting for its answer; return the 2xx answers a second."""
    return float(_sender(load))


def paced(load: Load, rate: int) -> Paced:
    """POST at an even rate, independent of the answers; a request without a free connection is late."""
    return msgspec.json.decode(_sender(load, str(rate)), type=Paced)


def _sender(load: Load, *more: str) -> str:
    """Run the sender in a process of its own, because this one may have a million messages; return its output."""
    words = [load.url, str(load.bodies), str(load.connections), str(load.seconds), load.key, *more]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.load.http_load", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise BenchmarkError(f"the sender failed: {ran.stderr}")
    return ran.stdout


class _Connection:
    """A kept connection with one request at a time."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._answer = b""

    def whole_answer(self) -> bool:
        """Read the available bytes; return whether the answer is complete. Any status but 2xx is a BenchmarkError."""
        chunk = self.socket.recv(1 << 18)
        self._answer += chunk
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if not chunk or (separator and head[9:10] != b"2"):
            raise BenchmarkError(f"the service answered {self._answer[:1000]!r}")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if not separator or length is None or len(body) < int(length.group(1)):
            return False
        self._answer = b""
        return True


def send(url: str, bodies: Sequence[bytes], connections: int, seconds: float, key: str = "") -> float:
    """Do the work of `post`."""
    host, port, _ = _parts(url)
    turns = _requests(url, bodies, key)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        began, answered = time.perf_counter(), 0
        for _ in range(connections):
            one = _Connection(opened.enter_context(socket.create_connection((host, port))))
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.socket.sendall(next(turns))
        while (elapsed := time.perf_counter() - began) < seconds:
            for ready, _ in selector.select(1):
                if ready.data.whole_answer():
                    answered += 1
                    ready.data.socket.sendall(next(turns))
    return answered / elapsed


def _requests(url: str, bodies: Sequence[bytes], key: str) -> Iterator[bytes]:
    """Yield the requests with these bodies, again and again."""
    host, _, path = _parts(url)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {key}\r\nContent-Length: " if key else "Content-Length: "
    return itertools.cycle([b"%b%d\r\n\r\n%b" % (head.encode(), len(body), body) for body in bodies])


def send_paced(url: str, bodies: Sequence[bytes], connections: int, seconds: float, key: str, rate: int) -> Paced:
    """Do the work of `paced`."""
    host, port, _ = _parts(url)
    turns = _requests(url, bodies, key)
    took: list[float] = []
    asked: dict[_Connection, float] = {}  # its planned time
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        free = [_Connection(opened.enter_context(socket.create_connection((host, port)))) for _ in range(connections)]
        for one in free:
            selector.register(one.socket, selectors.EVENT_READ, one)
        began, sent, count = time.perf_counter(), 0, int(rate * seconds)
        while len(took) < count:
            while free and sent < count and (moment := began + sent / rate) <= time.perf_counter():
                asked[one := free.pop()] = moment
                one.socket.sendall(next(turns))
                sent += 1
            wait = began + sent / rate - time.perf_counter() if free and sent < count else 1
            for ready, _ in selector.select(max(0.0, wait)):
                if ready.data.whole_answer():
                    took.append(1_000 * (time.perf_counter() - asked.pop(ready.data)))
                    free.append(ready.data)
        elapsed = time.perf_counter() - began
    took.sort()
    return Paced(count / elapsed, percentile(took, 50), percentile(took, 99))


def _parts(url: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"http://([^:/]+):(\d+)(/.*)", url)
    if found is None:
        raise BenchmarkError(f"{url} has no host, port or path")
    return found.group(1), int(found.group(2)), found.group(3)


def _send(url: str, path: str, connections: str, seconds: str, key: str, *rate: str) -> None:
    """Send requests; print the answers a second, or `Paced` if a rate is given."""
    bodies = Path(path).read_bytes().splitlines()
    if rate:
        found = send_paced(url, bodies, int(connections), float(seconds), key, int(rate[0]))
        print(msgspec.json.encode(found).decode())
    else:
        print(send(url, bodies, int(connections), float(seconds), key))


if __name__ == "__main__":
    _send(*sys.argv[1:])
