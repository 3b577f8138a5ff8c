"""What goes out."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from api.wire.problems import ProblemOut

__all__ = [
    "BatchOut", "DeadLetterOut", "DeadLettersOut", "EndedOut", "FoundOut", "HealthOut", "ItemOut", "MessageOut",
    "NodeOut", "NodeQueueOut", "NodesOut", "QueueOut", "QueuesOut", "ResultOut", "ResultsOut", "RouteOut",
    "RoutesOut", "ScheduledOut", "StateOut", "StatsOut",
]  # fmt: skip

Time = Annotated[str, Meta(description="RFC 3339 in UTC with ms", extra_json_schema={"format": "date-time"})]
Ms = Annotated[int, Meta(description="Unix ms")]


class ScheduledOut(msgspec.Struct, rename="camel", gc=False):
    """The message as it stands: the id to use from now on, its queue, its state, and its due."""

    id: str
    queue: int
    state: Annotated[str, Meta(description="scheduled; delivered or dead, when that id is so already")]
    due_time: Time | None
    due_ms: Ms | None


class ItemOut(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """One message of a batch: `status` is what it would have got by itself; with it either the answer or a problem."""

    status: int
    id: str | UnsetType = UNSET
    queue: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    due_time: Time | UnsetType | None = UNSET
    due_ms: Ms | UnsetType | None = UNSET
    problem: ProblemOut | UnsetType = UNSET


class BatchOut(msgspec.Struct):
    """A result for each message, in order."""

    results: list[ItemOut]


class MessageOut(msgspec.Struct, rename="camel", omit_defaults=True):
    """The message as it was scheduled, with the due asked for; `bodyBase64` when its body is bytes.

    What it was scheduled without is left out.
    """

    topic: str
    expect_date: Time
    body: Raw | str | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None


class StateOut(msgspec.Struct, rename="camel"):
    """What is known of an id. `message` is null once it has ended; `reason` says why it is dead, or what parked it."""

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled, due, in_flight, retrying, parked or dead; for a while: delivered, cancelled, "
            "removed_in_flight (cancelled when it may have been forwarded), discarded (as a dead letter)"
        ),
    ]
    attempts: Annotated[int, Meta(description="failed ones")]
    due_time: Annotated[Time | None, Meta(description="of the next attempt; null while it is parked or dead")]
    due_ms: Ms | None
    ended_time: Time | None
    reason: str | None
    next_probe_time: Annotated[Time | None, Meta(description="when the target of a parked one is tried next")]
    message: MessageOut | None


class FoundOut(msgspec.Struct):
    """The messages that carry a business key and have not ended, by due."""

    messages: list[StateOut]


class EndedOut(msgspec.Struct):
    """What became of the id."""

    id: str
    result: str


class ResultOut(msgspec.Struct, omit_defaults=True):
    """One id: `status` is what it would have got by itself, and what became of it or the problem.

    Or one business key: what became of each message that carries it; beside a problem, of those that were reached.
    """

    status: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    result: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    messages: list[ResultOut] | UnsetType = UNSET
    problem: ProblemOut | UnsetType = UNSET


class ResultsOut(msgspec.Struct):
    """A result for each id or key, in order."""

    results: list[ResultOut]


class QueueOut(msgspec.Struct, rename="camel"):
    """A queue. Counts are messages; headLateness is by how many ms its earliest message is overdue."""

    queue: int
    depth: Annotated[int, Meta(description="messages scheduled, due, in flight or retrying")]
    due: int
    head_due_time: Time | None
    head_lateness: int
    parked: int
    dead: int
    remembered: Annotated[int, Meta(description="ids that have ended and are still known")]
    owner: Annotated[str | None, Meta(description="the live node that delivers from it, by its own last line")]
    epoch: str | None
    closed: Annotated[bool, Meta(description="of an older layout: it takes no new messages, and goes when it is empty")]


class QueuesOut(msgspec.Struct):
    """All queues."""

    queues: list[QueueOut]


class NodeQueueOut(msgspec.Struct):
    """A queue that a node says it owns, and since when."""

    queue: int
    epoch: str
    since: Time | None


class NodeOut(msgspec.Struct, rename="camel"):
    """A node, by the line that it writes every 5 s; null is what an older worker does not say. Times are its own."""

    node: str
    address: Annotated[str | None, Meta(description="host:port of its own HTTP server")]
    version: Annotated[str | None, Meta(description="of delayq")]
    since: Annotated[Time | None, Meta(description="when it was started")]
    seen: Annotated[Time, Meta(description="when it wrote its line")]
    stale: Annotated[bool, Meta(description="the line is older than 15 s: the node is gone, or cut off from Redis")]
    coordinator: Annotated[str | None, Meta(description="local or zookeeper")]
    handed_over: Annotated[Time | None, Meta(description="when it last gave a queue up to another node")]
    queues: list[NodeQueueOut]


class NodesOut(msgspec.Struct):
    """All nodes, by name."""

    nodes: list[NodeOut]


class RouteOut(msgspec.Struct, rename="camel"):
    """A route, as live workers tell of it every 5 s. Each worker has a circuit of its own."""

    name: str
    target: Annotated[str | None, Meta(description="its kind and hosts; null if no live worker has the route")]
    circuit: Annotated[str | None, Meta(description="open (at one worker at least) or closed; null as above")]
    reason: Annotated[str | None, Meta(description="what the target said last, where it has been open for longest")]
    since: Annotated[Time | None, Meta(description="when the first of them opened")]
    next_probe_time: Annotated[Time | None, Meta(description="when the target is tried next")]
    open_at: Annotated[list[str], Meta(description="the nodes at which it is open")]
    parked: Annotated[int, Meta(description="messages that are set aside for the target")]


class RoutesOut(msgspec.Struct):
    """All routes, in the order of the workers' table."""

    routes: list[RouteOut]


class StatsOut(msgspec.Struct, rename="camel"):
    """All queues together; headLateness is the largest. `counters` count since the store was made."""

    now: Time
    queues: int
    depth: int
    due: int
    head_lateness: int
    parked: int
    dead: int
    remembered: int
    counters: dict[str, int]


class DeadLetterOut(msgspec.Struct, rename="camel"):
    """A message that was given up."""

    id: str
    queue: int
    dead_time: Time
    attempts: int
    reason: str
    message: MessageOut | None


class DeadLettersOut(msgspec.Struct, rename="camel"):
    """A page. `nextPageToken` is null on the last one."""

    dead_letters: list[DeadLetterOut]
    next_page_token: str | None


class HealthOut(msgspec.Struct):
    """It answers."""

    status: str
