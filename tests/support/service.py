"""The complete service as processes: `python -m api` and any number of `python -m workers`, on one Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from delayq.embedded.processes import LOCALHOST, die_with_parent, free_port
from testbed.process import stand_still
from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


class OneProcess:
    """A process of ours, which may be killed, stopped and started again; its output goes to the end of a file."""

    def __init__(self, name: str, command: list[str], settings: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.command = command
        self.settings = dict(settings)
        self.environment: dict[str, str] = {}  # besides the settings
        self.log = log
        self._popen: subprocess.Popen[bytes] | None = None
        self._said_before = 0  # bytes of the file when it was started

    @property
    def alive(self) -> bool:
        """Whether it runs; a paused one does."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; of a running one only."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs or before it ran."""
        return self._popen.poll() if self._popen is not None else None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.alive:
            return
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        given = {f"DELAYQ_{name.upper()}": value for name, value in self.settings.items()}
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                die_with_parent(self.command),
                cwd=ROOT,
                env=clean | given | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs; for SIGSTOP, wait until all threads have stopped."""
        if self.alive:
            with suppress(ProcessLookupError):
                if number is signal.SIGSTOP:
                    stand_still(self.pid)
                else:
                    os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for its end; how it ended."""
        assert self._popen is not None
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self._popen.wait()

    @property
    def started(self) -> bool:
        """Whether it has reported that since it was started: from then on it ends in order when it is asked to."""
        return self.log.exists() and b"_started" in self.log.read_bytes()[self._said_before :]

    def said(self) -> str:
        """All that it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Service:
    """An API and workers named w0, w1, …, as processes.

    `settings` are of delayq's, without the prefix and in lower case, for all of them. Several workers need
    `zookeeper`. A worker's node name is its process's name.
    """

    def __init__(self, folder: Path, redis_url: str, *, workers: int = 1, zookeeper: str = "", **settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://{LOCALHOST}:{self.port}"
        self.settings = {"redis_url": redis_url, "zookeeper": zookeeper, **settings}
        self.api = self._process("api", ["-m", "api"], api_port=str(self.port))
        self.workers = [self._process(f"w{number}", ["-m", "workers"], node=f"w{number}") for number in range(workers)]
        self.http = httpx2.Client(base_url=self.url, timeout=HTTP_TIMEOUT)

    def _process(self, name: str, arguments: list[str], **settings: str) -> OneProcess:
        return OneProcess(name, [sys.executable, *arguments], self.settings | settings, self.folder / f"{name}.log")

    @property
    def processes(self) -> list[OneProcess]:
        """All of them."""
        return [self.api, *self.workers]

    def ready(self) -> bool:
        """Whether the API answers that it is ready."""
        try:
            return bool(self.http.get("/readyz").status_code == 200)
        except httpx2.HTTPError:
            return False

    def queues(self) -> list[dict[str, Any]]:
        """The answer of `GET /v1/queues`; nothing while the API is unreachable."""
        try:
            answer = self.http.get("/v1/queues")
        except httpx2.HTTPError:
            return []
        return list(answer.json()["queues"]) if answer.status_code == 200 else []

    def owners(self) -> dict[int, str | None]:
        """Who owns each queue; empty while the API is away."""
        return {one["queue"]: one.get("owner") for one in self.queues()}

    def epochs(self) -> dict[int, str | None]:
        """Under which epoch each queue is owned, as Redis has it; empty while the API is away."""
        return {one["queue"]: one["epoch"] for one in self.queues()}

    def owned(self) -> bool:
        """Whether every queue has an owner, and every live worker a queue."""
        owners = self.owners()
        live = {one.name for one in self.workers if one.alive}
        return bool(owners) and set(owners.values()) == live

    def schedule(self, topic: str, **fields: Any) -> httpx2.Response:
        """POST one message."""
        return self.http.post("/v1/messages", json={"topic": topic, **fields})

    def start(self) -> None:
        """Start everything, and wait until every queue is owned."""
        for one in self.processes:
            one.start()
        eventually(self.ready, "the API is ready")
        eventually(self.owned, "every queue has an owner and every worker a queue")

    def stop(self) -> None:
        """Stop the workers, then the API."""
        for one in self.workers:
            one.signal(signal.SIGCONT)
            one.signal(signal.SIGTERM)
        for one in reversed(self.processes):
            if one.alive:
                one.stop()
        self.http.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            for one in self.processes:
                one.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
