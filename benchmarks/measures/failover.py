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
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from benchmarks.harness import Scale, now, progress, wait_for
from benchmarks.load.backlog import schedule_all
from benchmarks.load.messages import DAY, make, spread
from benchmarks.load.through_faults import GENERAL, TOPIC, Steady, late, twice
from benchmarks.results import Figure, single
from benchmarks.running.groups import Group, cluster, sentinels
from benchmarks.running.processes import server, worker
from benchmarks.running.team import Team
from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from testbed.zookeeper import ZooKeeperServer, available

NODES: Final = 3
#: Messages a second for several workers, and for one.
NODES_RATE: Final = 1_000
REDIS_RATE: Final = 200
#: s before the first fault, after a fault, and until deliveries have to continue.
WARM_UP: Final = 4.0
SETTLE: Final = 4.0
PATIENCE: Final = 90.0
#: s between two fail-overs: sentinels wait for twice their fail-over time-out of 5 s.
BETWEEN: Final = 12.0


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all faults."""
    available()  # fails at once, not after minutes
    return [
        *_nodes(scale),
        *_redis_killed(scale),
        *_fail_over("Sentinel", sentinels(), 2, 5, scale),
        *_fail_over("Redis Cluster", cluster(3, replicas=True), 1, 6, scale),
    ], {}


def _lost(what: str, traffic: Steady) -> Figure:
    return single(f"{what}, lost", "messages", [traffic.finish()], goal=0)


def _nodes(scale: Scale) -> Iterator[Figure]:
    """Run all faults with the same three workers."""
    quiet = 5.0 if scale.quick else 10.0
    progress(f"failover: {NODES} workers, three ZooKeeper servers, {NODES_RATE:,} messages/s")
    with (
        server(rewrites=True) as running,
        ZooKeeperServer(members=3) as zookeeper,
        Team(running.url, zookeeper.hosts, NODES, routes=GENERAL) as team,
        Steady(running.url, NODES_RATE) as traffic,
    ):
        time.sleep(WARM_UP)

        def restart_all() -> None:
            for name in team.names:
                progress(f"failover: restarting {name}")
                team.stop(name)
                team.start(name)

        def without_quorum() -> None:
            leader = zookeeper.leader() or 0
            zookeeper.kill(leader, (leader + 1) % len(zookeeper.pids))
            time.sleep(15.0 if scale.quick else 30.0)
            zookeeper.start()

        begin, end, figures = _disturbed("rolling restart", traffic, quiet, restart_all, goal=100)
        yield single("rolling restart, duplicates", "messages", [twice(traffic.arrived, begin, end)], goal=0)
        yield from figures
        kills = [_kill(team, traffic, name) for name in team.names[: scale.runs]]
        yield single("node killed, its first queue delivers again", "s", [first for first, _, _ in kills])
        yield single("node killed, all its queues deliver again", "s", [last for _, last, _ in kills], goal=5)
        yield single("node killed, duplicates", "messages", [duplicates for *_, duplicates in kills])
        begin, end, figures = _disturbed("ZooKeeper without quorum", traffic, quiet, without_quorum, goal=5)
        refused = sum(begin <= at < end for at in traffic.errors)
        yield single("ZooKeeper without quorum, calls refused", "calls", [refused], goal=0)
        yield from figures
        team.check()
        yield _lost("nodes and ZooKeeper", traffic)


def _disturbed(
    what: str, traffic: Steady, quiet: float, disturb: Callable[[], None], *, goal: float
) -> tuple[float, float, list[Figure]]:
    """Do it after a quiet time; return when it began and ended (Unix ms), and the lateness before and meanwhile."""
    before = now()
    time.sleep(quiet)
    progress(f"failover: {what}")
    begin = now()
    disturb()
    end = now()
    time.sleep(SETTLE)
    usual, meanwhile = late(traffic.arrived, before, begin), late(traffic.arrived, begin, end)
    return (
        begin,
        end,
        [
            single(f"{what}, lateness p99 before", "ms", [usual]),
            single(f"{what}, lateness p99 added", "ms", [meanwhile - usual], goal=goal),
        ],
    )


def _kill(team: Team, traffic: Steady, name: str) -> tuple[float, float, int]:
    """Kill a worker; return the s until its first and its last queue delivered again, and the number of repeated messages."""
    progress(f"failover: killing {name}")
    queues = team.queues_of(name)
    killed = now()
    team.kill(name)
    found = traffic.wait_again(killed, PATIENCE, queues).values()
    time.sleep(SETTLE)
    # Messages in flight at that time were due before; they are repeated with the rest.
    duplicates = twice(traffic.arrived, killed - 5_000, now())
    team.start(name)
    return min(found) / 1000, max(found) / 1000, duplicates


def _redis_killed(scale: Scale) -> Iterator[Figure]:
    """Kill one server with many pending messages, and start it again at once."""
    with server() as running, worker(running.url, routes=GENERAL) as process:
        progress(f"failover: {scale.messages:,} messages pending")
        with Client(running.url) as client:
            schedule_all(client, make(scale.messages, spread(int(now()) + DAY, DAY)))
        with Steady(running.url, REDIS_RATE) as traffic:
            time.sleep(WARM_UP)
            runs = [_restart(running, traffic) for _ in range(scale.runs)]
            process.check()
            yield single(f"Redis killed with {scale.messages:,} pending, load", "s", [load for load, _ in runs])
            yield single("Redis killed, delivering again after the load", "s", [after for _, after in runs], goal=1)
            yield _lost("Redis killed", traffic)


def _restart(running: EmbeddedServer, traffic: Steady) -> tuple[float, float]:
    """The s from the start of Redis to its first answer, and from then until all queues delivered again."""
    progress("failover: killing Redis")
    dead = now()
    running.kill()
    begin = now()
    running.start(wait=False)
    wait_for("loaded Redis", lambda: _answers(running.port), seconds=PATIENCE, pause=0.002)
    loaded = now()
    last = dead + max(traffic.wait_again(dead, PATIENCE).values())
    time.sleep(SETTLE)
    return (loaded - begin) / 1000, (last - loaded) / 1000


def _answers(port: int) -> bool:
    """Whether the server accepts commands; it answers LOADING before."""
    with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False


def _fail_over(
    what: str, starting: AbstractContextManager[Group], replicas: int, goal: float, scale: Scale
) -> Iterator[Figure]:
    """Kill the primary that has the topic's stream, in each run; another server takes over."""
    progress(f"failover: {what}")
    with (
        starting as group,
        worker(group.url, routes=GENERAL) as process,
        Steady(group.url, REDIS_RATE, min_replicas=1) as traffic,
    ):
        time.sleep(WARM_UP)
        took = []
        for number in range(1, scale.runs + 1):
            progress(f"failover: {what}, killing the primary, run {number} of {scale.runs}")
            primary = group.primary_of(TOPIC)
            dead = now()
            primary.kill()
            took.append(max(traffic.wait_again(dead, PATIENCE).values()) / 1000)
            primary.start()
            wait_for("replicas that follow", lambda: group.followed(replicas), seconds=PATIENCE, pause=0.2)
            if number < scale.runs:
                time.sleep(max(SETTLE, BETWEEN - (now() - dead) / 1000))
        process.check()
        yield single(f"{what}, primary killed, delivering again", "s", took, goal=goal)
        yield _lost(f"{what}, primary killed", traffic)
