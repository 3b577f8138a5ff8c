"""The answers about the service: queues, nodes, routes, findings, figures and the audit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.times import Time, instant, one_of
from delayq.answers.topics import PauseOut, pause_out
from delayq.client.findings import Finding
from delayq.client.findings.check import SEVERITIES
from delayq.client.findings.overview import Overview, Traffic
from delayq.client.looking.audit import AuditEntry, AuditPage
from delayq.client.looking.service import RouteState
from delayq.nodes import LATENESS, RECENT_STEP, NodeLine, owners_of
from delayq.store.commands import COUNTERS, QueueStats
from delayq.times import format_instant

__all__ = [
    "AuditEntryOut", "AuditMessageOut", "AuditOut", "FigureOut", "FindingOut", "NodeOut", "NodeQueueOut", "NodesOut",
    "OverviewOut", "QueueOut", "QueuesOut", "RouteOut", "RoutesOut", "StatusOut", "TotalOut", "TrafficOut",
    "TrafficTotalOut", "audit_out", "finding_out", "nodes_out", "overview_out", "queues_out", "routes_out",
    "status_out", "total_of",
]  # fmt: skip


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


class TotalOut(msgspec.Struct, rename="camel"):
    """All queues together; headLateness is the largest. `counters` count since the store was created."""

    depth: int
    due: int
    head_lateness: int
    parked: int
    dead: int
    remembered: int
    counters: dict[str, int]


class QueuesOut(msgspec.Struct):
    """All queues, and their total."""

    now: Time
    queues: list[QueueOut]
    total: TotalOut


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
    complaints: Annotated[list[str], Meta(description="what keeps it from its work, such as its clock or ZooKeeper")]


class NodesOut(msgspec.Struct):
    """All nodes, by name."""

    nodes: list[NodeOut]


class RouteOut(msgspec.Struct, rename="camel"):
    """A route, as live workers tell of it every 5 s. Each worker has a circuit of its own."""

    name: str
    target: Annotated[str | None, Meta(description="its kind and hosts; null if no live worker has the route")]
    circuit: (
        Annotated[
            str,
            Meta(
                description="open (at one worker at least) or closed; null as above",
                extra_json_schema=one_of("open", "closed"),
            ),
        ]
        | None
    )
    reason: Annotated[str | None, Meta(description="what the target said last, where it has been open for longest")]
    since: Annotated[Time | None, Meta(description="when the first of them opened")]
    next_probe_time: Annotated[Time | None, Meta(description="when the target is tried next")]
    open_at: Annotated[list[str], Meta(description="the nodes at which it is open")]
    parked: Annotated[int, Meta(description="messages that are set aside for the target")]


class RoutesOut(msgspec.Struct):
    """All routes, in the order of the workers' table."""

    routes: list[RouteOut]


class FindingOut(msgspec.Struct, omit_defaults=True):
    """Something to know: since when, what it is about, and in `text` what to do. `runbook` is a section of the docs."""

    severity: Annotated[
        str,
        Meta(
            description="critical, warning, or info: nothing is broken", extra_json_schema=one_of(*SEVERITIES.values())
        ),
    ]
    code: Annotated[str, Meta(description="which check has found it")]
    runbook: str
    text: str | UnsetType = UNSET
    since: Time | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    queue: int | UnsetType = UNSET
    node: str | UnsetType = UNSET


class StatusOut(msgspec.Struct):
    """What is wrong, the worst first; nothing when all is well."""

    findings: list[FindingOut]


class FigureOut(msgspec.Struct, rename="camel"):
    """A number of messages, null if nobody knows it, and when it was so."""

    count: int | None
    as_of: Time


