"""The processes that a benchmark runs: a Valkey on fresh data, a worker, an API, and helpers of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.errors import BenchmarkError
from benchmarks.harness import Scale, wait_for
from benchmarks.load.messages import QUEUES
from benchmarks.running.given import Given, allocator, connect, given
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import die_with_parent, free_port
from delayq.store.keys import queue_keys
from testbed.errors import ServerMissing

__all__ = [
    "Process",
    "api",
    "connect",
    "http_service",
    "program",
    "python",
    "server",
    "server_for",
    "with_jemalloc",
    "worker",
]

ROOT: Final = Path(__file__).resolve().parent.parent.parent
START_SECONDS: Final = 60


@contextmanager
def server(*, rewrites: bool = False, binary: Path | None = None) -> Iterator[EmbeddedServer]:
    """A fresh server with AOF (everysec).

    Without `rewrites` it does not rewrite its AOF meanwhile: that comes at odd moments and would hit one of
    two things that are compared, not the other.
    """
    extra = () if rewrites else ("--auto-aof-rewrite-percentage", "0")
    with EmbeddedServer(binary=binary, extra=extra) as running:
        yield running


@contextmanager
def server_for(scale: Scale, *, rewrites: bool = False, binary: Path | None = None) -> Iterator[EmbeddedServer | Given]:
    """What delayq is measured on: a fresh server, or the Redis that `--redis-url` names."""
    if scale.redis_url:
        with given(scale.redis_url) as found:
            yield found
    else:
        with server(rewrites=rewrites, binary=binary) as running:
            yield running


def with_jemalloc() -> Path:
    """A server of this machine that allocates with jemalloc, as most that people run do; raises ServerMissing."""
    for name in ("redis-server", "valkey-server"):
        if (found := shutil.which(name)) is not None:
            with server(binary=Path(found)) as running:
                if allocator(running.url).startswith("jemalloc"):
                    return Path(found)
    raise ServerMissing("there is no server with jemalloc on the PATH: Debian's redis-server is one")


class Process:
    """A program of ours, and what it says."""

    def __init__(self, log: IO[str], words: Sequence[str], settings: Mapping[str, str], cwd: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        self._log = log
        self._command = " ".join((Path(words[0]).name, *words[1:]))
        self._popen = subprocess.Popen(
            die_with_parent(list(words)),
            cwd=cwd,
            env=clean | dict(settings),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def said(self) -> str:
        """The end of what it wrote."""
        self._log.seek(0)
        return "\n".join(self._log.read().splitlines()[-20:])

    def kill(self) -> None:
        """SIGKILL."""
        self._popen.kill()
        self._popen.wait()

    def check(self) -> None:
        """Raise BenchmarkError if it has ended."""
        if self._popen.poll() is not None:
            raise BenchmarkError(f"{self._command} ended with {self._popen.returncode}: {self.said()}")

    def wait(self, seconds: float) -> None:
        """Wait for its end; anything but 0 is a BenchmarkError."""
        try:
            if self._popen.wait(seconds) == 0:
                return
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{self._command} did not end within {seconds:.0f} s") from None
        self.check()

    def stop(self) -> None:
        """SIGTERM, after 30 s SIGKILL."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(30)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()


@contextmanager
def python(*arguments: str, **settings: str) -> Iterator[Process]:
    """A Python in its own process."""
    with program((sys.executable, *arguments), settings) as process:
        yield process


@contextmanager
def program(words: Sequence[str], settings: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Iterator[Process]:
    """A program in its own process, with these settings and none of the caller's DELAYQ_*."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = Process(log, words, settings or {}, cwd)
        try:
            yield process
        finally:
            process.stop()


@contextmanager
def worker(url: str, module: str = "workers", routes: str = "", **settings: str) -> Iterator[Process]:
    """A worker node that has claimed all queues."""
    settings = {"DELAYQ_REDIS_URL": url, **settings} | ({"DELAYQ_ROUTES": routes} if routes else {})
    with python("-m", module, **settings) as process, closing(connect(url)) as connection:

        def claimed() -> bool:
            process.check()
            return all(_epochs(connection))

        wait_for("a worker that claims its queues", claimed, seconds=START_SECONDS)
        yield process


def _epochs(connection: Any) -> list[Any]:
    pipeline = connection.pipeline(transaction=False)
    for queue in range(QUEUES):
        pipeline.hget(queue_keys(queue).state, "epoch")
    epochs: list[Any] = pipeline.execute()
    return epochs


@contextmanager
def http_service(path: str, *arguments: str, port: int, **settings: str) -> Iterator[Process]:
    """An HTTP service that answers a GET of `path`."""
    with python(*arguments, **settings) as process:

        def answers() -> bool:
            process.check()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as reply:
                    return bool(reply.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        wait_for(f"an answer to {path}", answers, seconds=START_SECONDS)
        yield process


@contextmanager
def api(url: str, keys: str = "") -> Iterator[tuple[Process, int]]:
    """The HTTP API, and its port; `keys` is the file of its keys."""
    port = free_port()
    settings = {"DELAYQ_REDIS_URL": url, "DELAYQ_API_PORT": str(port), "DELAYQ_API_KEYS": keys}
    with http_service("/readyz", "-m", "api", port=port, **settings) as process:
        yield process, port
