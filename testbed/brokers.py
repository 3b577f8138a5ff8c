"""Brokers that go on when the program that started them has ended: started, listed and stopped by their notes."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from testbed import jars
from testbed.process import staying

#: The class of each module of this package that is a broker.
CLASSES: Final = {"kafka": "Kafka", "rocketmq": "RocketMQ", "rabbitmq": "RabbitMQ"}
STOP_SECONDS: Final = 30.0
KILL_SECONDS: Final = 10.0


class Broker(Protocol):
    """The interface of all brokers."""

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def make_topic(self, topic: str) -> None: ...


class Process(msgspec.Struct, frozen=True):
    """A process: its id, and when it began, for ids are used again."""

    pid: int
    began: str


class Note(msgspec.Struct, frozen=True):
    """A broker that was started: its target's URL, its processes in the order in which they began, and its data."""

    url: str
    processes: tuple[Process, ...]
    data: str

    @property
    def runs(self) -> bool:
        """Whether all of it is there."""
        return all(_began(one.pid) == one.began for one in self.processes)


def known() -> list[str]:
    """The brokers that there are in this checkout."""
    return [name for name in CLASSES if find_spec(f"testbed.{name}") is not None]


def prepare(name: str) -> None:
    """Fetch the missing classes of the broker. Raises ServerMissing if this machine cannot run it."""
    if (Path(__file__).parent / f"{name}.jars").exists() and jars.missing(name):
        jars.fetch(name)
    import_module(f"testbed.{name}").available()


def make(name: str, folder: Path) -> Broker:
    """A broker that stays."""
    options: dict[str, Any] = {"data_dir": folder, "stay": True}
    broker: Broker = getattr(import_module(f"testbed.{name}"), CLASSES[name])(**options)
    return broker


class Brokers:
    """The brokers of one folder, which has their data and `state.json`."""

    def __init__(self, folder: Path, *, make: Callable[[str, Path], Broker] = make) -> None:
        self.folder = folder.resolve()
        self._file = self.folder / "state.json"
        self._make = make

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the block runs no other process changes anything here."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def notes(self) -> dict[str, Note]:
        """The brokers that were started and not stopped, by name."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Note])
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}

    def up(self, name: str) -> tuple[Note, bool]:
        """The running broker, with a topic NAME.demo, and whether it ran already. Raises ServerMissing or ServerError."""
        if (found := self.notes().get(name)) is not None:
            if found.runs:
                return found, True
            self.down(name)
        data = self.folder / name
        shutil.rmtree(data, ignore_errors=True)  # of one that never served
        broker = self._make(name, data)
        before = len(staying)
        try:
            broker.start()
            broker.make_topic(f"{name}.demo")
            pids = [one.pid for one in staying[before:] if one.pid is not None]
            note = Note(broker.url, tuple(Process(pid, _began(pid)) for pid in pids), str(data))
            self._write({**self.notes(), name: note})
        except BaseException:  # Ctrl-C, too: no note would name the broker
            broker.stop()
            raise
        return note, False

    def down(self, name: str) -> bool:
        """Stop the broker and remove its data; False if it was not started here."""
        notes = self.notes()
        note = notes.pop(name, None)
        if note is None:
            return False
        for process in reversed(note.processes):
            _stop(process)
        shutil.rmtree(note.data, ignore_errors=True)
        self._write(notes)
        return True

    def _write(self, notes: dict[str, Note]) -> None:
        part = self._file.with_suffix(".part")
        part.write_bytes(msgspec.json.format(msgspec.json.encode(notes)))
        part.replace(self._file)


def _stop(process: Process) -> None:
    """Send SIGTERM, after a while SIGKILL, unless another process has its id now."""
    for signum, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
        if _began(process.pid) != process.began:
            return
        with suppress(ProcessLookupError):
            os.kill(process.pid, signum)
            os.kill(process.pid, signal.SIGCONT)
        deadline = time.monotonic() + seconds
        while _began(process.pid) == process.began and time.monotonic() < deadline:
            time.sleep(0.05)


def _began(pid: int) -> str:
    """When the process began, as this system writes it; '' if it is not there."""
    if Path("/proc/self/stat").exists():
        try:
            # The name may contain any character. After it, the state is the first word and the start time the 20th.
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if words[0] in "ZX" else words[19]
    listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()
