"""What happens to steady traffic when nodes are restarted or killed, and when ZooKeeper has no quorum."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import Scale, now, progress
from benchmarks.load.through_faults import GENERAL, Steady, again, late, twice
from benchmarks.running.processes import server
from benchmarks.running.team import Team
from testbed.zookeeper import ZooKeeperServer

__all__ = ["Kill", "Nodes", "Quorum", "Rolling", "measure"]

RATE: Final = 1_000
NODES: Final = 3
WARM_UP: Final = 4.0
SETTLE: Final = 4.0
PATIENCE: Final = 60.0


class Rolling(msgspec.Struct, frozen=True):
    """A restart of each node in turn: how many messages came twice, lateness p99 (ms) before and meanwhile."""

    duplicates: int
    quiet: float
    late: float
    seconds: float


class Kill(msgspec.Struct, frozen=True):
    """A node killed: seconds until its first and its last queue delivered again, and what came twice."""

    first: float
    last: float
    queues: int
    duplicates: int


class Quorum(msgspec.Struct, frozen=True):
    """ZooKeeper without quorum: calls that were refused, lateness p99 (ms) before and meanwhile."""

    errors: int
    quiet: float
    late: float
    seconds: float


class Nodes(msgspec.Struct, frozen=True):
    """All of it, and how many accepted messages never arrived."""

    rolling: Rolling
    kills: list[Kill]
    quorum: Quorum
    lost: int


def measure(scale: Scale) -> Nodes:
    """Three nodes go through it all in one run."""
    quiet = 5.0 if scale.quick else 10.0
    progress(f"failover: {NODES} nodes, three ZooKeeper servers, {RATE:,} messages/s")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server(rewrites=True) as running,
        ZooKeeperServer(members=3) as zookeeper,
        Team(running.url, zookeeper.hosts, NODES, routes=GENERAL) as team,
        Steady(running.url, Path(folder), RATE) as traffic,
    ):
        time.sleep(WARM_UP)
        rolling = _restart_all(team, traffic, quiet)
        kills = [_kill(team, traffic, name) for name in team.names[: scale.runs]]
        quorum = _without_quorum(zookeeper, traffic, quiet, 15.0 if scale.quick else 30.0)
        team.check()
        return Nodes(rolling, kills, quorum, traffic.finish())


def _restart_all(team: Team, traffic: Steady, quiet: float) -> Rolling:
    begin = now()
    time.sleep(quiet)
    restart = now()
    for name in team.names:
        progress(f"failover: restarting {name}")
        team.stop(name)
        team.start(name)
    end = now()
    time.sleep(SETTLE)
    seen = traffic.look().arrived
    return Rolling(
        twice(seen, restart, end), late(seen, begin, restart), late(seen, restart, end), (end - restart) / 1000
    )


def _kill(team: Team, traffic: Steady, name: str) -> Kill:
    progress(f"failover: killing {name}")
    queues = team.queues_of(name)
    killed = now()
    team.kill(name)
    traffic.wait_again(killed, PATIENCE, queues)
    found = [ms for queue, ms in again(traffic.arrived, killed).items() if queue in queues]
    time.sleep(SETTLE)
    # What was in flight then fell due before; it came again with the rest.
    duplicates = twice(traffic.look().arrived, killed - 5_000, now())
    team.start(name)
    return Kill(min(found) / 1000, max(found) / 1000, len(queues), duplicates)


def _without_quorum(zookeeper: ZooKeeperServer, traffic: Steady, quiet: float, seconds: float) -> Quorum:
    begin = now()
    time.sleep(quiet)
    progress(f"failover: ZooKeeper without quorum for {seconds:.0f} s")
    gone = now()
    leader = zookeeper.leader()
    other = (leader or 0) + 1
    zookeeper.kill(leader or 0, other % len(zookeeper.pids))
    time.sleep(seconds)
    back = now()
    zookeeper.start()
    time.sleep(SETTLE)
    seen = traffic.look().arrived
    refused = sum(gone <= at < back for at in traffic.errors)
    return Quorum(refused, late(seen, begin, gone), late(seen, gone, back), seconds)
