"""Everything that a run breaks: Redis, a Redis as target, ZooKeeper, workers, APIs, and the relays between them."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from delayq.config import Settings, load_settings
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from reliability.chaos.options import Options
from reliability.chaos.relays import Relays
from reliability.waiting import GaveUp, wait_until
from testbed.zookeeper import ZooKeeperServer
from tests.support.servers import KEPT
from tests.support.service import OneProcess

#: Topics into streams of the same Redis, by the one script; and by the general path into another Redis.
STREAMS = tuple(f"stream.{number}" for number in range(4))
GENERAL = tuple(f"general.{number}" for number in range(4))
WINDOW = 2_000
HTTP_SECONDS = 30.0


class Stack:
    """Use it as a context manager, from the main thread alone."""

    def __init__(self, options: Options, zookeeper: ZooKeeperServer | None = None, root: str = "/delayq") -> None:
        folder = self.folder = options.folder
        self.options = options
        binary = Path(options.redis) if options.redis else None
        self.redis = EmbeddedServer(data_dir=folder / "redis", binary=binary, extra=KEPT)
        self.target = EmbeddedServer(data_dir=folder / "target", appendonly=False)
        self._own_zookeeper = zookeeper is None
        if zookeeper is None and options.zookeepers:
            zookeeper = ZooKeeperServer(data_dir=folder / "zookeeper", members=options.zookeepers)
        self.zookeeper = zookeeper
        self._root = root
        hosts = zookeeper.hosts.split(",") if zookeeper is not None else []
        self._members = [int(host.rpartition(":")[2]) for host in hosts]
        self.relays = Relays(self._roads())
        self.workers = [self._worker(number) for number in range(options.nodes)]
        self.apis = [self._api(number) for number in range(options.apis)]
        self._stack = ExitStack()

    def _roads(self) -> dict[str, int]:
        roads: dict[str, int] = {}
        for worker in range(self.options.nodes):
            roads[f"w{worker}-redis"] = self.redis.port
            roads[f"w{worker}-target"] = self.target.port
            roads |= {f"w{worker}-zookeeper{place}": port for place, port in enumerate(self._members)}
        return roads | {f"api{api}-redis": self.redis.port for api in range(self.options.apis)}

    def _worker(self, number: int) -> OneProcess:
        members = range(len(self._members))
        return self._process(
            f"w{number}",
            "workers",
            node=f"w{number}",
            target=self.relays.address(f"w{number}-target"),
            zookeeper=",".join(self.relays.address(f"w{number}-zookeeper{place}") for place in members),
            zookeeper_root=self._root,
            session_timeout=str(self.options.session_timeout),
        )

    def _api(self, number: int) -> OneProcess:
        target = f"{LOCALHOST}:{self.target.port}"
        return self._process(f"api{number}", "api", target=target, api_port=str(free_port()))

    def _common(self, redis: str, target: str) -> dict[str, str]:
        """Settings of all, who reach Redis and the target there."""
        routes = [
            {"name": "general", "match": "general.*", "target": f"redis+stream://{target}/0"},
            {"name": "streams", "match": "stream.*", "target": "redis+stream:"},
        ]
        return {
            "redis_url": f"redis://{redis}/0",
            "routes": json.dumps(routes),
            "window": str(WINDOW),
            "max_attempts": "1000",
            "retry_cap": "4s",
            "send_timeout": "3s",
            "final_window": str(self.options.final_window),
            "drain_timeout": "8s",
            "senders": str(self.options.senders),
        }

    def settings(self) -> Settings:
        """The settings of a client with a direct connection to Redis."""
        there, target = (f"{LOCALHOST}:{server.port}" for server in (self.redis, self.target))
        return load_settings(**self._common(there, target))

    def _process(self, name: str, module: str, *, target: str, **settings: str) -> OneProcess:
        mutant = ["reliability.chaos.mutant", self.options.mutant] if self.options.mutant else []
        common = self._common(self.relays.address(f"{name}-redis"), target)
        return OneProcess(name, [sys.executable, "-m", *mutant, module], common | settings, self.folder / f"{name}.log")

    # -- processes ---------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[OneProcess]:
        """Workers and APIs."""
        return [*self.workers, *self.apis]

    @property
    def urls(self) -> list[str]:
        """The URLs of the APIs."""
        return [f"http://{LOCALHOST}:{api.settings['api_port']}" for api in self.apis]

    def counts(self) -> Mapping[str, int]:
        """How many victims of each sort there are."""
        workers, apis = len(self.workers), len(self.apis)
        return {
            "workers": workers,
            "apis": apis,
            "redis": 1,
            "target": 1,
            "zookeepers": len(self._members),
            "worker-redis": workers,
            "api-redis": apis,
            "worker-zookeeper": workers,
            "worker-target": workers,
        }

    def roads(self, victims: str, number: int) -> Sequence[str]:
        """The names of the relays between two."""
        one, _, other = victims.partition("-")
        name = f"{'w' if one == 'worker' else one}{number}-{other}"
        if other == "zookeeper":
            return [f"{name}{place}" for place in range(len(self._members))]
        return [name]

    # -- what it has left --------------------------------------------------------------------------------------------

    def total(self) -> Mapping[str, int]:
        """The total of `GET /v1/queues` of the first API that answers; empty if none does."""
        for url in self.urls:
            try:
                answer = httpx2.get(f"{url}/v1/queues", timeout=HTTP_SECONDS)
            except httpx2.HTTPError:
                continue
            if answer.status_code == 200:
                found: Mapping[str, int] = answer.json()["total"]
                return found
        return {}

    def left(self) -> int | None:
        """How many messages have not ended: pending, parked or given up; None while no API answers."""
        total = self.total()
        return total["depth"] + total["parked"] + total["dead"] if total else None

    def owned(self) -> bool:
        """Whether every queue has an owner."""
        try:
            answer = httpx2.get(f"{self.urls[0]}/v1/queues", timeout=HTTP_SECONDS)
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200 and all(one.get("owner") for one in answer.json()["queues"])

    # -- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        if self.zookeeper is not None and self._own_zookeeper:
            self._stack.enter_context(self.zookeeper)
        for server in (self.redis, self.target):
            server.start()
            self._stack.callback(server.stop)
        self.relays.start()
        self._stack.callback(self.relays.stop)
        for one in self.processes:
            self._stack.callback(one.kill)
            one.start()
        wait_until(self.owned, "every queue has an owner")

    def stop(self) -> list[str]:
        """Stop workers and APIs in order; the names of those that did not end as they should.

        The last one to be healed may have to start first: before that it does not listen to signals.
        """
        wait_until(lambda: all(one.started or not one.alive for one in self.processes), "all processes have started")
        for one in self.processes:
            one.signal(signal.SIGTERM)
        with suppress(GaveUp):  # a process that does not end is reported
            wait_until(lambda: not any(one.alive for one in self.processes), "all processes end")
        return [f"{one.name} ended with {one.returncode}" for one in self.processes if one.returncode != 0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
