"""The answers about the service: queues, nodes, routes, findings, figures and the audit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from delayq.answers.times import Time, instant, known, ms, one_of
from delayq.answers.topics import PauseOut, pause_out
from delayq.base.times import format_instant, parse_instant
from delayq.client.findings import Finding
from delayq.client.findings.check import SEVERITIES
from delayq.client.findings.overview import Memory, Overview, Traffic
from delayq.client.looking.audit import AuditEntry, AuditPage
from delayq.client.looking.service import NodeDeliveries, RouteState
from delayq.domain.nodes import LATENESS, RECENT_STEP, Complaint, NodeLine, Owned, owners_of
from delayq.store.commands import COUNTERS, QueueStats
from delayq.store.commands.audit import Audited, AuditedMessage


class QueueOut(msgspec.Struct, rename="camel"):
    """A queue. Counts are messages; headLateness is the lateness of its earliest message in ms."""

    queue: int
    depth: Annotated[int, Meta(description="Messages that are scheduled, due, in flight or retrying.")]
    due: int
    head_due_time: Time | None
    head_lateness: int
    parked: int
    dead: int
    remembered: Annotated[int, Meta(description="Ids of ended messages that are still remembered.")]
    owner: Annotated[str | None, Meta(description="The live node that delivers from it, by its last report.")]
    epoch: str | None
    closed: Annotated[
        bool,
        Meta(
            description="Whether it is of an older layout: it accepts no new messages, and is dropped when it is empty."
        ),
    ]


class TotalOut(msgspec.Struct, rename="camel"):
    """All queues together; headLateness is the largest. `counters` count since the creation of the store."""

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

    def domain(self) -> list[QueueStats]:
        """Return the figures of every queue. The first one has the counters of all of them, so that sums are right."""
        counters = self.total.counters
        return [
            QueueStats(
                queue=one.queue,
                now=parse_instant(self.now),
                closed=one.closed,
                scheduled=one.depth,
                due=one.due,
                head_due=ms(one.head_due_time),
                parked=one.parked,
                dead=one.dead,
                remembered=one.remembered,
                epoch=one.epoch,
                watermark=None,
                parked_sets=(),
                counters=dict.fromkeys(counters, 0) if number else counters,
                pool=one.depth + one.parked + one.dead,
                born=None,
            )
            for number, one in enumerate(self.queues)
        ]


class NodeQueueOut(msgspec.Struct):
    """A queue that a node reports to own, and the time since when."""

    queue: int
    epoch: str
    since: Time | None


class NodeOut(msgspec.Struct, rename="camel"):
    """A node, by the report that it writes every 5 s; null: an older worker omits it. Times are of its own clock."""

    node: str
    address: Annotated[str | None, Meta(description="host:port of its HTTP server.")]
    version: Annotated[str | None, Meta(description="of delayq")]
    since: Annotated[Time | None, Meta(description="The time of its start.")]
    seen: Annotated[Time, Meta(description="The time of its report.")]
    stale: Annotated[
        bool, Meta(description="Whether the report is older than 15 s: the node is gone, or cannot reach Redis.")
    ]
    coordinator: Annotated[str | None, Meta(description="local or zookeeper.")]
    handed_over: Annotated[Time | None, Meta(description="The time when it last handed a queue over to another node.")]
    queues: list[NodeQueueOut]
    complaints: Annotated[list[str], Meta(description="Problems of the node, such as its clock or ZooKeeper.")]

    def domain(self) -> NodeLine:
        return NodeLine(
            node=self.node,
            address=self.address or "",
            version=self.version or "",
            since=ms(self.since),
            seen=parse_instant(self.seen),
            stale=self.stale,
            coordinator=self.coordinator or "",
            queues={one.queue: Owned(one.epoch, ms(one.since)) for one in self.queues},
            handed_over=ms(self.handed_over),
            complaints=tuple(map(Complaint, self.complaints)),
        )


class NodesOut(msgspec.Struct):
    """All nodes, by name."""

    nodes: list[NodeOut]

    def domain(self) -> dict[str, NodeLine]:
        return {one.node: one.domain() for one in self.nodes}


class NodeDeliveriesOut(msgspec.Struct, rename="camel"):
    """The messages that a live node has delivered by a route since its start."""

    node: str
    since: Annotated[Time | None, Meta(description="The time of its start: another one means that it counts from 0.")]
    seen: Annotated[Time, Meta(description="The time of its report.")]
    delivered: Annotated[int | None, Meta(description="Null: it does not report it.")]


class RouteOut(msgspec.Struct, rename="camel"):
    """A route, from the reports that live workers write every 5 s. Each worker has its own circuit."""

    name: str
    target: Annotated[str | None, Meta(description="Its kind and hosts; null if no live worker has the route.")]
    circuit: (
        Annotated[
            str,
            Meta(
                description="open (at one worker at least) or closed; null as above.",
                extra_json_schema=one_of("open", "closed"),
            ),
        ]
        | None
    )
    reason: Annotated[
        str | None, Meta(description="The last answer of the target at the worker whose circuit has been open longest.")
    ]
    since: Annotated[Time | None, Meta(description="The time when the first circuit opened.")]
    next_probe_time: Annotated[Time | None, Meta(description="The time of the next probe.")]
    open_at: Annotated[list[str], Meta(description="The nodes with an open circuit.")]
    parked: Annotated[int, Meta(description="Messages that are parked for the target.")]
    delivered: Annotated[
        int | None, Meta(description="The sum of `deliveredBy`; null if a node does not report it, or no node is live.")
    ]
    delivered_by: Annotated[list[NodeDeliveriesOut], Meta(description="The live nodes with the route.")]

    def domain(self) -> RouteState:
        return RouteState(
            name=self.name,
            target=self.target or "",
            parked=self.parked,
            open_at=tuple(self.open_at),
            reason=self.reason,
            since=ms(self.since),
            next_probe=ms(self.next_probe_time),
            delivered_by=tuple(
                NodeDeliveries(one.node, ms(one.since), parse_instant(one.seen), one.delivered)
                for one in self.delivered_by
            ),
        )


class RoutesOut(msgspec.Struct):
    """All routes, in the order of the workers' table."""

    routes: list[RouteOut]

    def domain(self) -> list[RouteState]:
        return [one.domain() for one in self.routes]


