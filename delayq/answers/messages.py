"""What the HTTP API and `--json` answer of what the library knows."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from delayq import Scheduled
from delayq.client.findings import Finding
from delayq.client.findings.overview import Overview, Traffic
from delayq.client.looking.audit import AuditEntry, AuditPage
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroups
from delayq.client.looking.explain import Explanation
from delayq.client.looking.service import RouteState
from delayq.codec import BODY_JSON, Record
from delayq.nodes import LATENESS, RECENT_STEP, NodeLine, owners_of
from delayq.policies import Pause
from delayq.store.commands import DeadLetter, Found, QueueStats
from delayq.times import format_instant

__all__ = [
    "AuditEntryOut", "AuditOut", "CountOut", "DeadGroupsOut", "DeadLetterOut", "DeadLettersOut", "FindingOut",
    "ForecastOut", "FoundOut", "MessageOut", "Ms", "NodeOut", "NodesOut", "OverviewOut", "PauseOut", "QueuesOut", "RouteOut",
    "RoutesOut", "ScheduledOut", "StateOut", "StatsOut", "StatusOut", "Time", "audit_out", "count_out", "dead_groups_out",
    "dead_letter_out", "finding_out", "forecast_out", "found_out", "instant", "nodes_out", "overview_out", "pause_out",
    "queues_out", "routes_out", "scheduled_out", "state_out", "stats_out", "status_out",
]  # fmt: skip

Time = Annotated[str, Meta(description="RFC 3339 in UTC with ms", extra_json_schema={"format": "date-time"})]
Ms = Annotated[int, Meta(description="Unix ms")]


def instant(ms: int | None) -> str | None:
    """RFC 3339, if there is a time."""
    return None if ms is None else format_instant(ms)


class ScheduledOut(msgspec.Struct, rename="camel", gc=False):
    """The message as it stands: the id to use from now on, its queue, its state, and its due."""

    id: str
    queue: int
    state: Annotated[str, Meta(description="scheduled; delivered or dead, when that id is so already")]
    due_time: Time | None
    due_ms: Ms | None
    window: Annotated[int, Meta(description="ms over which its due was spread")] | UnsetType = UNSET


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


class ExplainOut(msgspec.Struct, rename="camel"):
    """Why a message has not been delivered yet, or how it ended."""

    waits_for: Annotated[
        str | None,
        Meta(
            description="due, attempt, owner (of its queue), pull, answer (of its target), pause, limit, key (others of its "
            "ordering key), target, route, return (it comes back), redrive; null once it has ended"
        ),
    ]
    text: Annotated[str, Meta(description="the same as a sentence, with what is in the way")]
    since: Time | None
    until: Annotated[Time | None, Meta(description="when that is over by itself")]
    owner: Annotated[str | None, Meta(description="the live node that delivers from its queue")]


class StateOut(msgspec.Struct, rename="camel"):
    """What is known of an id. `message` is null once it has ended; `reason` says why it is dead, or what parked it."""

    id: str
    queue: int
    state: Annotated[
        str,
        Meta(
            description="scheduled, due, in_flight, retrying, parked, held or dead; for a while: delivered, cancelled, "
            "removed_in_flight (cancelled when it may have been forwarded), discarded (as a dead letter)"
        ),
    ]
    attempts: Annotated[int, Meta(description="failed ones")]
    due_time: Annotated[Time | None, Meta(description="of the next attempt; null while it is parked, held or dead")]
    due_ms: Ms | None
    ended_time: Time | None
    reason: str | None
    next_probe_time: Annotated[Time | None, Meta(description="when the target of a parked one is tried next")]
    message: MessageOut | None
    ended_by: (
        Annotated[str, Meta(description="who cancelled or discarded it, if that was written down")] | UnsetType
    ) = UNSET
    explain: ExplainOut | UnsetType = UNSET


class FoundOut(msgspec.Struct, rename="camel"):
    """Messages that have not ended, by due; dead letters by when they died. `nextPageToken` is null on the last page."""

    messages: list[StateOut]
    looked: Annotated[int, Meta(description="how many messages were looked at for them")]
    complete: Annotated[bool, Meta(description="whether these, with those of the pages before, are all")]
    next_page_token: str | None


class CountOut(msgspec.Struct, rename="camel"):
    """How many messages there are; null if no census was taken yet, or (with `asOf`) if it has no such count."""

    count: int | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="when it was so, if it is not exact")]


class BucketOut(msgspec.Struct, rename="camel"):
    """Messages that fall due from then on, and before the next bucket."""

    begin: Time = msgspec.field(name="from")
    messages: int


class ForecastOut(msgspec.Struct, rename="camel"):
    """How many messages fall due when; `buckets` is null if no census was taken yet, or (with `asOf`) it has none."""

    buckets: list[BucketOut] | None
    exact: bool
    as_of: Annotated[Time | None, Meta(description="when it was so, if it is not exact")]
    drain_rate: Annotated[
        float | None, Meta(description="messages a second that went out in the best 10 s of the last 10 minutes")
    ]
    capacity: Annotated[
        float | None,
        Meta(
            description="the same if messages had to wait for each other meanwhile; null: nobody knows how many can go out"
        ),
    ]


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
    complaints: Annotated[list[str], Meta(description="what keeps it from its work, such as its clock or ZooKeeper")]


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


class FindingOut(msgspec.Struct, omit_defaults=True):
    """Something to know: since when, what it is about, and in `text` what to do. `runbook` is a section of the docs."""

    severity: Annotated[str, Meta(description="critical, warning, or info: nothing is broken")]
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

    begin: Annotated[Time, Meta(description="of the first slot; the last one is over")]
    step_ms: int
    complete: Annotated[bool, Meta(description="every live node tells")]
    over_ms: Annotated[
        int,
        Meta(
            description="the largest lateness that is measured; null in a slot with messages is a percentile above it"
        ),
    ]
    forwarded: Annotated[list[float | None], Meta(description="messages a second")]
    p50_ms: Annotated[list[float | None], Meta(description="lateness, as far as the workers' buckets tell")]
    p99_ms: list[float | None]
    whole: TrafficWholeOut


class TrafficWholeOut(msgspec.Struct, rename="camel"):
    """The same of all slots together."""

    forwarded: float
    p50_ms: float | None
    p99_ms: float | None


class PauseOut(msgspec.Struct, omit_defaults=True):
    """A pause that lasts."""

    match: str
    since: Time
    until: Time | UnsetType = UNSET
    reason: str = ""


class OverviewOut(msgspec.Struct, rename="camel"):
    """Everything at a glance. `scheduled` are not due yet, or wait for another attempt; `parked` are without the held."""

    now: Time
    findings: list[FindingOut]
    scheduled: FigureOut
    due: FigureOut
    held: FigureOut
    parked: FigureOut
    dead: FigureOut
    head_lateness: Annotated[int, Meta(description="by how many ms the earliest message is overdue")]
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


class DeadGroupOut(msgspec.Struct, rename="camel"):
    """Dead letters of a topic that died of the same; `examples` are ids of the last of them."""

    topic: Annotated[str | None, Meta(description="null where it cannot be read")]
    reason: Annotated[str, Meta(description="without numbers")]
    count: int
    first_time: Time
    last_time: Time
    examples: list[str]


class DeadGroupsOut(msgspec.Struct, rename="camel"):
    """The largest groups of the `looked` newest dead letters; `complete`: there are no more than these."""

    groups: list[DeadGroupOut]
    looked: int
    complete: bool
    as_of: Time


def scheduled_out(scheduled: Scheduled) -> ScheduledOut:
    """A message that was taken, now or before."""
    window = UNSET if scheduled.window is None else scheduled.window
    return ScheduledOut(scheduled.id, scheduled.queue, scheduled.state, instant(scheduled.due), scheduled.due, window)


def state_out(found: Found, explained: Explanation | None = None) -> StateOut:
    """What is known of an id, and what it waits for."""
    return StateOut(
        found.id,
        found.queue,
        found.state,
        found.attempts,
        instant(found.due),
        found.due,
        instant(found.ended),
        found.reason,
        instant(found.next_probe),
        _message_out(found.record),
        UNSET if found.ended_by is None else found.ended_by,
        UNSET if explained is None else _explain_out(explained),
    )


def _explain_out(one: Explanation) -> ExplainOut:
    return ExplainOut(one.waits_for, one.text, instant(one.since), instant(one.until), one.owner)


def count_out(counted: Counted) -> CountOut:
    """How many there are."""
    return CountOut(counted.messages, counted.exact, instant(counted.as_of))


def forecast_out(found: Forecast) -> ForecastOut:
    """How many fall due when."""
    buckets = None
    if found.messages is not None:
        buckets = [BucketOut(format_instant(begin), n) for begin, n in zip(found.edges, found.messages, strict=False)]
    return ForecastOut(buckets, found.exact, instant(found.as_of), found.drain_rate, found.capacity)


def found_out(found: Iterable[Found], looked: int | None = None, next_token: str | None = None) -> FoundOut:
    """A page of messages; without `looked` nothing but these was looked at."""
    messages = [state_out(one) for one in found]
    return FoundOut(messages, len(messages) if looked is None else looked, next_token is None, next_token)


def dead_letter_out(letter: DeadLetter) -> DeadLetterOut:
    """A dead letter."""
    time = format_instant(letter.buried)
    return DeadLetterOut(letter.id, letter.queue, time, letter.attempts, letter.reason, _message_out(letter.record))


def _message_out(record: Record | None) -> MessageOut | None:
    if record is None:
        return None
    return MessageOut(
        record.topic,
        format_instant(record.asked),
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
    """The routes as the nodes' lines tell of them."""
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


