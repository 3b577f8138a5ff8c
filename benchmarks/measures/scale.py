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
from contextlib import closing, contextmanager
from typing import Any, Final

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
#: Workers, and primaries of a Redis Cluster (0: one server), by the name of their figures.
SETUPS: Final = {
    "1 node": (1, 0), "2 nodes": (2, 0), "4 nodes": (4, 0),
    "Redis Cluster, 1 primary": (2, 1), "Redis Cluster, 3 primaries": (2, 3),
}  # fmt: skip
RATE: Final = "drained"


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all setups in turn."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETUPS}
    with ZooKeeperServer() as zookeeper:
        for number in range(1, ROUNDS[scale.quick] + 1):
            for name, runs in found.items():
                progress(f"scale: {name}, run {number}")
                runs.append(_measure(*SETUPS[name], MESSAGES[scale.quick], zookeeper))
                progress(f"scale: {name}: {runs[-1]}")
                time.sleep(REST)
    return [
        single(
            f"{name}, {what}",
            "messages/s" if what == RATE else "µs a message",
            [one[what] for one in runs],
        )
        for name, runs in found.items()
        for what in runs[0]
    ], {}


@contextmanager
def _servers(primaries: int) -> Iterator[Group]:
    if primaries:
        with cluster(primaries, replicas=False) as group:
            yield group
    else:
        with server() as running:
            yield Group(running.url, [running])


def _measure(nodes: int, primaries: int, count: int, zookeeper: ZooKeeperServer) -> dict[str, float]:
    root = f"/scale-{time.time_ns()}"
    with (
        _servers(primaries) as group,
        Team(group.url, zookeeper.hosts, nodes, module=NULL, routes=NULL_ROUTES, root=root) as team,
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
    return {
        RATE: count / seconds,
        "CPU of Redis": sum(servers),
        **({"CPU of the busiest": max(servers)} if primaries > 1 else {}),
        "CPU of the nodes": sum(each[name] for name in team.names),
    }
