"""Several workers that share the queues through ZooKeeper; each can be stopped, killed and started again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Final, Self

from benchmarks.harness import wait_for
from benchmarks.load.messages import QUEUES
from benchmarks.running.processes import Process, python
from delayq import Client
from delayq.domain.nodes import NodeLine, owners_of

SESSION_SECONDS: Final = 4
START_SECONDS: Final = 60.0


class Team:
    """Several `python -m workers` on one Redis. Inside `with`, every queue has an owner."""

    def __init__(
        self, url: str, zookeeper: str, count: int, *, module: str = "workers", routes: str = "", root: str = "/delayq"
    ) -> None:
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self._module = module
        self._settings = {
            "DELAYQ_REDIS_URL": url, "DELAYQ_ZOOKEEPER": zookeeper, "DELAYQ_ZOOKEEPER_ROOT": root,
            "DELAYQ_SESSION_TIMEOUT": f"{SESSION_SECONDS}s", "DELAYQ_ROUTES": routes,
        }  # fmt: skip
        self._client = Client(url)
        self._processes: dict[str, tuple[Process, ExitStack]] = {}
        self._after: dict[str, int] = {}  # Unix ms; an older line of that node belongs to its former process

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each worker, by its name."""
        return {name: process.pid for name, (process, _) in self._processes.items()}

    def start(self, *names: str) -> None:
        """Start workers, and wait until the queues are spread over all running ones."""
        for name in names:
            stack = ExitStack()
            self._after[name] = time.time_ns() // 1_000_000
            process = stack.enter_context(python("-m", self._module, DELAYQ_NODE=name, **self._settings))
            self._processes[name] = (process, stack)
        wait_for("queues that are spread over the workers", self._spread, seconds=START_SECONDS, pause=0.05)

    def stop(self, name: str) -> None:
        """Send SIGTERM and wait until it has handed over its queues and ended."""
        _, stack = self._processes.pop(name)
        stack.close()

    def kill(self, name: str) -> None:
        """Send SIGKILL."""
        process, stack = self._processes.pop(name)
        process.kill()
        stack.close()

    def check(self) -> None:
        """Raise BenchmarkError if one of them has ended."""
        for process, _ in self._processes.values():
            process.check()

    def queues_of(self, name: str) -> set[int]:
        """The queues that a worker owns."""
        return {queue for queue, node in self._owners().items() if node == name}

    def _owners(self) -> dict[int, str]:
        nodes: dict[str, NodeLine] = self._client.nodes()
        live = [line for name, line in nodes.items() if name in self._processes and self._is_its(name, line)]
        return owners_of(live, {stats.queue: stats.epoch for stats in self._client.queues()})

    def _is_its(self, name: str, line: NodeLine) -> bool:
        return line.since is not None and line.since >= self._after[name]

    def _spread(self) -> bool:
        self.check()
        owners = list(self._owners().values())
        counts = [owners.count(name) for name in self._processes]
        return len(owners) == QUEUES and max(counts) - min(counts) <= 1

    def __enter__(self) -> Self:
        try:
            self.start(*self.names)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: Any) -> None:
        for name in list(self._processes):
            self.stop(name)
        self._client.close()
