"""Faults and planned restarts under traffic, with real processes: how long deliveries stop, and what is late or repeated.

Messages with delays of 500 to 3,000 ms are scheduled at a steady rate and followed to their topic's stream. They take the
general path, where a fault can deliver a message twice. Three workers share the queues through a ZooKeeper of three servers,
at 1,000 messages a second. A single worker, at 200 a second, is used where Redis dies. A queue delivers again when the first
message arrives that was due after the fault; the last of the queues counts. Messages that a killed worker had in flight may
be repeated; its session lasts 4 s. With replicas, the primary with the topic's stream is killed, and messages are accepted
with `min_replicas=1`. The Sentinel setup has three sentinels and two replicas, down after 1 s. The Redis Cluster has three
primaries with a replica each, and a node timeout of 2 s.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import Scale, now, progress, wait_for
from benchmarks.load.backlog import schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.load.through_faults import GENERAL, Steady, again, late, twice
from benchmarks.results import Figure, single
from benchmarks.running.groups import Group, cluster, sentinels
from benchmarks.running.processes import server, worker
from benchmarks.running.team import Team
from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from testbed.zookeeper import ZooKeeperServer, available

SENTINEL_GOAL, CLUSTER_GOAL = 5, 6
NODES: Final = 3
#: Messages a second for several workers, and for one.
NODES_RATE: Final = 1_000
REDIS_RATE: Final = 200
TOPIC: Final = "order.cancel"
#: s before the first fault, after a fault, and until deliveries have to continue.
WARM_UP: Final = 4.0
NODES_SETTLE: Final = 4.0
SETTLE: Final = 3.0
PATIENCE: Final = 90.0
#: s between two fail-overs: sentinels wait for twice their fail-over time-out of 5 s.
BETWEEN: Final = 12.0


class Rolling(msgspec.Struct, frozen=True):
    """A restart of each worker in turn: the number of repeated messages, the p99 of lateness (ms) before and meanwhile."""

    duplicates: int
    quiet: float
    late: float
    seconds: float


class Kill(msgspec.Struct, frozen=True):
    """A killed worker: seconds until its first and its last queue delivered again, and the number of repeated messages."""

    first: float
    last: float
    queues: int
    duplicates: int


class Quorum(msgspec.Struct, frozen=True):
    """ZooKeeper without quorum: the number of refused calls, the p99 of lateness (ms) before and meanwhile."""

    errors: int
    quiet: float
    late: float
    seconds: float


class Nodes(msgspec.Struct, frozen=True):
    """All faults of workers and ZooKeeper, and the number of lost messages."""

    rolling: Rolling
    kills: list[Kill]
    quorum: Quorum
    lost: int


class Load(msgspec.Struct, frozen=True):
    """Seconds from the start of Redis to its first answer, and from then until all queues delivered again."""

    load: float
    after: float


class Killed(msgspec.Struct, frozen=True):
    """A Redis that is killed in each run, and the number of lost messages."""

    runs: list[Load]
    lost: int


class FailOver(msgspec.Struct, frozen=True):
    """Killed primaries: seconds until all queues delivered again, and the number of lost messages."""

    again: list[float]
    lost: int


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all faults."""
    available()  # fails at once, not after minutes
    nodes = _nodes(scale)
    redis = _redis_killed(scale)
    sentinel = _fail_over("sentinels", sentinels(), 2, scale)
    in_cluster = _fail_over("a cluster", cluster(3, replicas=True), 1, scale)
    figures = [
        *_of_nodes(nodes),
        single(f"Redis killed with {scale.messages:,} pending, load", "s", [one.load for one in redis.runs]),
        single("Redis killed, delivering again after the load", "s", [one.after for one in redis.runs], goal=1),
        single("Redis killed, lost", "messages", [redis.lost], goal=0),
    ]
    for name, found, goal in (("Sentinel", sentinel, SENTINEL_GOAL), ("Redis Cluster", in_cluster, CLUSTER_GOAL)):
        figures.append(single(f"{name}, primary killed, delivering again", "s", found.again, goal=goal))
        figures.append(single(f"{name}, primary killed, lost", "messages", [found.lost], goal=0))
    details = {"nodes": nodes, "redis": redis, "sentinel": sentinel, "cluster": in_cluster}
    return figures, {name: msgspec.to_builtins(found) for name, found in details.items()}


