"""A server process: started with its output in a file, waited for, stopped, killed, paused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from delayq.embedded.processes import await_end, die_with_parent
from testbed.errors import ServerError

STOP_SECONDS = 30.0
PAUSE_SECONDS = 30.0
#: The processes that this process has started to stay, in that order.
staying: list[ServerProcess] = []


def stand_still(pid: int) -> None:
    """SIGSTOP, and wait until no thread of the process runs: until one of them has taken the signal, the others go on.

    Raises ServerError if they do not stop. Without a /proc nothing is waited for.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PAUSE_SECONDS
    while running := _running(pid):
        if time.monotonic() > deadline:
            raise ServerError(f"{running} threads of the process {pid} still run {PAUSE_SECONDS:.0f} s after SIGSTOP")
        time.sleep(0.001)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """The process gets no processor meanwhile; it goes on then, if it is still there."""
    stand_still(pid)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _running(pid: int) -> int:
    """How many threads of a process are neither stopped nor at their end."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended meanwhile
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return sum(state not in "TtZX" for state in states)


class ServerProcess:
    """One process of a server. Not for several threads.

    On Linux a process that was started from the main thread gets SIGTERM when this process dies, unless it is to
    `stay`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        stay: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [*command]
        self._environment = environment
        self._stay = stay
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it unless it runs."""
        if self.pid is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the parent, which stops things in order.
            self._process = subprocess.Popen(
                self._command if self._stay else die_with_parent(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=None if self._environment is None else dict(self._environment),
            )
        if self._stay:
            staying.append(self)

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` returns true. Raises ServerError with the end of its log when it ends or the time is over."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.pid is None or time.monotonic() > deadline:
                what = "ended at once" if self.pid is None else f"did not answer within {seconds:.0f} s"
                raise ServerError(f"{self.name} {what}; {self.log} ends:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def pause(self) -> None:
        """Send SIGSTOP: it keeps its connections and sends nothing. Returns once all its threads are stopped."""
        if (pid := self.pid) is not None:
            stand_still(pid)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self.pid is not None:
            self._process.send_signal(signum)

    def stop(self) -> None:
        """SIGTERM, also while it is paused; after 30 s SIGKILL."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, signum: signal.Signals) -> None:
        """End it by this signal, even while it is paused; after 30 s by SIGKILL."""
        if self._process is None:
            return
        self.send(signum)
        self.resume()
        await_end(self._process, STOP_SECONDS)
        self._process = None


class Server:
    """The common parts of servers in the testbed: a folder for their data, and methods to start, pause and stop them.

    `data_dir` None is a temporary folder that `stop` removes.
    """

    def __init__(self, name: str, data_dir: Path | None, *, stay: bool = False) -> None:
        self.data_dir = data_dir.resolve() if data_dir is not None else None
        self._name = name
        self._temporary = data_dir is None
        self._stay = stay

    def start(self) -> None:
        """Start what does not run, and wait until it serves. Raises ServerMissing or ServerError."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop it in order; remove a temporary folder."""
        raise NotImplementedError

    def kill(self, *numbers: int) -> None:
        """SIGKILL; the data stay, and `start` goes on with them."""
        for process in self._processes(numbers):
            process.kill()

    def pause(self, *numbers: int) -> None:
        """Send SIGSTOP: it keeps its connections and sends nothing."""
        for process in self._processes(numbers):
            process.pause()

    def resume(self, *numbers: int) -> None:
        """SIGCONT."""
        for process in self._processes(numbers):
            process.resume()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _processes(self, numbers: Sequence[int]) -> list[ServerProcess]:
        """The processes that can be killed, paused and resumed: all processes of a server, or those of these numbers."""
        raise NotImplementedError

    def _folder(self) -> Path:
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix=f"delayq-{self._name}-")).resolve()
        return self.data_dir

    def _remove_temporary(self) -> bool:
        """Whether the data were temporary, and are gone."""
        if not self._temporary or self.data_dir is None:
            return False
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self.data_dir = None
        return True