def stats_out(queues: list[QueueStats]) -> StatsOut:
    """The figures of all queues together."""
    counters: dict[str, int] = {}
    for queue in queues:
        for name, count in queue.counters.items():
            counters[name] = counters.get(name, 0) + count
    return StatsOut(
        now=format_instant(max(queue.now for queue in queues)),
        queues=len(queues),
        depth=sum(queue.scheduled for queue in queues),
        due=sum(queue.due for queue in queues),
        head_lateness=max(queue.head_lateness for queue in queues),
        parked=sum(queue.parked for queue in queues),
        dead=sum(queue.dead for queue in queues),
        remembered=sum(queue.remembered for queue in queues),
        counters=counters,
    )


def status_out(findings: Iterable[Finding]) -> StatusOut:
    """What is wrong."""
    return StatusOut([finding_out(one) for one in findings])


def finding_out(finding: Finding) -> FindingOut:
    """One thing that is wrong; what is not known is left out."""
    known = {name: value for name in ("topic", "queue", "node") if (value := getattr(finding, name)) is not None}
    since = UNSET if finding.since is None else format_instant(finding.since)
    return FindingOut(finding.severity, finding.code, finding.runbook, finding.text, since, **known)


def pause_out(one: Pause) -> PauseOut:
    """A pause that lasts."""
    until = UNSET if one.until is None else format_instant(one.until)
    return PauseOut(one.match, format_instant(one.since), until, one.reason)