def _of_nodes(found: Nodes) -> list[Figure]:
    rolling, quorum = found.rolling, found.quorum
    return [
        single("rolling restart, duplicates", "messages", [rolling.duplicates], goal=0),
        single("rolling restart, lateness p99 before", "ms", [rolling.quiet]),
        single("rolling restart, lateness p99 added", "ms", [rolling.late - rolling.quiet], goal=100),
        single("node killed, its first queue delivers again", "s", [one.first for one in found.kills]),
        single("node killed, all its queues deliver again", "s", [one.last for one in found.kills], goal=5),
        single("node killed, duplicates", "messages", [one.duplicates for one in found.kills]),
        single("ZooKeeper without quorum, calls refused", "calls", [quorum.errors], goal=0),
        single("ZooKeeper without quorum, lateness p99 before", "ms", [quorum.quiet]),
        single("ZooKeeper without quorum, lateness p99 added", "ms", [quorum.late - quorum.quiet], goal=5),
        single("nodes and ZooKeeper, lost", "messages", [found.lost], goal=0),
    ]


def _nodes(scale: Scale) -> Nodes:
    """Run all faults with the same three workers."""
    quiet = 5.0 if scale.quick else 10.0
    progress(f"failover: {NODES} workers, three ZooKeeper servers, {NODES_RATE:,} messages/s")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server(rewrites=True) as running,
        ZooKeeperServer(members=3) as zookeeper,
        Team(running.url, zookeeper.hosts, NODES, routes=GENERAL) as team,
        Steady(running.url, Path(folder), NODES_RATE) as traffic,
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
    time.sleep(NODES_SETTLE)
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
    time.sleep(NODES_SETTLE)
    # Messages in flight at that time were due before; they are repeated with the rest.
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
    time.sleep(NODES_SETTLE)
    seen = traffic.look().arrived
    refused = sum(gone <= at < back for at in traffic.errors)
    return Quorum(refused, late(seen, begin, gone), late(seen, gone, back), seconds)


def _redis_killed(scale: Scale) -> Killed:
    """Kill one server with many pending messages, and start it again at once."""
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url, routes=GENERAL) as process,
    ):
        progress(f"failover: {scale.messages:,} messages pending")
        with Client(running.url) as client:
            schedule_all(client, make(scale.messages, spread(int(now()) + DAY, DAY)))
        with Steady(running.url, Path(folder), REDIS_RATE, topic=TOPIC) as traffic:
            time.sleep(WARM_UP)
            runs = [_restart(running, traffic) for _ in range(scale.runs)]
            process.check()
            return Killed(runs, traffic.finish())


def _restart(running: EmbeddedServer, traffic: Steady) -> Load:
    progress("failover: killing Redis")
    dead = now()
    running.kill()
    begin = now()
    running.start(wait=False)
    wait_for("loaded Redis", lambda: _answers(running.port), seconds=PATIENCE, pause=0.002)
    loaded = now()
    traffic.wait_again(dead, PATIENCE)
    last = dead + max(again(traffic.arrived, dead).values())
    time.sleep(SETTLE)
    return Load((loaded - begin) / 1000, (last - loaded) / 1000)


def _answers(port: int) -> bool:
    """Whether the server accepts commands; it answers LOADING before."""
    with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False


def _fail_over(what: str, starting: AbstractContextManager[Group], replicas: int, scale: Scale) -> FailOver:
    """Kill the primary that has the topic's stream, in each run; another server takes over."""
    progress(f"failover: {what}")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        starting as group,
        worker(group.url, routes=GENERAL) as process,
        Steady(group.url, Path(folder), REDIS_RATE, topic=TOPIC, min_replicas=1) as traffic,
    ):
        time.sleep(WARM_UP)
        took = []
        for number in range(1, scale.runs + 1):
            progress(f"failover: {what}, killing the primary, run {number} of {scale.runs}")
            primary = group.primary_of(TOPIC)
            dead = now()
            primary.kill()
            traffic.wait_again(dead, PATIENCE)
            took.append(max(again(traffic.arrived, dead).values()) / 1000)
            primary.start()
            wait_for("replicas that follow", lambda: group.followed(replicas), seconds=PATIENCE, pause=0.2)
            if number < scale.runs:
                time.sleep(max(SETTLE, BETWEEN - (now() - dead) / 1000))
        process.check()
        return FailOver(took, traffic.finish())
