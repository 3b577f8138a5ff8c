"""A plan that explains why a message has not been delivered yet, by its state, the policies and the reports of live workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from delayq.base.times import format_instant
from delayq.client.known_routes import name_of_route
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.codec import CorruptRecord
from delayq.domain.message import State
from delayq.domain.nodes import NodeLine, RouteLine, owners_of, read_nodes
from delayq.domain.policies import Pause, Policies
from delayq.domain.words import counted
from delayq.store import commands
from delayq.store.commands import Found
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys, ParkedSet

#: The text is also true for a circuit that has just opened and that the owner has not published yet.
WAITS: Final = "its target accepts no more messages now, or earlier messages of its ordering key"


#: The causes of a wait.
WAITS_FOR: Final = (
    "due", "attempt", "owner", "pull", "answer", "pause", "limit", "key", "target", "route", "return", "redrive",
)  # fmt: skip


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a message waits, as a word and as a sentence. Times are Unix ms.

    `waits_for` is 'due', 'attempt', 'owner', 'pull', 'answer', 'pause', 'limit', 'key', 'target', 'route', 'return' or
    'redrive'; None once it has ended. `since` is when the wait began, and `until` when it ends by itself. `owner` is
    the node that delivers from its queue. Each of them may be unknown.
    """

    waits_for: str | None
    text: str
    since: int | None = None
    until: int | None = None
    owner: str | None = None


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that explain a message.

    `ranks` are its places in the parked sets that it may be in, by the kind of set. `forced` means that it is delivered now on
    request, regardless of pauses and limits.
    """

    nodes: Mapping[str, NodeLine]
    owner: str | None
    route: str | None
    circuit: RouteLine | None
    pause: Pause | None
    rate: float | None
    at_a_time: int | None
    max_attempts: int | None
    ranks: Mapping[str, int | None]
    before: int | None  # in the queue
    elsewhere: int  # messages of its topic that are held in other queues and were due before
    forced: bool

    @property
    def held_by(self) -> Pause | None:
        """The pause that holds it, unless it is forced past."""
        return None if self.forced else self.pause

    @property
    def held_before(self) -> int:
        """The number of held messages of its topic that are delivered before it."""
        return (self.ranks["topic"] or 0) + self.elsewhere


def explain(context: Context, found: Found, *, of_others: bool = True) -> Plan[Explanation]:
    """Explain why a message has not been delivered yet, or how it ended; raises StoreError.

    Without `of_others`, the explanation does not reveal how many messages of other topics are delivered before it.
    """
    if found.record is None:
        return _ended(found)
    try:
        topic, ordering_key = found.record.topic, found.record.ordering_key
    except (CorruptRecord, UnicodeDecodeError):
        return Explanation(waits_for=None, text="its record is damaged: it becomes a dead letter when it is due")
    keys = context.keys.queue(found.queue)
    answers = yield [
        commands.redis_now(),
        commands.nodes(context.keys),
        commands.stored_epoch(keys),
        commands.policies(context.keys),
    ]
    now, lines, epoch, stood = all_good(answers)
    nodes, policies = read_nodes(lines, now), Policies.read(stood)
    owner = owners_of(nodes.values(), {found.queue: epoch}).get(found.queue)
    line = nodes[owner].route_of(topic) if owner is not None else None
    route = line.name if line is not None else name_of_route(topic, nodes.values(), context.routes.own)
    ticket = found.id.encode() + b"\0" + found.record.generation
    sets = {
        "topic": ParkedSet.of_topic(topic),
        "route": ParkedSet.of_route(route or ""),
        "noRoute": ParkedSet.NO_ROUTE,
        "lane": ParkedSet.of_lane(topic, ordering_key),
    }
    asked = [commands.place_in(keys.parked(name), ticket) for name in sets.values()]
    held_at = commands.due_in(keys.held(topic), ticket)
    sign = commands.delivered_by_force(keys, found.id)
    *ranks, before, at, forced = all_good((yield [*asked, commands.place_in(keys.queue, ticket), held_at, sign]))
    elsewhere = (yield from _held_elsewhere(context, found.queue, topic, at)) if at is not None else 0
    policy, limit = policies.policy(topic), policies.limit(topic)
    rates = [one.rate for one in (policy, limit) if one is not None and one.rate]
    known = _Facts(
        nodes=nodes,
        owner=owner,
        route=route,
        circuit=line,
        pause=policies.pause(topic),
        rate=min(rates, default=None),
        at_a_time=policy.max_in_flight if policy is not None else None,
        max_attempts=found.record.max_attempts
        or (policy.max_attempts if policy is not None else None)
        or (line.max_attempts if line is not None else None),
        ranks=dict(zip(sets, ranks, strict=True)),
        before=before if of_others else None,
        elsewhere=elsewhere,
        forced=forced,
    )
    return msgspec.structs.replace(_EACH[found.state](found, known), owner=owner)


def _held_elsewhere(context: Context, queue: int, topic: str, due: int) -> Plan[int]:
    """The number of messages of a topic that are held in other queues and were due before this time."""
    counts = yield from every_queue(context, lambda keys: commands.count_before(keys.held(topic), due))
    return sum(count for number, count in counts.items() if number != queue)


def _paused_by(pause: Pause) -> str:
    until = f" until {format_instant(pause.until)}" if pause.until is not None else ""
    return f"its topic is paused by {pause.match} since {format_instant(pause.since)}{until}"


def held_by(pause: Pause | None) -> str:
    """Return the pause or limit that holds a message, as the end of a sentence."""
    if pause is None:
        return "a pause or a limit of its topic holds it"
    return _paused_by(pause) + (f": {pause.reason}" if pause.reason else "")


def _of_pause(pause: Pause) -> Explanation:
    return Explanation(waits_for="pause", text=f"it is held: {held_by(pause)}", since=pause.since, until=pause.until)


def _no_owner(found: Found, known: _Facts) -> Explanation:
    last = max(
        (line for line in known.nodes.values() if found.queue in line.queues), key=lambda line: line.seen, default=None
    )
    heard = f"; {last.node} reported last at {format_instant(last.seen)}" if last is not None else ""
    text = f"its queue {found.queue} has no owner, so no node delivers from it{heard}"
    return Explanation(waits_for="owner", text=text, since=last.seen if last is not None else None)


def _and_then(text: str, known: _Facts) -> str:
    """Add what will hold the message once it is due, if it is still so then."""
    if (pause := known.held_by) is not None:
        reason = f" ({pause.reason})" if pause.reason else ""
        return f"{text}, and will be held if {_paused_by(pause)} is still in force{reason}"
    if known.owner is None:
        return f"{text}, and its queue has no owner now"
    if known.circuit is None and known.nodes[known.owner].tells_routes:
        return f"{text}; no route of {known.owner} matches its topic now"
    if known.circuit is not None and known.circuit.circuit is not None:
        return f"{text}; the circuit of route {known.circuit.name} is open now: {known.circuit.circuit.reason}"
    return text


def _scheduled(found: Found, known: _Facts) -> Explanation:
    text = f"it is due at {_time(found.due)}"
    return Explanation(waits_for="due", text=_and_then(text, known), until=found.due)


def _retrying(found: Found, known: _Facts) -> Explanation:
    most = f" of {known.max_attempts}" if known.max_attempts is not None else ""
    text = f"attempt {found.attempts + 1}{most} is at {_time(found.due)}"
    return Explanation(waits_for="attempt", text=_and_then(f"{text}{_failed(known)}", known), until=found.due)


def _failed(known: _Facts) -> str:
    """The last failure at the target: failures of single messages are not stored."""
    failed = known.circuit.failed if known.circuit is not None else None
    if failed is None or known.circuit is None:
        return ""
    why = failed.reason or "no reason"
    return f"; the last failed send to route {known.circuit.name} was at {format_instant(failed.at)} ({why})"


def _due(found: Found, known: _Facts) -> Explanation:
    if known.owner is None:
        return _no_owner(found, known)
    if (pause := known.held_by) is not None:
        return _of_pause(pause)
    text = f"it has been due since {_time(found.due)}, and {known.owner} pulls it in its turn{_behind(known.before)}"
    return Explanation(waits_for="pull", text=text, since=found.due)


def _in_flight(found: Found, known: _Facts) -> Explanation:
    if known.owner is None:
        return _no_owner(found, known)
    text = f"{known.owner} has had it since {_time(found.due)}: it is being sent, or waits for {_turn(found, known)}"
    if (pause := known.held_by) is not None:
        text = f"{text}; if it is not being sent yet, it is held: {held_by(pause)}"
    return Explanation(waits_for="answer", text=text, since=found.due)


def _turn(found: Found, known: _Facts) -> str:
    """Return the cause of a message's wait in its worker. A failed message with the same ordering key delays it too."""
    if found.record is None or not found.record.ordering_key:
        return "its turn"
    if found.attempts:
        most = f" of {known.max_attempts}" if known.max_attempts is not None else ""
        return f"attempt {found.attempts + 1}{most}, and later messages of its ordering key wait for it{_failed(known)}"
    return "earlier messages of its ordering key, which may have failed and wait for a retry"


