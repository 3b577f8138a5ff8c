"""HTTP requests to a service: with wrk if it is installed, else with a sender in Python; and at an even rate.

`http_load send …` is that sender in a process of its own. `http_load drip PORT COUNT` is a number of slow clients. A third of
them drips a head, a third drips a body that nobody waits for, and a third sends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.results import percentile
from benchmarks.running.processes import ROOT

_WRK_SCRIPT: Final = """
local bodies, turn = {}, 0
for line in io.lines(%s) do bodies[#bodies + 1] = line end
local headers = { ["Content-Type"] = "application/json", ["Authorization"] = %s }
local requests = {}
init = function()
  for i = 1, #bodies do requests[i] = wrk.format("POST", nil, headers, bodies[i]) end
end
request = function()
  turn = turn %% #requests + 1
  return requests[turn]
end
"""


class Load(msgspec.Struct, frozen=True):
    """The requests: their URL, number of connections, duration, and API key, if any.

    `bodies` is a file with one body a line. Without a duration (0) each body is sent once.
    """

    url: str
    bodies: Path
    connections: int
    seconds: float = 0
    key: str = ""


class Paced(msgspec.Struct, frozen=True):
    """Answers a second, and the ms from the planned time of a request to its answer."""

    rate: float
    p50: float
    p99: float


def has_wrk() -> bool:
    """Whether wrk is installed and sends the requests."""
    return shutil.which("wrk") is not None


def post(load: Load) -> float:
    """POST the bodies again and again, each connection waiting for its answer; return the 2xx answers a second."""
    return _wrk(load) if has_wrk() else _python(load)


def _wrk(load: Load) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        given = json.dumps(f"Bearer {load.key}") if load.key else "nil"
        script.write(_WRK_SCRIPT % (json.dumps(str(load.bodies)), given))
        script.flush()
        command = ["wrk", "-t1", f"-c{load.connections}", f"-d{load.seconds:.0f}s", "--timeout", "10s"]
        ran = subprocess.run([*command, "-s", script.name, load.url], capture_output=True, text=True, check=False)
    return read_wrk(ran.stdout + ran.stderr)


def read_wrk(output: str) -> float:
    """Return the requests a second from the output of wrk; raise BenchmarkError if a request failed."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if rate is None or re.search(r"Non-2xx or 3xx responses|Socket errors", output):
        raise BenchmarkError(f"wrk printed:\n{output}")
    return float(rate.group(1))


def post_each(load: Load) -> float:
    """POST each body once, on kept connections; return the 2xx answers a second."""
    return _python(load)


def _python(load: Load) -> float:
    return float(_sender(load))


def paced(load: Load, rate: int) -> Paced:
    """POST at an even rate, independent of the answers; a request without a free connection is late."""
    return msgspec.json.decode(_sender(load, str(rate)), type=Paced)


def _sender(load: Load, *more: str) -> str:
    """Run the sender in a process of its own, because this one may have a million messages; return its output."""
    words = ["send", load.url, str(load.bodies), str(load.connections), str(load.seconds), load.key, *more]
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
    """Do the same as `post`, in Python; without `seconds`, the same as `post_each`."""
    host, port, _ = _parts(url)
    turns = itertools.islice(_requests(url, bodies, key), None if seconds else len(bodies))
    most = inf if seconds else len(bodies)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        began, answered = time.perf_counter(), 0
        for _ in range(connections):
            one = _Connection(opened.enter_context(socket.create_connection((host, port))))
            selector.register(one.socket, selectors.EVENT_READ, one)
            one.socket.sendall(next(turns, b""))
        while (elapsed := time.perf_counter() - began) < (seconds or inf) and answered < most:
            for ready, _ in selector.select(1):
                if ready.data.whole_answer():
                    answered += 1
                    ready.data.socket.sendall(next(turns, b""))
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


#: Requests that slow clients never complete: a head, a body, nothing.
SLOW: Final = (
    b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ",
    b"GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n",
    b"",
)


async def _drip(port: int, number: int) -> None:
    """Send a byte now and then, and connect again whenever the server closes the connection."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(SLOW[number % len(SLOW)])
                while True:
                    await asyncio.sleep(random.uniform(0.5, 1.5))
                    if reader.at_eof() or reader.exception() is not None:
                        break
                    if number % len(SLOW) < 2:
                        writer.write(b"a")
                        await writer.drain()
            finally:
                writer.close()
        await asyncio.sleep(random.uniform(0, 0.1))


async def _drip_all(port: int, count: int) -> None:
    await asyncio.gather(*(_drip(port, number) for number in range(count)))


def _drip_until_killed(port: str, count: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_drip_all(int(port), int(count)))


def _send(url: str, path: str, connections: str, seconds: str, key: str, *rate: str) -> None:
    """Send requests; print the answers a second, or `Paced` if a rate is given."""
    bodies = Path(path).read_bytes().splitlines()
    if rate:
        found = send_paced(url, bodies, int(connections), float(seconds), key, int(rate[0]))
        print(msgspec.json.encode(found).decode())
    else:
        print(send(url, bodies, int(connections), float(seconds), key))


ACTIONS: Final[dict[str, Callable[..., None]]] = {"send": _send, "drip": _drip_until_killed}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]](*sys.argv[2:])
