"""The servers of a benchmark: a Valkey on fresh data or the Redis of `--redis-url`, a worker, an API, and helpers of its own."""

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

import msgspec
import redis

from benchmarks import BenchmarkError
from benchmarks.harness import Scale, wait_for
from benchmarks.load.messages import QUEUES, TOPICS
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import die_with_parent, free_port
from delayq.store.connect.address import CLUSTER, SENTINEL, parse, without_secrets
from delayq.store.connect.sentinel import Primary
from delayq.store.keys import KEYS
from testbed.errors import ServerMissing

ROOT: Final = Path(__file__).resolve().parent.parent.parent
START_SECONDS: Final = 60
#: The module of a worker with the target `null:`.
NULL: Final = "benchmarks.running.worker_with_null"
#: s until a client gives up on a server, and until the sides of a handshake give up on each other.
_PATIENCE: Final = 60.0
_HANDSHAKE: Final = 120.0


@contextmanager
def server(*, rewrites: bool = False, binary: Path | None = None) -> Iterator[EmbeddedServer]:
    """A fresh server with AOF (everysec).

    Without `rewrites` it never rewrites its AOF. A rewrite comes at odd moments and would slow only one of two things
    that are compared.
    """
    extra = () if rewrites else ("--auto-aof-rewrite-percentage", "0")
    with EmbeddedServer(binary=binary, extra=extra) as running:
        yield running


class Given(msgspec.Struct, frozen=True):
    """The Redis of `--redis-url`. Its processes may run on another machine, so there is no process id."""

    url: str
    pid: int | None = None


@contextmanager
def server_for(scale: Scale, *, rewrites: bool = False, binary: Path | None = None) -> Iterator[EmbeddedServer | Given]:
    """The server on which delayq is measured: a fresh one, or the Redis of `--redis-url`."""
    if scale.redis_url:
        with _given(scale.redis_url) as found:
            yield found
    else:
        with server(rewrites=rewrites, binary=binary) as running:
            yield running


@contextmanager
def _given(url: str) -> Iterator[Given]:
    """A Redis without delayq's data; the data of the benchmark is deleted at the end."""
    with closing(connect(url)) as connection:
        if connection.exists("delayq:meta") or any(connection.exists(topic) for topic in TOPICS):
            raise BenchmarkError(f"{without_secrets(url)} is in use: a benchmark needs a Redis without any delayq data")
    try:
        yield Given(url)
    finally:
        with closing(connect(url)) as connection:
            for name in [*connection.scan_iter(match="delayq:*", count=1000), *TOPICS]:
                connection.delete(name)


def connect(url: str) -> Any:
    """A plain client for looking into a Redis. With Sentinel it connects to the current primary."""
    address = parse(url)
    if address.kind == CLUSTER:
        return redis.RedisCluster.from_url(address.url_of(address.nodes[0]), protocol=2, socket_timeout=_PATIENCE)
    if address.kind == SENTINEL:
        found = Primary(address, _PATIENCE).connect()
        url = address.url_of(found.address)
        found.close()
    return redis.Redis.from_url(url, protocol=2, socket_timeout=_PATIENCE)


def allocator(url: str) -> str:
    """The memory allocator of a server."""
    with closing(connect(url)) as connection:
        return str(connection.info("memory")["mem_allocator"])


def with_jemalloc() -> Path:
    """A server on this machine that allocates with jemalloc, as most servers in use do; raises ServerMissing."""
    for name in ("redis-server", "valkey-server"):
        if (found := shutil.which(name)) is not None:
            with server(binary=Path(found)) as running:
                if allocator(running.url).startswith("jemalloc"):
                    return Path(found)
    raise ServerMissing("there is no server with jemalloc on the PATH: Debian's redis-server is one")


class Process:
    """A program of the benchmark, and its output."""

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
        """The process id."""
        return self._popen.pid

    def output(self) -> str:
        """The last 20 lines of its output."""
        self._log.seek(0)
        return "\n".join(self._log.read().splitlines()[-20:])

    def kill(self) -> None:
        """Send SIGKILL and wait for its end."""
        self._popen.kill()
        self._popen.wait()

    def check(self) -> None:
        """Raise BenchmarkError if it has ended."""
        if self._popen.poll() is not None:
            raise BenchmarkError(f"{self._command} ended with {self._popen.returncode}: {self.output()}")

    def wait(self, seconds: float) -> None:
        """Wait for its end; any status but 0 is a BenchmarkError."""
        try:
            if self._popen.wait(seconds) == 0:
                return
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{self._command} did not end within {seconds:.0f} s") from None
        self.check()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after 30 s."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(30)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()


@contextmanager
def python(*arguments: str, **settings: str) -> Iterator[Process]:
    """This Python in a process of its own."""
    with program((sys.executable, *arguments), settings) as process:
        yield process


@contextmanager
def program(words: Sequence[str], settings: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Iterator[Process]:
    """A program in a process of its own, with these settings and none of the caller's DELAYQ_*."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = Process(log, words, settings or {}, cwd)
        try:
            yield process
        finally:
            process.stop()


class Handshake:
    """Two processes agree by files when to begin, so that the start of a process costs no measured time or CPU.

    One process waits until the other is `ready` and sends it a plan; the other waits for the plan.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready, self._part = path.with_name(f"{path.name}.ready"), path.with_name(f"{path.name}.part")

    @property
    def argument(self) -> str:
        """The path, as an argument of the other process."""
        return str(self._path)

    def ready(self) -> bool:
        """Whether the other process waits for its plan."""
        return self._ready.exists()

    def send(self, plan: bytes) -> None:
        """Send the plan: the other process begins."""
        self._part.write_bytes(plan)
        self._part.rename(self._path)

    def wait(self) -> bytes:
        """Report that this process is ready, and wait for the plan."""
        self._ready.touch()
        wait_for("a plan", self._path.exists, seconds=_HANDSHAKE)
        return self._path.read_bytes()


@contextmanager
def worker(url: str, module: str = "workers", routes: str = "", **settings: str) -> Iterator[Process]:
    """A worker that has claimed all queues."""
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
        pipeline.hget(KEYS.queue(queue).state, "epoch")
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
    """The HTTP API and its port; `keys` is the file of its API keys."""
    port = free_port()
    settings = {"DELAYQ_REDIS_URL": url, "DELAYQ_API_PORT": str(port), "DELAYQ_API_KEYS": keys}
    with http_service("/readyz", "-m", "api", port=port, **settings) as process:
        yield process, port
