"""What keeps a worker from doing its work well, a sentence each: for its /readyz, and for its line in Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.node.redis_clock import FAR, NEAR, STEADY

if TYPE_CHECKING:
    from workers.node.node import Node

__all__ = ["complaints", "own_complaints"]


def complaints(node: Node) -> list[str]:
    """All; nothing when all is well."""
    alarms = node.watch.alarms.values() if node.watch is not None else ()
    return list(dict.fromkeys([*own_complaints(node), *alarms]))


def _of_clock(behind: int) -> str:
    """What is wrong with the clock; `behind` is the clock of Redis minus this worker's (ms)."""
    if abs(behind) < FAR:  # it was corrected
        since = f"this ends {STEADY // 1_000} s after it came below {NEAR} ms"
        return f"the clock of this worker was {FAR} ms or more from that of Redis, and is {abs(behind)} ms from it now: {since}"
    off = f"{abs(behind)} ms {'behind' if behind > 0 else 'ahead of'} that of Redis"
    return f"the clock of this worker is {off}, and {FAR} is too much: synchronise both clocks (NTP)"


def own_complaints(node: Node) -> list[str]:
    """What is its own: the rest anybody sees who asks Redis."""
    found = []
    if not node.ready:
        found.append("this worker does not take part: it starts, stops, or waits for Redis or ZooKeeper")
    if not node.redis_clock.answers:
        found.append("Redis does not answer")
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