def overview_out(overview: Overview) -> OverviewOut:
    """Everything at a glance."""
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
        head_lateness=overview.head_lateness,
        live_nodes=overview.live,
        stale_nodes=overview.stale,
        pauses=[pause_out(one) for one in overview.pauses],
        traffic=None if overview.traffic is None else _traffic_out(overview.traffic),
    )


def _traffic_out(traffic: Traffic) -> TrafficOut:
    seconds = RECENT_STEP / 1_000
    told = sum(one is not None for one in traffic.forwarded)
    return TrafficOut(
        begin=format_instant(traffic.begin),
        step_ms=RECENT_STEP,
        complete=traffic.complete,
        forwarded=[None if one is None else one / seconds for one in traffic.forwarded],
        over_ms=int(LATENESS[-1] * 1_000),
        p50_ms=[None if one is None else _measured(one[0]) for one in traffic.lateness],
        p99_ms=[None if one is None else _measured(one[1]) for one in traffic.lateness],
        whole=TrafficWholeOut(round(traffic.total / seconds / told, 3), _measured(traffic.p50), _measured(traffic.p99)),
    )


def _measured(ms: float | None) -> float | None:
    """A percentile, if it lies in a bucket that ends."""
    return None if ms is None or math.isinf(ms) else ms


def dead_groups_out(found: DeadGroups, limit: int) -> DeadGroupsOut:
    """The largest groups of dead letters."""
    groups = [
        DeadGroupOut(
            one.topic or None,
            one.reason,
            one.count,
            format_instant(one.first),
            format_instant(one.last),
            list(one.examples),
        )
        for one in found.groups[:limit]
    ]
    return DeadGroupsOut(groups, found.looked, found.complete, format_instant(found.now))


def audit_out(page: AuditPage, next_page_token: str | None) -> AuditOut:
    """A page of what was changed by hand."""
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
