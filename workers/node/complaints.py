"""The sentences that /readyz and the worker's line in Redis show while something keeps a worker from delivering well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from workers.node.duties.alarms import Alarms
from workers.node.duties.redis_clock import FAR, NEAR, STEADY, RedisClock, Skew
from workers.node.duties.status_line import StatusLine
from workers.queue.pull_job import PullJob

__all__ = ["Worker", "complaints", "own_complaints"]


class Worker(Protocol):
    """The parts of a node that complaints are about."""

    ready: bool
    watch: Alarms | None
    redis_clock: RedisClock
    skew: Skew
    line: StatusLine

    @property
    def jobs(self) -> Mapping[int, PullJob]:
        """The pull jobs by queue."""


def complaints(node: Worker) -> list[str]:
    """All complaints of a node, with those about Redis; none if it delivers well."""
    alarms = node.watch.alarms.values() if node.watch is not None else ()
    return list(dict.fromkeys([*own_complaints(node), *alarms]))


def _of_clock(behind: int) -> str:
    """The sentence about a wrong clock; `behind` is the clock of Redis minus the worker's, in ms."""
    if abs(behind) < FAR:  # it was corrected
        since = f"this ends {STEADY // 1_000} s after it came below {NEAR} ms"
        return f"the clock of this worker was {FAR} ms or more from that of Redis, and is {abs(behind)} ms from it now: {since}"
    off = f"{abs(behind)} ms {'behind' if behind > 0 else 'ahead of'} that of Redis"
    return f"the clock of this worker is {off}, and {FAR} is too much: synchronise both clocks (NTP)"


def own_complaints(node: Worker) -> list[str]:
    """The complaints that only this node knows. Anybody who asks Redis sees the others."""
    found = []
    if not node.ready:
        found.append("this worker does not take part: it starts, stops, or waits for Redis or ZooKeeper")
    if not node.redis_clock.answers:
        found.append("Redis does not answer")
    elif node.line.refused:
        found.append(f"Redis refuses the line of this worker, so it sends nothing: {node.line.refused}")
    if node.skew.far:
        found.append(_of_clock(node.skew.ms))
    for queue, job in sorted(node.jobs.items()):
        if not job.alive and not job.finished:
            found.append(f"queue {queue}: the thread that pulls it has ended")
        if job.stuck:
            found.append(f"queue {queue} is stuck: it hands out messages, and none is confirmed")
        if job.pulls_fail is not None and node.redis_clock.answers:
            found.append(f"queue {queue}: nothing can be pulled: {job.pulls_fail}")
    return found + (node.watch.own if node.watch is not None else [])