def _held(found: Found, known: _Facts) -> Explanation:
    if (pause := known.held_by) is not None:
        return _of_pause(pause)
    if known.owner is None:
        return _no_owner(found, known)
    before = known.held_before
    if known.rate is not None:
        text = f"it is held: the limit of its topic is {known.rate:g} messages per second, and {before} go before it"
        return Explanation(waits_for="limit", text=text)
    if known.at_a_time is not None:
        text = f"it is held: its topic or policy has {known.at_a_time} sends at a time"
        return Explanation(waits_for="limit", text=f"{text}, and {before} go before it")
    return Explanation(
        waits_for="return", text=f"the cause of its wait has ended, and it returns to the queue{_behind(before)}"
    )


def _parked(found: Found, known: _Facts) -> Explanation:
    if known.owner is None:
        return _no_owner(found, known)
    explained = _waits_for_target(known)
    if (pause := known.held_by) is None:
        return explained
    return msgspec.structs.replace(explained, text=f"{explained.text}; when it returns, it is held: {held_by(pause)}")


def _waits_for_target(known: _Facts) -> Explanation:
    if known.ranks["noRoute"] is not None:
        return Explanation(waits_for="route", text=f"no route of {known.owner} matches its topic")
    if (before := known.ranks["lane"]) is not None:
        text = f"it is parked: earlier messages of its ordering key are on the way to route {known.route}"
        return Explanation(waits_for="key", text=text + _behind(before))
    line = known.circuit
    if line is None or line.circuit is None:
        return Explanation(waits_for="target", text=WAITS)
    circuit = line.circuit
    since, probe = format_instant(circuit.since), format_instant(circuit.probe)
    why = circuit.reason or "no reason"
    text = f"the target of route {line.name} has refused messages since {since}: {why}; the next probe is at {probe}"
    return Explanation(waits_for="target", text=text, since=circuit.since, until=circuit.probe)