class TrafficOut(msgspec.Struct, rename="camel"):
    """What went out in the last ten minutes, in slots of `stepMs`; null is what no node tells."""

    begin: Annotated[Time, Meta(description="of the first slot; the last one is over")] = msgspec.field(name="from")
    step_ms: int
    complete: Annotated[bool, Meta(description="every live node tells")]
    over_ms: Annotated[
        int,
        Meta(
            description="the largest lateness that is measured; null in a slot with messages is a percentile above it"
        ),
    ]
    delivered: Annotated[list[float | None], Meta(description="messages a second")]
    p50_ms: Annotated[list[float | None], Meta(description="lateness, as far as the workers' buckets tell")]
    p99_ms: list[float | None]
    total: TrafficTotalOut


class TrafficTotalOut(msgspec.Struct, rename="camel"):
    """The same of all slots together."""

    delivered: float
    p50_ms: float | None
    p99_ms: float | None


class OverviewOut(msgspec.Struct, rename="camel"):
    """Everything at a glance. `scheduled` are not due yet, or wait for another attempt; `parked` are without the held."""

    now: Time
    findings: list[FindingOut]
    scheduled: FigureOut
    due: FigureOut
    held: FigureOut
    parked: FigureOut
    dead: FigureOut
    remembered: Annotated[int, Meta(description="ids that have ended and are still known")]
    head_lateness: Annotated[int, Meta(description="by how many ms the earliest message is overdue")]
    queues: Annotated[int, Meta(description="of all layouts")]
    counters: Annotated[dict[str, int], Meta(description="since the store was created")]
    live_nodes: int
    stale_nodes: int
    pauses: Annotated[list[PauseOut], Meta(description="in force, the oldest first")]
    traffic: TrafficOut | None


class AuditMessageOut(msgspec.Struct):
    """A message that was changed; the topic and the business keys that it had."""

    id: str
    topic: str
    keys: tuple[str, ...]


class AuditEntryOut(msgspec.Struct, omit_defaults=True):
    """Who changed what by hand. `messages` are those that really were changed; what concerned no message is in `detail`."""

    time: Time
    action: str
    actor: Annotated[str, Meta(description="the name of a key, or cli:<user>@<host>")]
    key: Annotated[str, Meta(description="the id of the key")] = ""
    address: str = ""
    reason: str = ""
    queue: int | UnsetType = UNSET
    messages: list[AuditMessageOut] | UnsetType = UNSET
    detail: str = ""
    count: Annotated[
        int | UnsetType, Meta(description="how many messages were changed, if that is more than are named")
    ] = UNSET
    run: Annotated[str, Meta(description="the run of the backfill that was undone")] = ""


class AuditOut(msgspec.Struct, rename="camel"):
    """A page, the newest first. `nextPageToken` is null on the last one."""

    entries: list[AuditEntryOut]
    next_page_token: str | None


def queues_out(queues: list[QueueStats], nodes: Mapping[str, NodeLine]) -> QueuesOut:
    """The answer with the figures and the owner of each queue."""
    owners = owners_of(nodes.values(), {stats.queue: stats.epoch for stats in queues})
    return QueuesOut(
        format_instant(max(stats.now for stats in queues)),
        [
            QueueOut(
                stats.queue,
                stats.scheduled,
                stats.due,
                instant(stats.head_due),
                stats.head_lateness,
                stats.parked,
                stats.dead,
                stats.remembered,
                owners.get(stats.queue),
                stats.epoch,
                stats.closed,
            )
            for stats in queues
        ],
        total_of(queues),
    )


def nodes_out(nodes: Mapping[str, NodeLine]) -> NodesOut:
    """The answer with the nodes."""
    return NodesOut(
        [
            NodeOut(
                line.node,
                line.address or None,
                line.version or None,
                instant(line.since),
                format_instant(line.seen),
                line.stale,
                line.coordinator or None,
                instant(line.handed_over),
                [NodeQueueOut(queue, owned.epoch, instant(owned.since)) for queue, owned in line.queues.items()],
                list(line.complaints),
            )
            for line in nodes.values()
        ]
    )