class FindingOut(msgspec.Struct, omit_defaults=True):
    """A problem or information: its start, its subject, and its remedy in `text`. `runbook` is a section of the docs."""

    severity: Annotated[
        str,
        Meta(
            description="critical, warning, or info: nothing is broken.", extra_json_schema=one_of(*SEVERITIES.values())
        ),
    ]
    code: Annotated[str, Meta(description="The check that found it.")]
    runbook: str
    text: str | UnsetType = UNSET
    since: Time | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    queue: int | UnsetType = UNSET
    node: str | UnsetType = UNSET

    def domain(self) -> Finding:
        return Finding(
            severity=self.severity,
            code=self.code,
            text=self.text or "",
            since=ms(self.since),
            topic=known(self.topic),
            queue=known(self.queue),
            node=known(self.node),
            runbook=self.runbook,
        )


class StatusOut(msgspec.Struct):
    """The problems, worst first; empty if there are none."""

    findings: list[FindingOut]

    def domain(self) -> list[Finding]:
        return [one.domain() for one in self.findings]


class FigureOut(msgspec.Struct, rename="camel"):
    """A number of messages, null if it is unknown, and the time of the count."""

    count: int | None
    as_of: Time


class TrafficOut(msgspec.Struct, rename="camel"):
    """Deliveries of the last ten minutes, in slots of `stepMs`; null: no node reports it."""

    begin: Annotated[Time, Meta(description="The start of the first slot; the last slot is complete.")] = msgspec.field(
        name="from"
    )
    step_ms: int
    complete: Annotated[bool, Meta(description="Whether every live node reports.")]
    over_ms: Annotated[
        int,
        Meta(
            description="The largest lateness that is measured; null in a slot with messages is a percentile above it."
        ),
    ]
    delivered: Annotated[list[float | None], Meta(description="messages a second")]
    p50_ms: Annotated[list[float | None], Meta(description="Lateness, within the precision of the workers' buckets.")]
    p99_ms: list[float | None]
    total: TrafficTotalOut

    def domain(self) -> Traffic:
        """Return the deliveries; a percentile is infinite above the last bucket, and None if nothing was delivered."""
        seconds = self.step_ms / 1_000
        delivered = [None if rate is None else round(rate * seconds) for rate in self.delivered]

        def measured(ms: float | None) -> float:
            return math.inf if ms is None else ms

        lateness = [
            (measured(p50), measured(p99)) if rate else None
            for rate, p50, p99 in zip(self.delivered, self.p50_ms, self.p99_ms, strict=True)
        ]
        total = self.total
        return Traffic(
            begin=parse_instant(self.begin),
            delivered=delivered,
            lateness=lateness,
            total=sum(count or 0 for count in delivered),
            p50=measured(total.p50_ms) if total.delivered else None,
            p99=measured(total.p99_ms) if total.delivered else None,
            complete=self.complete,
        )


class TrafficTotalOut(msgspec.Struct, rename="camel"):
    """The same for all slots together."""

    delivered: float
    p50_ms: float | None
    p99_ms: float | None


class MemoryOut(msgspec.Struct, rename="camel"):
    """The memory of Redis, null where it is unknown; of a cluster, of its fullest primary."""

    bytes: int | None
    max_bytes: Annotated[int | None, Meta(description="Its maxmemory; 0: no limit.")]
    policy: Annotated[str | None, Meta(description="Its maxmemory-policy.")]