def _dead(found: Found, _known: _Facts) -> Explanation:
    text = f"it has been a dead letter since {_time(found.ended)}: {found.reason or 'no reason'}; redrive or discard it"
    return Explanation(waits_for="redrive", text=text, since=found.ended)


_EACH: Final = {
    State.SCHEDULED: _scheduled,
    State.RETRYING: _retrying,
    State.DUE: _due,
    State.IN_FLIGHT: _in_flight,
    State.HELD: _held,
    State.PARKED: _parked,
    State.DEAD: _dead,
}
_ENDINGS: Final = {
    State.DELIVERED: "it was delivered at",
    State.CANCELLED: "it was cancelled, and never delivered, at",
    State.REMOVED_IN_FLIGHT: "it was cancelled when it may have been delivered, at",
    State.DISCARDED: "it was deleted as a dead letter at",
}


def _ended(found: Found) -> Explanation:
    if found.state not in _ENDINGS:
        return Explanation(waits_for=None, text="its record is damaged: it becomes a dead letter when it is due")
    who = f", by {found.ended_by}" if found.ended_by else ""
    then = f"; {found.reason}" if found.reason else ""
    text = f"{_ENDINGS[found.state]} {_time(found.ended)}{who}{then}"
    return Explanation(waits_for=None, text=text, since=found.ended)


def _behind(others: int | None) -> str:
    return f", behind {counted(others, 'other', 'others')}" if others else ""


def _time(ms: int | None) -> str:
    return "an unknown time" if ms is None else format_instant(ms)


def explain_parked(keys: Keys, found: Iterable[Found | None]) -> Plan[dict[str, Found]]:
    """The parked messages by id, with the reason and the time of the target's next probe, as the owner reports them."""
    parked = [one for one in found if one is not None and one.state == State.PARKED]
    if not parked:
        return {}
    lines, now = all_good((yield [commands.nodes(keys), commands.redis_now()]))
    nodes = read_nodes(lines, now)
    return {one.id: _explained(one, nodes) for one in parked}


def _explained(one: Found, lines: Mapping[str, NodeLine]) -> Found:
    owners = [line for line in lines.values() if not line.stale and one.queue in line.queues]
    if not owners:
        return msgspec.structs.replace(one, reason="no live worker reports that it owns its queue")
    owner = max(owners, key=lambda line: line.queues[one.queue].epoch)
    if not owner.tells_routes or one.record is None:  # an older worker
        return one
    route = owner.route_of(one.record.topic)
    if route is None:
        return msgspec.structs.replace(one, reason=f"no route of {owner.node} matches its topic")
    if route.circuit is None:
        return msgspec.structs.replace(one, reason=WAITS)
    reason = f"the circuit of route {route.name} is open: {route.circuit.reason}"
    return msgspec.structs.replace(one, reason=reason, next_probe=route.circuit.probe)