def routes_out(routes: Iterable[RouteState]) -> RoutesOut:
    """The answer with the routes."""
    return RoutesOut(
        [
            RouteOut(
                route.name,
                route.target or None,
                route.circuit,
                route.reason,
                instant(route.since),
                instant(route.next_probe),
                list(route.open_at),
                route.parked,
            )
            for route in routes
        ]
    )


def total_of(queues: Iterable[QueueStats]) -> TotalOut:
    """Add up the figures of queues."""
    stats = list(queues)
    return TotalOut(
        depth=sum(one.scheduled for one in stats),
        due=sum(one.due for one in stats),
        head_lateness=max(one.head_lateness for one in stats),
        parked=sum(one.parked for one in stats),
        dead=sum(one.dead for one in stats),
        remembered=sum(one.remembered for one in stats),
        counters={name: sum(one.counters[name] for one in stats) for name in COUNTERS},
    )


def status_out(findings: Iterable[Finding]) -> StatusOut:
    """The answer with the findings."""
    return StatusOut([finding_out(one) for one in findings])


def finding_out(finding: Finding) -> FindingOut:
    """One finding, without the fields that are unknown."""
    known = {name: value for name in ("topic", "queue", "node") if (value := getattr(finding, name)) is not None}
    since = UNSET if finding.since is None else format_instant(finding.since)
    return FindingOut(finding.severity, finding.code, finding.runbook, finding.text, since, **known)


def overview_out(overview: Overview) -> OverviewOut:
    """The answer with the overview."""
    now = format_instant(overview.now)

    def figure(count: int | None) -> FigureOut:
        return FigureOut(count, now)

    return OverviewOut(
        now=now,
        findings=[finding_out(one) for one in overview.findings],
        scheduled=figure(overview.scheduled),
        due=figure(overview.due),
        held=figure(overview.held),
        parked=figure(overview.parked),
        dead=figure(overview.dead),
        remembered=overview.remembered,
        head_lateness=overview.head_lateness,
        queues=overview.queues,
        counters=overview.counters,
        live_nodes=overview.live,
        stale_nodes=overview.stale,
        pauses=[pause_out(one) for one in overview.pauses],
        traffic=None if overview.traffic is None else _traffic_out(overview.traffic),
    )


def _traffic_out(traffic: Traffic) -> TrafficOut:
    seconds = RECENT_STEP / 1_000
    told = sum(one is not None for one in traffic.delivered)
    return TrafficOut(
        begin=format_instant(traffic.begin),
        step_ms=RECENT_STEP,
        complete=traffic.complete,
        delivered=[None if one is None else one / seconds for one in traffic.delivered],
        over_ms=int(LATENESS[-1] * 1_000),
        p50_ms=[None if one is None else _measured(one[0]) for one in traffic.lateness],
        p99_ms=[None if one is None else _measured(one[1]) for one in traffic.lateness],
        total=TrafficTotalOut(round(traffic.total / seconds / told, 3), _measured(traffic.p50), _measured(traffic.p99)),
    )


def _measured(ms: float | None) -> float | None:
    """A percentile, or None if it is above the last bound."""
    return None if ms is None or math.isinf(ms) else ms


def audit_out(page: AuditPage, next_page_token: str | None) -> AuditOut:
    """The answer with a page of manual changes."""
    return AuditOut([_audit_entry_out(one) for one in page.entries], next_page_token)


def _audit_entry_out(entry: AuditEntry) -> AuditEntryOut:
    change = entry.change
    messages = [AuditMessageOut(one.id, one.topic, one.keys) for one in change.messages]
    return AuditEntryOut(
        format_instant(change.at),
        change.action,
        change.actor,
        change.key,
        change.address,
        change.reason,
        UNSET if entry.queue is None else entry.queue,
        messages or UNSET,
        change.detail,
        change.count if change.count > len(messages) else UNSET,
        change.run,
    )
