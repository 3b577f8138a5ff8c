"""Faults and planned restarts under traffic, with real processes: how long deliveries stop, what comes late or twice.

Messages with delays of 500 to 3,000 ms are scheduled at a steady rate and followed to their topic's stream, into which
they take the general path: there a fault can forward a message twice. Three nodes share the queues by a ZooKeeper of
three servers, at 1,000 messages a second; one node alone, at 200 a second, where it is Redis that dies. A queue delivers
again when the first message arrives that fell due after the fault, and it is the last of the queues that counts.
What a node killed with a session of 4 s had in flight may come twice.
Behind sentinels (three of them, two replicas, down after 1 s) and in a Redis Cluster (three primaries with a replica
each, node timeout 2 s) the primary that holds the topic's stream is killed, and messages are accepted with
`min_replicas=1`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.harness import Scale
from benchmarks.measures import failover_nodes, failover_redis
from benchmarks.results import Figure, single
from testbed.zookeeper import available

__all__ = ["run"]

SENTINEL_GOAL, CLUSTER_GOAL = 5, 6


def run(scale: Scale) -> tuple[list[Figure], dict[str, Any]]:
    """Measure all faults."""
    available()  # said at once, not after minutes
    nodes = failover_nodes.measure(scale)
    redis = failover_redis.killed(scale)
    sentinel, cluster = failover_redis.behind_sentinels(scale), failover_redis.in_a_cluster(scale)
    figures = [
        *_of_nodes(nodes),
        single(f"Redis killed with {scale.messages:,} pending, load", "s", [one.load for one in redis.runs]),
        single("Redis killed, delivering again after the load", "s", [one.after for one in redis.runs], goal=1),
        single("Redis killed, lost", "messages", [redis.lost], goal=0),
    ]
    for name, found, goal in (("Sentinel", sentinel, SENTINEL_GOAL), ("Redis Cluster", cluster, CLUSTER_GOAL)):
        figures.append(single(f"{name}, primary killed, delivering again", "s", found.again, goal=goal))
        figures.append(single(f"{name}, primary killed, lost", "messages", [found.lost], goal=0))
    details = {"nodes": nodes, "redis": redis, "sentinel": sentinel, "cluster": cluster}
    return figures, {name: msgspec.to_builtins(found) for name, found in details.items()}


def _of_nodes(found: failover_nodes.Nodes) -> list[Figure]:
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
