"""The JSON of answers as the types that the client of Redis returns. Fields that this version does not know are ignored."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from delayq.base.errors import DelayqError
from delayq.base.times import parse_instant
from delayq.client.changing.advance import Advanced
from delayq.client.changing.messages import Rescheduled
from delayq.client.changing.policies import Paused
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.handing_back import HandedBack
from delayq.client.consuming.settling import Settlement
from delayq.client.findings import Finding
from delayq.client.findings.overview import Memory, Overview, Traffic
from delayq.client.looking.audit import AuditEntry, AuditPage
from delayq.client.looking.counting import Counted, Forecast
from delayq.client.looking.dead_groups import DeadGroup, DeadGroups
from delayq.client.looking.dead_letters import DeadLetterPage
from delayq.client.looking.explain import Explanation
from delayq.client.looking.groups import ConsumerGroup, OldestMessage
from delayq.client.looking.search import SearchPage
from delayq.client.looking.service import NodeDeliveries, RouteState
from delayq.client.looking.topics import Arriving, TopicState
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.codec import Record, due_head, encode
from delayq.domain.message import Limits, Message
from delayq.domain.nodes import Complaint, NodeLine, Owned
from delayq.domain.policies import Bucket, Limit, Pause, Policies, Policy
from delayq.http.problems import Problem, error_of
from delayq.store.commands import DeadLetter, Found, QueueStats
from delayq.store.commands.audit import Audited, AuditedMessage

Json = Mapping[str, Any]
#: The API has checked every size before.
_ANY_SIZE: Final = Limits(body=2**31)
_GENERATION: Final = b"0000000"
_string = msgspec.json.Decoder(str)


class _Message(msgspec.Struct, rename="camel"):
    topic: str
    expect_date: str
    body: Raw = Raw(b'""')
    body_base64: str | None = None
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    ordering_key: str = ""
    max_attempts: int | None = None
    expire_after: int | None = None


class _Explain(msgspec.Struct, rename="camel"):
    waits_for: str | None
    text: str
    since: str | None = None
    until: str | None = None
    owner: str | None = None


class _State(msgspec.Struct, rename="camel"):
    id: str
    queue: int
    state: str
    attempts: int = 0
    due_ms: int | None = None
    ended_time: str | None = None
    reason: str | None = None
    next_probe_time: str | None = None
    message: _Message | None = None
    ended_by: str | None = None
    explain: _Explain | None = None


class _States(msgspec.Struct, rename="camel"):
    messages: list[_State]
    looked: int
    next_page_token: str | None = None


class _Letter(msgspec.Struct, rename="camel"):
    id: str
    queue: int
    dead_time: str
    attempts: int
    reason: str
    message: _Message | None = None


class _Letters(msgspec.Struct, rename="camel"):
    dead_letters: list[_Letter]
    next_page_token: str | None = None


_state = msgspec.json.Decoder(_State)
_states = msgspec.json.Decoder(_States)
_letters = msgspec.json.Decoder(_Letters)


def value_of(body: bytes) -> Any:
    """Return the value of an answer."""
    return msgspec.json.decode(body)


def _ms(time: str | None) -> int | None:
    return None if time is None else parse_instant(time)


def _record(message: _Message | None) -> Record | None:
    if message is None:
        return None
    body: Any = message.body
    if message.body_base64 is not None:
        body = base64.b64decode(message.body_base64)
    elif bytes(body)[:1] == b'"':
        body = _string.decode(body)
    asked = parse_instant(message.expect_date)
    given = Message(
        topic=message.topic,
        body=body,
        expect_date=asked,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        ordering_key=message.ordering_key,
        max_attempts=message.max_attempts,
        expire_after=message.expire_after,
    )
    return Record(encode(given, _ANY_SIZE, _GENERATION + due_head(asked)))


def _found(one: _State) -> Found:
    return Found(
        id=one.id,
        queue=one.queue,
        state=one.state,
        record=_record(one.message),
        due=one.due_ms,
        attempts=one.attempts,
        reason=one.reason,
        ended=_ms(one.ended_time),
        ended_by=one.ended_by,
        next_probe=_ms(one.next_probe_time),
    )


def check_id_of(found: str, id: str) -> None:
    """Raise ValueError if an answer is about another message. An ordering key appends to the id."""
    if not found.startswith(id):
        raise ValueError("the answer is about another message")


def found_of(body: bytes, id: str) -> Found:
    """The state of the message of an id."""
    found = _found(_state.decode(body))
    check_id_of(found.id, id)
    return found


def explanation_of(body: bytes) -> Explanation:
    """The explanation beside the state of a message."""
    one = _state.decode(body).explain
    assert one is not None, "it was asked for"
    return Explanation(
        waits_for=one.waits_for, text=one.text, since=_ms(one.since), until=_ms(one.until), owner=one.owner
    )


def page_of(body: bytes) -> SearchPage:
    """A page of messages."""
    page = _states.decode(body)
    return SearchPage([_found(one) for one in page.messages], page.looked, page.next_page_token)


def letters_of(body: bytes) -> DeadLetterPage:
    """A page of dead letters."""
    page = _letters.decode(body)
    letters = [
        DeadLetter(
            id=one.id,
            queue=one.queue,
            buried=parse_instant(one.dead_time),
            attempts=one.attempts,
            reason=one.reason,
            record=_record(one.message),
        )
        for one in page.dead_letters
    ]
    return DeadLetterPage(letters, page.next_page_token, len(body))


class _Moved(msgspec.Struct):
    queue: int
    due: int | None = msgspec.field(name="dueMs")  # null: it was delivered


class _Scheduled(_Moved, kw_only=True):
    id: str
    state: str
    window: int | None = None


def scheduled_of(one: Json, *, created: bool, id: str = "") -> Scheduled:
    """An accepted message, whose id was given."""
    given = msgspec.convert(one, _Scheduled)
    check_id_of(given.id, id)
    return Scheduled(given.id, given.queue, given.due, given.state, created, given.window)


def moved_of(one: Json, id: str) -> Rescheduled:
    """A message with another due time."""
    given = msgspec.convert(one, _Moved)
    return Rescheduled(id, "scheduled", given.due, given.queue)


def advanced_of(one: Json) -> Advanced:
    """The moved time of a development server."""
    return Advanced(one["nowMs"], one["ahead"])


def me_of(one: Json) -> dict[str, Any]:
    """The API key and the version of the API."""
    if not isinstance(one["version"], str):
        raise TypeError("the version is a text")
    return dict(one)


def counted_of(one: Json) -> Counted:
    """A number of messages."""
    return Counted(one["count"], one["exact"], _ms(one["asOf"]))


def forecast_of(one: Json, edges: list[int]) -> Forecast:
    """The numbers of messages that fall due between these edges."""
    buckets = one["buckets"]
    messages = None if buckets is None else [bucket["messages"] for bucket in buckets]
    return Forecast(edges, messages, one["exact"], _ms(one["asOf"]), one["drainRate"], one["capacity"])


def groups_of(one: Json) -> DeadGroups:
    """The groups of dead letters."""
    groups = [
        DeadGroup(
            topic=group["topic"] or "",
            reason=group["reason"],
            count=group["count"],
            first=parse_instant(group["firstTime"]),
            last=parse_instant(group["lastTime"]),
            examples=tuple(group["examples"]),
        )
        for group in one["groups"]
    ]
    return DeadGroups(now=parse_instant(one["asOf"]), looked=one["looked"], complete=one["complete"], groups=groups)


def queues_of(one: Json) -> list[QueueStats]:
    """The figures of every queue.

    The API has counters only for all queues together: they are those of the first queue here, and 0 for the others. So sums
    are right.
    """
    counters: dict[str, int] = one["total"]["counters"]
    zeros = dict.fromkeys(counters, 0)
    return [
        QueueStats(
            queue=row["queue"],
            now=parse_instant(one["now"]),
            closed=row["closed"],
            scheduled=row["depth"],
            due=row["due"],
            head_due=_ms(row["headDueTime"]),
            parked=row["parked"],
            dead=row["dead"],
            remembered=row["remembered"],
            epoch=row["epoch"],
            watermark=None,
            parked_sets=(),
            counters=zeros if number else counters,
            pool=row["depth"] + row["parked"] + row["dead"],
            born=None,
        )
        for number, row in enumerate(one["queues"])
    ]


def nodes_of(one: Json) -> dict[str, NodeLine]:
    """The nodes by name."""
    return {
        node["node"]: NodeLine(
            node=node["node"],
            address=node["address"] or "",
            version=node["version"] or "",
            since=_ms(node["since"]),
            seen=parse_instant(node["seen"]),
            stale=node["stale"],
            coordinator=node["coordinator"] or "",
            queues={row["queue"]: Owned(row["epoch"], _ms(row["since"])) for row in node["queues"]},
            handed_over=_ms(node["handedOver"]),
            complaints=tuple(map(Complaint, node["complaints"])),
        )
        for node in one["nodes"]
    }


def routes_of(one: Json) -> list[RouteState]:
    """The routes."""
    return [
        RouteState(
            name=route["name"],
            target=route["target"] or "",
            parked=route["parked"],
            open_at=tuple(route["openAt"]),
            reason=route["reason"],
            since=_ms(route["since"]),
            next_probe=_ms(route["nextProbeTime"]),
            delivered_by=tuple(
                NodeDeliveries(by["node"], _ms(by["since"]), parse_instant(by["seen"]), by["delivered"])
                for by in route["deliveredBy"]
            ),
        )
        for route in one["routes"]
    ]


def status_of(one: Json) -> list[Finding]:
    """The findings."""
    return [
        Finding(
            severity=finding["severity"],
            code=finding["code"],
            text=finding.get("text", ""),
            since=_ms(finding.get("since")),
            topic=finding.get("topic"),
            queue=finding.get("queue"),
            node=finding.get("node"),
            runbook=finding["runbook"],
        )
        for finding in one["findings"]
    ]


def overview_of(one: Json) -> Overview:
    """The figures of the service."""
    counts = {name: one[name]["count"] for name in ("scheduled", "due", "held", "parked", "dead")}
    traffic, memory = one["traffic"], one["memory"]
    return Overview(
        now=parse_instant(one["now"]),
        findings=status_of(one),
        **counts,
        remembered=one["remembered"],
        head_lateness=one["headLateness"],
        queues=one["queues"],
        counters=one["counters"],
        live=one["liveNodes"],
        stale=one["staleNodes"],
        pauses=[_pause(pause) for pause in one["pauses"]],
        traffic=None if traffic is None else _traffic(traffic),
        memory=Memory(memory["bytes"], memory["maxBytes"], memory["policy"]),
        routes=routes_of(one),
    )


def _traffic(one: Json) -> Traffic:
    seconds = one["stepMs"] / 1_000
    delivered = [None if rate is None else round(rate * seconds) for rate in one["delivered"]]

    def measured(ms: float | None, rate: float | None) -> float | None:
        """The percentile, infinite above the last bucket; None if nothing was delivered."""
        return math.inf if ms is None and rate else ms

    lateness = [
        (math.inf if p50 is None else p50, math.inf if p99 is None else p99) if rate else None
        for rate, p50, p99 in zip(one["delivered"], one["p50Ms"], one["p99Ms"], strict=True)
    ]
    total = one["total"]
    return Traffic(
        begin=parse_instant(one["from"]),
        delivered=delivered,
        lateness=lateness,
        total=sum(count or 0 for count in delivered),
        p50=measured(total["p50Ms"], total["delivered"]),
        p99=measured(total["p99Ms"], total["delivered"]),
        complete=one["complete"],
    )


def audit_of(one: Json) -> AuditPage:
    """A page of manual changes."""
    return AuditPage([_entry(entry) for entry in one["entries"]], one["nextPageToken"])


def _entry(one: Json) -> AuditEntry:
    messages = tuple(AuditedMessage(row["id"], row["topic"], tuple(row["keys"])) for row in one.get("messages", ()))
    given = {name: one.get(name, "") for name in ("actor", "key", "address", "action", "reason", "detail", "run")}
    at = parse_instant(one["time"])
    count = one.get("count", len(messages))
    return AuditEntry(one.get("queue"), Audited(at=at, number=0, messages=messages, count=count, **given))


def _pause(one: Json) -> Pause:
    return Pause(
        match=one["match"],
        since=parse_instant(one["since"]),
        until=_ms(one.get("until")),
        reason=one.get("reason", ""),
    )


def policy_of(one: Json) -> Policy:
    """A policy."""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(Policy)}
    fields: dict[str, Any] = {known[name]: value for name, value in one.items() if name in known}
    lists: dict[str, Any] = {name: tuple(fields.get(name, ())) for name in ("backoff", "index", "redact")}
    return Policy(**(fields | lists | {"since": parse_instant(one["since"])}))


def policies_of(one: Json) -> Policies:
    """All policies, pauses and limits."""
    return Policies(
        _version(one["version"]),
        {pause["match"]: _pause(pause) for pause in one["pauses"]},
        {policy["name"]: policy_of(policy) for policy in one["policies"]},
        {
            limit["match"]: Limit(match=limit["match"], rate=limit["rate"], since=parse_instant(limit["since"]))
            for limit in one["limits"]
        },
    )


def _version(number: int) -> str:
    """A version with this number, as the store writes it."""
    return f"{number:010}"


def paused_of(one: Json) -> Paused:
    """A pause that was just made or changed."""
    return Paused(
        match=one["match"],
        stored=_version(one["version"]),
        since=parse_instant(one["since"]),
        changed=one["changed"],
        in_flight=one["inFlight"],
    )


def topics_of(one: Json) -> list[TopicState]:
    """The topics of a page."""
    return [topic_of(topic) for topic in one["topics"]]


def topic_of(one: Json) -> TopicState:
    """A topic."""
    limit, counts = one.get("limit"), one.get("counts")
    is_temporary = limit is not None and limit.get("temporary", False)
    return TopicState(
        topic=one["topic"],
        route=one["route"],
        pause=_pause(one["pause"]) if "pause" in one else None,
        policy=policy_of(one["policy"]) if "policy" in one else None,
        bucket=None if limit is None else Bucket(limit["match"], limit["rate"], 0),
        held=one["held"],
        counts=counts,
        as_of=_ms(one.get("asOf")),
        limit=Limit(match=limit["match"], rate=limit["rate"]) if limit is not None and is_temporary else None,
        granted_last_second=None if limit is None else limit.get("grantedLastSecond"),
        arriving=tuple(arriving_of(one.get("arriving", ()))),
    )


def arriving_of(rows: Any) -> list[Arriving]:
    """The nodes that may still deliver messages of a paused topic."""
    return [Arriving(row["node"], row["inFlight"]) for row in rows]


def consumers_of(one: Json) -> list[ConsumerGroup]:
    """The consumer groups of a page."""
    return [
        ConsumerGroup(
            topic=row["topic"],
            group=row["group"],
            since=parse_instant(row["since"]),
            filter=tuple(row["filter"]),
            waiting=row["waiting"],
            leased=row["leased"],
            handed_back=row["handedBack"],
            oldest=_oldest(row["oldest"]),
            last_receive=_ms(row["lastReceiveTime"]),
            ready=_ms(row["readyTime"]),
        )
        for row in one["groups"]
    ]


def _oldest(one: Json | None) -> OldestMessage | None:
    if one is None:
        return None
    return OldestMessage(
        id=one["id"], due=one["dueMs"], delivered=parse_instant(one["deliveredTime"]), state=one["state"]
    )


class _Received(msgspec.Struct, rename="camel"):
    id: str
    topic: str
    lease: str
    due_ms: int
    attempt: int
    deliveries: int
    hand_backs: int
    body: str = ""
    body_base64: str | None = None
    tags: str = ""
    keys: tuple[str, ...] = ()
    ordering_key: str = ""
    properties: dict[str, str] = {}


def received_of(one: Json, group: str) -> tuple[list[Leased], list[str]]:
    """The messages that a consumer of the group received, and the leases to acknowledge that were lost."""
    messages = [
        Leased(
            id=found.id,
            topic=found.topic,
            group=group,
            lease=found.lease,
            tags=found.tags,
            keys=found.keys,
            ordering_key=found.ordering_key,
            properties=found.properties,
            body=found.body.encode() if found.body_base64 is None else base64.b64decode(found.body_base64),
            due=found.due_ms,
            attempt=found.attempt,
            deliveries=found.deliveries,
            hand_backs=found.hand_backs,
        )
        for found in msgspec.convert(one["messages"], list[_Received])
    ]
    return messages, msgspec.convert(one.get("lost", []), list[str])


def handed_back_of(one: Json) -> HandedBack:
    """A message that was handed back."""
    return HandedBack(
        id=one["id"],
        state=one["state"],
        hand_backs=one["handBacks"],
        due=_ms(one.get("dueTime")),
        created=one["status"] == 201,
    )


def settlements_of(one: Json) -> list[Settlement | DelayqError]:
    """The results of changes of leases, with the error where the API could not settle one."""
    found: list[Settlement | DelayqError] = []
    for result in one["results"]:
        if result.get("problem"):
            found.append(error_of(msgspec.convert(result["problem"], Problem), id=result["id"]))
        else:
            until = result.get("until")
            found.append(Settlement(result["result"], _ms(until)))
    return found
