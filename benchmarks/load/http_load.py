"""Load for an HTTP service: wrk where there is one, else a sender in Python on many connections."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.errors import BenchmarkError
from benchmarks.running.processes import ROOT

__all__ = ["Load", "has_wrk", "post"]

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
    """Which requests are sent: where to, on how many connections, for how long, with which key of the API, if any.

    `bodies` is a file, one a line.
    """

    url: str
    bodies: Path
    connections: int
    seconds: float
    key: str = ""


def has_wrk() -> bool:
    """Whether wrk sends the requests."""
    return shutil.which("wrk") is not None


def post(load: Load) -> float:
    """POST the bodies in turn and again, each connection waiting for its answer; answers with 2xx a second."""
    return _wrk(load) if has_wrk() else _python(load)


def _wrk(load: Load) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        given = json.dumps(f"Bearer {load.key}") if load.key else "nil"
        script.write(_WRK_SCRIPT % (json.dumps(str(load.bodies)), given))
        script.flush()
        command = ["wrk", "-t1", f"-c{load.connections}", f"-d{load.seconds:.0f}s", "--timeout", "10s"]
        ran = subprocess.run([*command, "-s", script.name, load.url], capture_output=True, text=True, check=False)
    return read_wrk(ran.stdout + ran.stderr)


def read_wrk(said: str) -> float:
    """Requests a second of what wrk printed; raises BenchmarkError if any of them failed."""
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    if rate is None or re.search(r"Non-2xx or 3xx responses|Socket errors", said):
        raise BenchmarkError(f"wrk says:\n{said}")
    return float(rate.group(1))


def _python(load: Load) -> float:
    """In a process of its own: this one may hold a million messages."""
    words = [load.url, str(load.bodies), str(load.connections), str(load.seconds), load.key]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.load.http_load", *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise BenchmarkError(f"the sender says: {ran.stderr}")
    return float(ran.stdout)


class _Connection:
    """A kept connection with one request at a time on it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._answer = b""

    def whole_answer(self) -> bool:
        """Read what is there; whether the answer is complete. Anything but 2xx is a BenchmarkError."""
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
    """What `post` does, in Python."""
    host, port, path = _parts(url)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {key}\r\nContent-Length: " if key else "Content-Length: "
    requests = [b"%b%d\r\n\r\n%b" % (head.encode(), len(body), body) for body in bodies]
    turns = itertools.cycle(requests)
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


def _parts(url: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"http://([^:/]+):(\d+)(/.*)", url)
    if found is None:
        raise BenchmarkError(f"{url} has no host, port and path")
    return found.group(1), int(found.group(2)), found.group(3)


def main() -> None:
    """URL, file of bodies, connections, seconds, key or ''; prints answers a second."""
    url, bodies, connections, seconds, key = sys.argv[1:]
    print(send(url, Path(bodies).read_bytes().splitlines(), int(connections), float(seconds), key))


if __name__ == "__main__":
    main()
