"""Keep a few processes alive, and stop them in order."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from delayq.base.stop_signals import stop_signals
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import die_with_parent
from devtools.screen import Screen
from testbed.zookeeper import ZooKeeperServer

LOOK_EVERY_SECONDS = 0.1
RESTARTS_A_MINUTE = 5
# Tools such as `timeout` signal the process and then its group. Both signals are one request.
SAME_WISH_SECONDS = 1.0
LAST_LINES_SECONDS = 1.0
WRONG_USE = 2


class Stopped(Exception):
    """A signal requested the end."""


class GaveUp(Exception):
    """A process cannot be kept running. The message is a sentence."""


class Part(Protocol):
    """One process that is kept alive."""

    name: str

    @property
    def pid(self) -> int | None:
        """Return its process id, or None if it does not run."""

    def start(self) -> None:
        """Start it, without waiting until it is ready."""

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if that takes too long. Return when it has ended."""

    def ended(self) -> tuple[int | None, str]:
        """Return its exit code, if known, and a text about its end."""


class Program:
    """A Part that is a program of the checkout. `screen` shows its standard error."""

    def __init__(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, patience: float, screen: Screen
    ) -> None:
        self.name = name
        self._screen = screen
        self._command = command
        self._env = env
        self._cwd = cwd
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Return its process id, or None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it in its own session, because Ctrl-C must not reach it before its turn."""
        self._process = subprocess.Popen(
            die_with_parent(self._command),
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE if self._screen.takes_lines else None,
            start_new_session=True,
        )
        if self._process.stderr is not None:
            self._reader = threading.Thread(target=self._read, args=(self._process.stderr,), daemon=True)
            self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                self._screen.relay(self.name, line.decode(errors="replace"))

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if that takes too long. Return when it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(self._patience)
            except subprocess.TimeoutExpired:
                self._screen.say(f"{self.name} did not stop within {self._patience:.0f} s and was killed")
                self._process.kill()
                self._process.wait()
        if self._reader is not None:
            self._reader.join(LAST_LINES_SECONDS)  # bounded, because a child of its own may hold the pipe open

    def ended(self) -> tuple[int | None, str]:
        """Return its exit code and a text about it."""
        code = self._process.returncode if self._process is not None else None
        by = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return code, by


class Valkey:
    """A Part that is the embedded server."""

    name = "Valkey"

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self.start = lambda: server.start(wait=False)
        self.stop = server.stop

    @property
    def pid(self) -> int | None:
        """Return its process id, or None if it does not run."""
        return self._server.pid

    def ended(self) -> tuple[int | None, str]:
        """Return the end of its log, which explains more than its exit code."""
        return None, f"the end of its log:\n{self._server.log_tail()}"


class ZooKeeper:
    """A Part that is a ZooKeeper server."""

    name = "ZooKeeper"

    def __init__(self, server: ZooKeeperServer) -> None:
        self.start = server.start
        self.stop = server.stop
        self._server = server

    @property
    def pid(self) -> int | None:
        """Return its process id, or None if it does not run."""
        return self._server.pids[0]

    def ended(self) -> tuple[int | None, str]:
        """Return the path of its log in its data folder."""
        return None, f"its log is {self._server.data_dir}/1/zookeeper.log"


class Supervisor:
    """Start parts one after the other, restart parts that die, and stop them in the opposite order."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._parts: list[Part] = []
        self._deaths: dict[str, deque[float]] = {}
        self._restart_at: dict[str, float] = {}
        self._first_signal: float | None = None

    def listen(self) -> None:
        """Handle the signals that ask a process to stop, from now on."""
        stop_signals.listen()
        stop_signals.call(self._on_signal)

    def start(self, part: Part) -> None:
        """Start a part, and keep it alive from now on."""
        self._parts.append(part)
        self._deaths[part.name] = deque()
        part.start()

    def wait_until(self, condition: Callable[[], bool], seconds: float = float("inf")) -> bool:
        """Keep all parts alive until `condition` holds. Return False if that takes too long."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self._look()
            time.sleep(LOOK_EVERY_SECONDS)
        return True

    def stop(self) -> None:
        """Stop all parts, last one first: the API stops accepting, then workers stop delivering, then Redis stops
        storing.
        """
        while self._parts:
            with self._screen.doing(f"stopping {self._parts[-1].name}"):
                self._parts[-1].stop()
            self._parts.pop()  # only here: a second signal shortens the wait

    def _on_signal(self) -> None:
        if self._first_signal is None:
            self._first_signal = time.monotonic()
        elif time.monotonic() > self._first_signal + SAME_WISH_SECONDS:
            for pid in filter(None, (part.pid for part in self._parts)):  # shortened; `stop` waits for their end
                os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        if self._first_signal is not None:
            raise Stopped
        for part in self._parts:
            if part.pid is not None:
                continue
            if part.name not in self._restart_at:
                self._restart_at[part.name] = time.monotonic() + self._count_death(part)
            elif time.monotonic() >= self._restart_at[part.name]:
                del self._restart_at[part.name]
                part.start()

    def _count_death(self, part: Part) -> float:
        """Return the seconds until the part may be restarted."""
        code, words = part.ended()
        if code == WRONG_USE:  # it has reported an invalid configuration, which a restart cannot fix
            raise GaveUp(f"{part.name} refused to start ({words})")
        deaths = self._deaths[part.name]
        deaths.append(time.monotonic())
        while deaths[0] < time.monotonic() - 60:
            deaths.popleft()
        if len(deaths) > RESTARTS_A_MINUTE:
            raise GaveUp(f"{part.name} died {len(deaths)} times within a minute; {words}")
        self._screen.say(f"{part.name} died and is restarted; {words}")
        return min(0.1 * 2.0 ** (len(deaths) - 1), 2.0)
