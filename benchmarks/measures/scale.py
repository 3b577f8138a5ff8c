"""More workers, and more primaries of a Redis Cluster: the rate of a drain, and the CPU of Redis for a message.

The backlog takes the general path into a null target, where the workers do most of the work, so more of them show. Into
Redis Streams of the same Redis one script does everything, and a second worker finds nothing to do. Everything shares the
cores of one machine, so messages/s grow only until these are busy. The CPU of Redis for a message does not depend on that.
More workers must not increase it, and with several primaries the busiest primary is the bound. The primaries have no
replicas; two workers serve them. 200,000 messages are drained each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, Final

import msgspec

from benchmarks.harness import CpuMeter, Scale, progress
from benchmarks.load.backlog import Watch, in_time, schedule_ahead, sleep_until, span_of
from benchmarks.load.messages import make, spread
from benchmarks.measures.drain import NULL_ROUTES
from benchmarks.results import Figure, single
from benchmarks.running.groups import Group, cluster
from benchmarks.running.processes import NULL, server
from benchmarks.running.team import Team
from delayq import Client
from testbed.zookeeper import ZooKeeperServer

REST: Final = 1.0
#: In full, and quick.
MESSAGES: Final = {False: 200_000, True: 50_000}
ROUNDS: Final = {False: 2, True: 1}


class Setup(msgspec.Struct, frozen=True):
    """A number of workers, on a number of primaries of a Redis Cluster, or (0) on one server."""

    nodes: int
    primaries: int = 0

    @property
    def name(self) -> str:
        """The name in figures."""
        if self.primaries:
            return f"Redis Cluster, {self.primaries} {'primary' if self.primaries == 1 else 'primaries'}"
        return f"{self.nodes} {'node' if self.nodes == 1 else 'nodes'}"

    def servers(self) -> AbstractContextManager[Group]:
        """Start its Redis."""
        return cluster(self.primaries, replicas=False) if self.primaries else _alone()


SETUPS: Final = (Setup(1), Setup(2), Setup(4), Setup(2, 1), Setup(2, 3))


class Drained(msgspec.Struct, frozen=True):
    """Messages/s, and CPU µs a message: of all servers, of the busiest server, of the workers."""

    rate: float
    redis: float
    busiest: float
    nodes: float


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all setups in turn."""
    figures: list[Figure] = []
    found: dict[Setup, list[Drained]] = {setup: [] for setup in SETUPS}
    with ZooKeeperServer() as zookeeper:
        for number in range(1, ROUNDS[scale.quick] + 1):
            for setup, runs in found.items():
                progress(f"scale: {setup.name}, run {number}")
                runs.append(_measure(setup, MESSAGES[scale.quick], zookeeper))
    for setup, runs in found.items():
        figures.append(single(f"{setup.name}, drained", "messages/s", [one.rate for one in runs]))
        figures.append(single(f"{setup.name}, CPU of Redis", "µs a message", [one.redis for one in runs]))
        if setup.primaries > 1:
            figures.append(single(f"{setup.name}, CPU of the busiest", "µs a message", [one.busiest for one in runs]))
        figures.append(single(f"{setup.name}, CPU of the nodes", "µs a message", [one.nodes for one in runs]))
    return figures, {}


@contextmanager
def _alone() -> Iterator[Group]:
    with server() as running:
        yield Group(running.url, [running])


def _measure(setup: Setup, count: int, zookeeper: ZooKeeperServer) -> Drained:
    root = f"/scale-{time.time_ns()}"
    with (
        setup.servers() as group,
        Team(
            group.url,
            zookeeper.hosts,
            setup.nodes,
            module=NULL,
            routes=NULL_ROUTES,
            root=root,
        ) as team,
        Client(group.url) as client,
        closing(Watch(group.url)) as watch,
    ):
        moment, span = in_time(count, spare=4_000), span_of(count)
        schedule_ahead(client, make(count, spread(moment, span)), moment)
        sleep_until(moment - 5)
        meter = CpuMeter(**group.pids, **team.pids)
        seconds = watch.pool_emptied(count, moment)
        meter.end(count)
        team.check()
    each = meter.each()
    servers = [cost for process, cost in each.items() if process not in team.names]
    found = Drained(count / seconds, sum(servers), max(servers), sum(each[name] for name in team.names))
    progress(f"scale: {setup.name}: {found.rate:,.0f} messages/s, Redis {found.redis:.1f} µs a message")
    time.sleep(REST)
    return found
