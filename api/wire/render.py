"""Answers, made of what the library knows."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Raw

from api.wire.responses import (
    DeadLetterOut,
    MessageOut,
    NodeOut,
    NodeQueueOut,
    NodesOut,
    QueueOut,
    QueuesOut,
    RouteOut,
    RoutesOut,
    ScheduledOut,
    StateOut,
    StatsOut,
)
from delayq import Scheduled, State, times
from delayq.client.route_states import RouteState
from delayq.codec import BODY_JSON, Record
from delayq.nodes import NodeLine, owners_of
from delayq.store.commands import DeadLetter, Found, QueueStats

__all__ = [
    "dead_letter_out", "nodes_out", "queues_out", "rescheduled_out", "routes_out", "scheduled_out", "state_out", "stats_out",
]  # fmt: skip

_instant = times.format_instant


def scheduled_out(scheduled: Scheduled) -> ScheduledOut:
    """A message that was taken, now or before."""
    due = scheduled.due
    due_time = None if due is None else _instant(due)
    return ScheduledOut(scheduled.id, scheduled.queue, scheduled.state, due_time, due)


def _time(ms: int | None) -> str | None:
    return None if ms is None else _instant(ms)


def rescheduled_out(id: str, queue: int, due: int) -> ScheduledOut:
    """A message that got another due."""
    return ScheduledOut(id, queue, State.SCHEDULED, _instant(due), due)


def state_out(found: Found) -> StateOut:
    """What is known of an id."""
    return StateOut(
        found.id,
        found.queue,
        found.state,
        found.attempts,
        _time(found.due),
        found.due,
        _time(found.ended),
        found.reason,
        _time(found.next_probe),
        _message_out(found.record),
    )


def dead_letter_out(letter: DeadLetter) -> DeadLetterOut:
    """A dead letter."""
    time = _instant(letter.buried)
    return DeadLetterOut(letter.id, letter.queue, time, letter.attempts, letter.reason, _message_out(letter.record))


def _message_out(record: Record | None) -> MessageOut | None:
    if record is None:
        return None
    return MessageOut(
        record.topic,
        _instant(record.asked),
        **_body(record),
        tags=record.tags,
        keys=record.keys,
        properties=record.properties,
        ordering_key=record.ordering_key,
        max_attempts=record.max_attempts,
        expire_after=record.expire_after,
    )


def _body(record: Record) -> dict[str, Any]:
    body = record.body
    if isinstance(body, bytes):
        return {"body_base64": base64.b64encode(body).decode()}
    # JSON as it came: numbers keep all their digits.
    return {"body": Raw(record.payload) if record.flags & BODY_JSON else body}


def queues_out(queues: list[QueueStats], nodes: Mapping[str, NodeLine]) -> QueuesOut:
    """The figures of each queue, and who owns it."""
    owners = owners_of(nodes.values(), {stats.queue: stats.epoch for stats in queues})
    return QueuesOut(
        [
            QueueOut(
                stats.queue,
                stats.scheduled,
                stats.due,
                _time(stats.head_due),
                stats.head_lateness,
                stats.parked,
                stats.dead,
                stats.remembered,
                owners.get(stats.queue),
                stats.epoch,
                stats.closed,
            )
            for stats in queues
        ]
    )


def nodes_out(nodes: Mapping[str, NodeLine]) -> NodesOut:
    """The nodes as their lines tell of them."""
    return NodesOut(
        [
            NodeOut(
                line.node,
                line.address or None,
                line.version or None,
                _time(line.since),
                _instant(line.seen),
                line.stale,
                line.coordinator or None,
                _time(line.handed_over),
                [NodeQueueOut(queue, owned.epoch, _time(owned.since)) for queue, owned in line.queues.items()],
            )
            for line in nodes.values()
        ]
    )


def routes_out(routes: Iterable[RouteState]) -> RoutesOut:
    """The routes as the nodes' lines tell of them."""
    return RoutesOut(
        [
            RouteOut(
                route.name,
                route.target or None,
                route.circuit,
                route.reason,
                _time(route.since),
                _time(route.next_probe),
                list(route.open_at),
                route.parked,
            )
            for route in routes
        ]
    )


def stats_out(queues: list[QueueStats]) -> StatsOut:
    """The figures of all queues together."""
    counters: dict[str, int] = {}
    for queue in queues:
        for name, count in queue.counters.items():
            counters[name] = counters.get(name, 0) + count
    return StatsOut(
        now=_instant(max(queue.now for queue in queues)),
        queues=len(queues),
        depth=sum(queue.scheduled for queue in queues),
        due=sum(queue.due for queue in queues),
        head_lateness=max(queue.head_lateness for queue in queues),
        parked=sum(queue.parked for queue in queues),
        dead=sum(queue.dead for queue in queues),
        remembered=sum(queue.remembered for queue in queues),
        counters=counters,
    )
