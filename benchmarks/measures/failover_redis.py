"""What happens to steady traffic when a Redis is killed: one that loads its data again, one that others stand in for."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.harness import Scale, now, progress, wait_for
from benchmarks.load.messages import DAY, make, spread
from benchmarks.load.through_faults import GENERAL, Steady, again
from benchmarks.measures.schedule import schedule_all
from benchmarks.running.groups import Group, cluster, sentinels
from benchmarks.running.processes import server, worker
from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST

__all__ = ["FailOver", "Killed", "Load", "behind_sentinels", "in_a_cluster", "killed"]

RATE: Final = 200
TOPIC: Final = "order.cancel"
WARM_UP: Final = 4.0
SETTLE: Final = 3.0
PATIENCE: Final = 90.0
#: Sentinels leave a group alone for twice their fail-over time-out of 5 s.
BETWEEN: Final = 12.0


class Load(msgspec.Struct, frozen=True):
    """Seconds from the start of the process to its first answer, and from then until all queues delivered again."""

    load: float
    after: float


class Killed(msgspec.Struct, frozen=True):
    """A Redis killed again and again, and how many accepted messages never arrived."""

    runs: list[Load]
    lost: int


class FailOver(msgspec.Struct, frozen=True):
    """Primaries killed: seconds until all queues delivered again, and how many accepted messages never arrived."""

    again: list[float]
    lost: int


def killed(scale: Scale) -> Killed:
    """One server with many messages pending, killed and started again at once."""
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        server() as running,
        worker(running.url, routes=GENERAL) as process,
    ):
        progress(f"failover: {scale.messages:,} messages pending")
        with Client(running.url) as client:
            schedule_all(client, make(scale.messages, spread(int(now()) + DAY, DAY)))
        with Steady(running.url, Path(folder), RATE, topic=TOPIC) as traffic:
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
    wait_for("Redis that has loaded", lambda: _answers(running.port), seconds=PATIENCE, pause=0.002)
    loaded = now()
    traffic.wait_again(dead, PATIENCE)
    last = dead + max(again(traffic.arrived, dead).values())
    time.sleep(SETTLE)
    return Load((loaded - begin) / 1000, (last - loaded) / 1000)


def _answers(port: int) -> bool:
    """Whether the server takes commands: it says LOADING until then."""
    with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")
    return False


def behind_sentinels(scale: Scale) -> FailOver:
    """The primary of a group, killed; each time the next one takes over."""
    return _fail_over("sentinels", sentinels(), 2, scale)


def in_a_cluster(scale: Scale) -> FailOver:
    """The primary of a cluster that holds the topic's stream and a third of the queues, killed."""
    return _fail_over("a cluster", cluster(3, replicas=True), 1, scale)


def _fail_over(what: str, starting: AbstractContextManager[Group], replicas: int, scale: Scale) -> FailOver:
    progress(f"failover: {what}")
    with (
        tempfile.TemporaryDirectory(prefix="delayq-bench-") as folder,
        starting as group,
        worker(group.url, routes=GENERAL) as process,
        Steady(group.url, Path(folder), RATE, topic=TOPIC, min_replicas=1) as traffic,
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
