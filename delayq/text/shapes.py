"""What the client knows, in the JSON of the HTTP API, and as cells of a line."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from delayq import Scheduled
from delayq.client.route_states import RouteState
from delayq.codec import BODY_JSON, Record
from delayq.nodes import NodeLine
from delayq.store.commands import DeadLetter, Found, QueueStats
from delayq.times import format_instant

__all__ = [
    "Shape", "body_of", "body_text", "instant", "letter_shape", "message_shape", "node_shape", "queue_shape",
    "route_shape",    "scheduled_shape", "state_shape", "stats_shape",
]  # fmt: skip

Shape = dict[str, Any]


def instant(ms: int | None) -> str | None:
    """RFC 3339, if there is a time."""
    return None if ms is None else format_instant(ms)


def scheduled_shape(scheduled: Scheduled) -> Shape:
    """A message that was taken."""
    due = scheduled.due
    return {
        "id": scheduled.id,
        "queue": scheduled.queue,
        "state": scheduled.state,
        "dueTime": instant(due),
        "dueMs": due,
    }


def state_shape(found: Found) -> Shape:
    """What is known of an id."""
    return {
        "id": found.id,
        "queue": found.queue,
        "state": found.state,
        "attempts": found.attempts,
        "dueTime": instant(found.due),
        "dueMs": found.due,
        "endedTime": instant(found.ended),
        "reason": found.reason,
        "nextProbeTime": instant(found.next_probe),
        "message": message_shape(found.record),
    }


def letter_shape(letter: DeadLetter) -> Shape:
    """A dead letter."""
    return {
        "id": letter.id,
        "queue": letter.queue,
        "deadTime": format_instant(letter.buried),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "message": message_shape(letter.record),
    }


def message_shape(record: Record | None) -> Shape | None:
    """The message as it was scheduled; what it does not have is left out. None if it cannot be read."""
    if record is None:
        return None
    rest = {
        "tags": record.tags, "keys": record.keys, "properties": record.properties,
        "orderingKey": record.ordering_key, "maxAttempts": record.max_attempts, "expireAfter": record.expire_after,
    }  # fmt: skip
    return {
        "topic": record.topic,
        "expectDate": format_instant(record.asked),
        **body_of(record),
        **{name: value for name, value in rest.items() if value},
    }


def body_of(record: Record) -> Shape:
    """The body: bytes in base 64, JSON as it came (numbers keep all their digits), or text."""
    body = record.body
    if isinstance(body, bytes):
        return {"bodyBase64": base64.b64encode(body).decode()}
    return {"body": msgspec.Raw(record.payload) if record.flags & BODY_JSON else body}


def body_text(shape: Shape) -> str:
    """The body of a message for people."""
    if "bodyBase64" in shape:
        return f"base64:{shape['bodyBase64']}"
    body = shape["body"]
    return bytes(body).decode() if isinstance(body, msgspec.Raw) else str(body)


def queue_shape(stats: QueueStats, owner: str | None) -> Shape:
    """The figures of a queue and the node that owns it."""
    return {
        "queue": stats.queue,
        "depth": stats.scheduled,
        "due": stats.due,
        "headDueTime": instant(stats.head_due),
        "headLateness": stats.head_lateness,
        "parked": stats.parked,
        "dead": stats.dead,
        "remembered": stats.remembered,
        "owner": owner,
        "epoch": stats.epoch,
        "closed": stats.closed,
    }


def node_shape(line: NodeLine) -> Shape:
    """A node as its line tells of it; what that does not say is None."""
    return {
        "node": line.node,
        "address": line.address or None,
        "version": line.version or None,
        "since": instant(line.since),
        "seen": instant(line.seen),
        "stale": line.stale,
        "coordinator": line.coordinator or None,
        "handedOver": instant(line.handed_over),
        "queues": [
            {"queue": queue, "epoch": owned.epoch, "since": instant(owned.since)}
            for queue, owned in line.queues.items()
        ],
    }


def route_shape(route: RouteState) -> Shape:
    """A route as the nodes' lines tell of it; what they do not say is None."""
    return {
        "name": route.name,
        "target": route.target or None,
        "circuit": route.circuit,
        "reason": route.reason,
        "since": instant(route.since),
        "nextProbeTime": instant(route.next_probe),
        "openAt": list(route.open_at),
        "parked": route.parked,
    }


def stats_shape(queues: list[QueueStats]) -> Shape:
    """The figures of all queues together."""
    counters: dict[str, int] = {}
    for queue in queues:
        for name, count in queue.counters.items():
            counters[name] = counters.get(name, 0) + count
    return {
        "now": instant(max(queue.now for queue in queues)),
        "queues": len(queues),
        "depth": sum(queue.scheduled for queue in queues),
        "due": sum(queue.due for queue in queues),
        "headLateness": max(queue.head_lateness for queue in queues),
        "parked": sum(queue.parked for queue in queues),
        "dead": sum(queue.dead for queue in queues),
        "remembered": sum(queue.remembered for queue in queues),
        "counters": counters,
    }