class OverviewOut(msgspec.Struct, rename="camel"):
    """The figures of the service. `scheduled` are not due yet, or wait for a retry; `parked` excludes held messages."""

    now: Time
    findings: list[FindingOut]
    scheduled: FigureOut
    due: FigureOut
    held: FigureOut
    parked: FigureOut
    dead: FigureOut
    remembered: Annotated[int, Meta(description="Ids of ended messages that are still remembered.")]
    head_lateness: Annotated[int, Meta(description="The lateness of the earliest message in ms.")]
    queues: Annotated[int, Meta(description="The number of queues in all layouts.")]
    counters: Annotated[dict[str, int], Meta(description="Counts since the creation of the store.")]
    live_nodes: int
    stale_nodes: int
    pauses: Annotated[list[PauseOut], Meta(description="The pauses in force, oldest first.")]
    traffic: TrafficOut | None
    memory: MemoryOut
    routes: list[RouteOut]

    def domain(self) -> Overview:
        return Overview(
            now=parse_instant(self.now),
            findings=[one.domain() for one in self.findings],
            scheduled=self.scheduled.count or 0,
            due=self.due.count or 0,
            held=self.held.count,
            parked=self.parked.count,
            dead=self.dead.count or 0,
            remembered=self.remembered,
            head_lateness=self.head_lateness,
            queues=self.queues,
            counters=self.counters,
            live=self.live_nodes,
            stale=self.stale_nodes,
            pauses=[one.domain() for one in self.pauses],
            traffic=None if self.traffic is None else self.traffic.domain(),
            memory=Memory(self.memory.bytes, self.memory.max_bytes, self.memory.policy),
            routes=[one.domain() for one in self.routes],
        )


class AuditMessageOut(msgspec.Struct):
    """A changed message, with its topic and business keys at that time."""

    id: str
    topic: str
    keys: tuple[str, ...]


class AuditEntryOut(msgspec.Struct, omit_defaults=True):
    """A manual change. `messages` are those that were really changed; `detail` has changes that concern no message."""

    time: Time
    action: str
    actor: Annotated[str, Meta(description="The name of a key, or cli:<user>@<host>.")]
    key: Annotated[str, Meta(description="The id of the key.")] = ""
    address: str = ""
    reason: str = ""
    queue: int | UnsetType = UNSET
    messages: list[AuditMessageOut] | UnsetType = UNSET
    detail: str = ""
    count: Annotated[
        int | UnsetType, Meta(description="The number of changed messages, if it is more than `messages` names.")
    ] = UNSET
    run: Annotated[str, Meta(description="The backfill run that was undone.")] = ""

    def domain(self) -> AuditEntry:
        messages = tuple(AuditedMessage(one.id, one.topic, one.keys) for one in self.messages or ())
        texts = {name: getattr(self, name) for name in ("actor", "key", "address", "action", "reason", "detail", "run")}
        at, count = parse_instant(self.time), self.count or len(messages)
        return AuditEntry(known(self.queue), Audited(at=at, number=0, messages=messages, count=count, **texts))


class AuditOut(msgspec.Struct, rename="camel"):
    """A page, newest first. `nextPageToken` is null on the last page."""

    entries: list[AuditEntryOut]
    next_page_token: str | None

    def domain(self) -> AuditPage:
        return AuditPage([one.domain() for one in self.entries], self.next_page_token)


def queues_out(queues: list[QueueStats], nodes: Mapping[str, NodeLine]) -> QueuesOut:
    """Return the answer with the figures and the owner of each queue."""
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
    """Return the answer with the nodes."""
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
                [one.text for one in line.complaints],
            )
            for line in nodes.values()
        ]
    )


def routes_out(routes: Iterable[RouteState]) -> RoutesOut:
    """Return the answer with the routes."""
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
                route.delivered,
                [
                    NodeDeliveriesOut(one.node, instant(one.since), format_instant(one.seen), one.delivered)
                    for one in route.delivered_by
                ],
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
    """Return the answer with the findings."""
    return StatusOut([finding_out(one) for one in findings])


def finding_out(finding: Finding) -> FindingOut:
    """Return one finding, without the fields that are unknown."""
    known = {name: value for name in ("topic", "queue", "node") if (value := getattr(finding, name)) is not None}
    since = UNSET if finding.since is None else format_instant(finding.since)
    return FindingOut(finding.severity, finding.code, finding.runbook, finding.text, since, **known)


def overview_out(overview: Overview) -> OverviewOut:
    """Return the answer with the overview."""
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
        memory=MemoryOut(overview.memory.used, overview.memory.limit, overview.memory.policy),
        routes=routes_out(overview.routes).routes,
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
    """Return a percentile, or None if it is above the last bound."""
    return None if ms is None or math.isinf(ms) else ms


def audit_out(page: AuditPage, next_page_token: str | None) -> AuditOut:
    """Return the answer with a page of manual changes."""
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
