"""Other delay queues to compare with: a program for each one, with the arguments and outputs of go/main.go."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import wait_for
from benchmarks.running.processes import Process, program, server, worker
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.errors import ServerMissing

__all__ = ["OURS", "PEERS", "SLACK", "WITH_SLACK", "Peer", "Serving", "result_of"]

FOLDER: Final = Path(__file__).parent
BUILD: Final = FOLDER.parent.parent / "build" / "peers"
BUILD_SECONDS: Final = 300.0
START_SECONDS: Final = 60.0
#: ms between two fsyncs of beanstalkd's log, as with everysec in Redis.
FSYNC_MS: Final = 1_000


class Serving(msgspec.Struct, frozen=True):
    """A running peer: its HOST:PORT, its server's process, and other processes that deliver."""

    address: str
    server: int
    others: dict[str, int] = {}


class Peer(msgspec.Struct, frozen=True):
    """A delay queue.

    `command` has the first words of its program. `slack` is how many
    ms late a message may become due, because the peer has whole seconds.
    """

    name: str
    version: str
    command: tuple[str, ...]
    serving: Callable[[], AbstractContextManager[Serving]]
    slack: int = 0

    @contextmanager
    def doing(self, action: str, serving: Serving, count: int, number: float) -> Iterator[Process]:
        """Run its program with an action."""
        words = (action, serving.address, str(count), f"{number:.0f}")
        with program((*self.command, *words)) as process:
            yield process

    def do(self, action: str, serving: Serving, count: int, number: float, seconds: float = 300.0) -> dict[str, float]:
        """Run an action until its end; return the result."""
        with self.doing(action, serving, count, number) as process:
            process.wait(seconds)
            return result_of(process)


def result_of(process: Process) -> dict[str, float]:
    """The last JSON object that a program has printed."""
    text = process.output()
    for line in reversed(text.splitlines()):
        try:
            return msgspec.json.decode(line, type=dict[str, float])
        except msgspec.MsgspecError:
            continue
    raise BenchmarkError(f"the program of a peer printed:\n{text}")


@contextmanager
def _redis() -> Iterator[Serving]:
    with server() as running:
        yield Serving(f"{LOCALHOST}:{running.port}", running.pid or 0)


@contextmanager
def _delayq(routes: str = "") -> Iterator[Serving]:
    with server() as running, worker(running.url, routes=routes) as process:
        yield Serving(f"{LOCALHOST}:{running.port}", running.pid or 0, {"worker": process.pid})


@contextmanager
def _beanstalkd() -> Iterator[Serving]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder:
        words = (_beanstalkd_program(), "-l", LOCALHOST, "-p", str(port), "-b", folder, "-f", str(FSYNC_MS))
        with program(words) as process:

            def answers() -> bool:
                process.check()
                with closing(socket.socket()) as probe:
                    return probe.connect_ex((LOCALHOST, port)) == 0

            wait_for("beanstalkd", answers, seconds=START_SECONDS)
            yield Serving(f"{LOCALHOST}:{port}", process.pid)


def _beanstalkd_program() -> str:
    found = shutil.which("beanstalkd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise ServerMissing("there is no beanstalkd: Debian and Ubuntu have it, apt-get install beanstalkd")
    return found


def _go() -> str:
    """Build the program in go/ if it has changed; return its path."""
    go = shutil.which("go")
    if go is None:
        raise ServerMissing(
            "its client is built with Go 1.24 or newer, and there is none: install it (https://go.dev/dl)"
        )
    built = BUILD / "peers"
    try:
        ran = subprocess.run(
            [go, "build", "-mod=readonly", "-o", str(built), "."],
            cwd=FOLDER / "go",
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ServerMissing(f"its client was not built within {BUILD_SECONDS:.0f} s") from None
    if ran.returncode:
        raise ServerMissing(f"its client could not be built: {ran.stderr.strip().splitlines()[-1]}")
    return str(built)


def _pinned(module: str) -> str:
    found = re.search(rf"{re.escape(module)} v(\S+)", (FOLDER / "go" / "go.mod").read_text())
    assert found is not None
    return found.group(1)


def _asynq() -> Peer:
    return Peer("asynq", _pinned("github.com/hibiken/asynq"), (_go(), "asynq"), _redis)


def _beanstalkd_peer() -> Peer:
    output = subprocess.run([_beanstalkd_program(), "-v"], capture_output=True, text=True, check=False).stdout
    return Peer("beanstalkd", output.split()[-1], (_go(), "beanstalkd"), _beanstalkd, slack=1_000)


#: Functions that return each peer, or raise ServerMissing.
PEERS: Final[dict[str, Callable[[], Peer]]] = {"asynq": _asynq, "beanstalkd": _beanstalkd_peer}
OURS: Final = Peer("delayq", "", (sys.executable, "-m", "benchmarks.peers.ours"), _delayq)
#: ms that messages may be late in the run with slack, and delayq with it.
SLACK: Final = 50
WITH_SLACK: Final = msgspec.structs.replace(OURS, serving=partial(_delayq, f'[{{"name":"streams","slack":{SLACK}}}]'))
