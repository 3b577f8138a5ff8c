"""What a client can do, without I/O: each operation is a plan that yields commands and gets their answers.

`Client` and `AsyncClient` run the same plans, so nothing is written twice.

A caller that may touch messages of some topics only looks at a message first (`look`), and hands in the topic that was
seen: a message is touched only if it still has that one. So whoever may not touch it learns nothing of it and changes
nothing, whatever becomes of its id in between. Without topics everything may be touched.

How routes are, and why a message is parked, is what live workers say in their lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from delayq.client.audit import By, changed_by, ended_by, entry_of
from delayq.client.known_routes import KnownRoutes
from delayq.client.looking.explain import explain_parked, held_by
from delayq.client.plan import Context, Plan, by_asked_id, by_id, every_queue
from delayq.client.scheduling.schedule import Scheduled
from delayq.codec import CorruptRecord
from delayq.config import Settings
from delayq.errors import InvalidMessage, StoreError
from delayq.message import MAX_DUE, Limits, Message, State, check_id, check_key, level_delay
from delayq.nodes import NodeLine, read_nodes
from delayq.policies import Policies
from delayq.store import checks, commands
from delayq.store.commands import MOVED, Carriers, Command, Found, Meta, QueueStats
from delayq.store.connect.durability import Durability
from delayq.store.connect.exchange import all_good
from delayq.store.keys import ParkedSet, QueueKeys, queue_keys
from delayq.times import Duration, Instant

__all__ = ["Cancelled", "Context", "Plan", "Rescheduled", "RouteState", "Scheduled"]

#: Messages of a queue that carry a business key, in a page; and of those that have ended and are remembered, in all.
FIND_LIMIT: Final = 1_000
MOST_ENDED: Final = 1_000
#: Pages of a queue that one cancel by key goes through: it ends, whoever schedules meanwhile.
MOST_PAGES: Final = 1_000
#: The topic that each id's message had when it was looked at; '' for an id that has ended.
Topics = Mapping[str, str]
#: Messages that are read at once to look at their topics.
READ_STEP: Final = 25
#: States of ids that somebody ended.
ENDED_BY_HAND: Final = ("cancelled", "removed_in_flight", "discarded")


class Cancelled(msgspec.Struct, frozen=True):
    """How a cancel went: 'cancelled', 'in_flight', 'delivered', 'dead', 'discarded' or 'not_found'."""

    id: str
    result: str


class Rescheduled(msgspec.Struct, frozen=True):
    """How a message got another due: 'scheduled' with that due (Unix ms) and its queue, or why not."""

    id: str
    result: str
    due: int | None = None
    queue: int | None = None
    reason: str | None = None  # what holds it


def cancel(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None
) -> Plan[list[Cancelled | StoreError]]:
    """Cancel messages by id; in order, how it went. `by` is written down, if it is given."""
    entry = entry_of(by, "cancel", context.retention)
    for id in ids:
        check_id(id)

    def ask(keys: QueueKeys, some: list[str], given: list[str]) -> Command[list[str]]:
        return commands.cancel(
            keys, some, topics=_seen(topics, given), entry=entry, changed=changed_by(by), retention=context.retention
        )

    results = yield from by_asked_id(context, ids, ask, _moved, lambda answer: answer == "not_found")
    return [result if isinstance(result := results[id], StoreError) else Cancelled(id, result) for id in ids]


def _moved(answer: str) -> bool:
    return answer == MOVED


def _seen(topics: Topics | None, ids: Sequence[str]) -> list[str] | None:
    return None if topics is None else [topics[id] for id in ids]


def by_key(context: Context, key: str, each: Callable[[Context, list[str]], Plan[list[Any]]]) -> Plan[list[Any]]:
    """Do something, a page by `each`, to all messages that carry a business key; how each of them went, page by page.

    Those that have ended and are remembered are among them, up to MOST_ENDED of each queue: `each` says how they ended.
    The error of a later page comes last: what stands before it was done. Raises that of the first.
    """
    check_key(key, context.limits, "key")
    outcomes: list[Any] = []
    ended: Counter[int] = Counter()

    def ask(keys: QueueKeys, behind: str = "") -> Command[Carriers]:
        left = max(0, MOST_ENDED - ended[keys.number])
        return commands.find_by_key(keys, key, FIND_LIMIT, behind, ended=left, retention=context.retention)

    pages = yield from every_queue(context, ask)
    for _ in range(MOST_PAGES):
        ids = sorted(id for page in pages.values() for id in (*page, *page.ended))
        outcomes += yield from each(context, ids)
        ended.update({queue: len(page.ended) for queue, page in pages.items()})
        behind = {queue: page.behind for queue, page in pages.items() if page.behind}
        if not behind:
            break
        answers = yield [ask(queue_keys(queue), id) for queue, id in behind.items()]
        for answer in answers:
            if isinstance(answer, StoreError):
                return [*outcomes, answer]
        pages = dict(zip(behind, answers, strict=True))
    return outcomes


def cancel_by_key(context: Context, key: str) -> Plan[list[Any]]:
    """Cancel all messages that carry a business key; see `by_key`."""
    return by_key(context, key, cancel)


def spec_of(
    limits: Limits, now: int, delay_time: Duration | None, expect_date: Instant | None, delay_level: int | None
) -> str:
    """The due as the scripts read it; raises InvalidMessage."""
    asked = Message(topic="t", delay_time=delay_time, expect_date=expect_date, delay_level=delay_level)
    asked.validate(limits, now)
    if asked.expect_date is not None:
        return f"a{asked.expect_date}"
    delay = asked.delay_time
    return f"r{delay if delay is not None else level_delay(limits.delay_levels, delay_level)}"


def reschedule(
    context: Context, id: str, spec: str, topic: str | None = None, by: By | None = None
) -> Plan[Rescheduled]:
    """Give a message another due; with `topic`, if that is its topic."""
    entry = entry_of(by, "reschedule", context.retention)
    check_id(id)

    def ask(keys: QueueKeys, some: list[str], _given: list[str]) -> Command[list[Rescheduled]]:
        command = commands.reschedule(
            keys, some[0], spec, topic=topic, entry=entry, changed=changed_by(by), retention=context.retention
        )

        def read(reply: Any) -> list[Rescheduled]:
            result, due = command.read(reply)
            return [Rescheduled(some[0], result, due, keys.number)]

        return Command(command.script, command.keys, command.args, read)

    answers = yield from by_asked_id(
        context, [id], ask, lambda answer: answer.result == MOVED, lambda answer: answer.result == "not_found"
    )
    rescheduled: Rescheduled = _one(list(answers.values()))
    if rescheduled.result == "invalid":
        raise InvalidMessage("delayTime", "the due lies too far ahead")
    if rescheduled.result != State.PARKED:
        return rescheduled
    try:
        found = yield from _told_held(all_good(list((yield from look(context, [id])).values())))
    except StoreError:  # the message has its new due: no error may say that nothing was done
        return rescheduled
    if found[0] is None or found[0].state != State.HELD:
        return rescheduled
    told: Rescheduled = (yield from _with_what_holds([msgspec.structs.replace(rescheduled, result=State.HELD)], found))[
        0
    ]
    return told


def _one(answers: list[Any]) -> Any:
    (answer,) = all_good(answers)
    return answer


def deliver_now(
    context: Context, ids: Sequence[str], topics: Topics | None = None, *, force: bool = False, by: By | None = None
) -> Plan[list[Rescheduled | StoreError]]:
    """Have messages delivered now; in order, how it went. With `force` what is held goes, too, in spite of pauses and limits.

    Also 'scheduled' is one that is due already; what may be on its way is 'in_flight'.
    """
    entry = entry_of(by, "deliver_now", context.retention)
    for id in ids:
        check_id(id)
    found = yield from _look_by_steps(context, ids)

    def ask(keys: QueueKeys, some: list[str], given: list[str]) -> Command[list[Rescheduled]]:
        held = sorted({topic for id in given if (topic := _topic_of(found[id])) is not None})
        command = commands.deliver_now(
            keys,
            some,
            force=force,
            held=held,
            topics=_seen(topics, given),
            entry=entry,
            changed=changed_by(by),
            retention=context.retention,
        )

        def read(reply: Any) -> list[Rescheduled]:
            told = zip(some, command.read(reply), strict=True)
            return [Rescheduled(id, result, due, keys.number) for id, (result, due) in told]

        return Command(command.script, command.keys, command.args, read)

    results = yield from by_asked_id(
        context, ids, ask, lambda answer: answer.result == MOVED, lambda answer: answer.result == "not_found"
    )
    return (yield from _with_what_holds([results[id] for id in ids], [found[id] for id in ids]))


def _with_what_holds(told: list[Any], found: Sequence[Found | StoreError | None]) -> Plan[list[Any]]:
    """The same, of those that are held with what holds them; what was found of each comes along."""
    held = [place for place, one in enumerate(told) if isinstance(one, Rescheduled) and one.result == State.HELD]
    if held:
        (stand,) = yield [commands.policies()]
        if isinstance(stand, StoreError):  # what was asked for is done, for those that are not held
            return told
        policies = Policies.read(stand)
        for place in held:
            pause = policies.pause(_topic_of(found[place]) or "")
            told[place] = msgspec.structs.replace(told[place], reason=held_by(pause))
    return told


def _look_by_steps(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """What is known of each id, few at a time, as bodies may be large."""
    found: dict[str, Found | StoreError | None] = {}
    for start in range(0, len(ids), READ_STEP):
        found |= yield from look(context, ids[start : start + READ_STEP])
    return found


def _topic_of(found: Found | StoreError | None) -> str | None:
    """The topic of a message that is there and can be read."""
    if not isinstance(found, Found) or found.record is None:
        return None
    try:
        return found.record.topic
    except CorruptRecord:
        return None


def get(context: Context, ids: Sequence[str]) -> Plan[list[Found | None]]:
    """What is known of ids, in order, and of one that stands alone who ended it by hand; raises StoreError."""
    for id in ids:
        check_id(id)
    results = yield from look(context, ids)
    found = yield from _told_held(all_good([results[id] for id in ids]))
    parked = yield from explain_parked(found)
    explained = [parked.get(one.id, one) if one is not None else None for one in found]
    if len(explained) == 1 and explained[0] is not None and explained[0].state in ENDED_BY_HAND:
        explained = [(yield from ended_by(explained[0]))]
    return explained


def _told_held(found: list[Found | None]) -> Plan[list[Found | None]]:
    """The same, with those as held that are parked because their topic is paused or limited."""
    parked = [one for one in found if one is not None and one.state == State.PARKED and one.record is not None]
    if not parked:
        return found
    asked = [
        commands.is_held(queue_keys(one.queue), one.record.topic, one.id, one.record.generation)
        for one in parked
        if one.record is not None
    ]
    held = {one.id for one, yes in zip(parked, all_good((yield asked)), strict=True) if yes}
    return [
        msgspec.structs.replace(one, state=State.HELD) if one is not None and one.id in held else one for one in found
    ]


def look(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """What is known of each id."""

    def ask(keys: QueueKeys, some: list[str], _given: list[str]) -> Command[list[Found | None]]:
        return commands.get(keys, some, retention=context.retention)

    found: dict[str, Found | StoreError | None] = yield from by_asked_id(
        context, ids, ask, _is_elsewhere, lambda one: one is None
    )
    return found


def look_for_whole(context: Context, ids: Sequence[str]) -> Plan[dict[str, Found | StoreError | None]]:
    """The same, of many ids that are whole: one that is not there costs nothing more."""

    def ask(keys: QueueKeys, some: list[str]) -> Command[list[Found | None]]:
        return commands.get(keys, some, retention=context.retention)

    found: dict[str, Found | StoreError | None] = yield from by_id(context, ids, ask, _is_elsewhere)
    return found


def _is_elsewhere(one: Found | None) -> bool:
    return one is not None and one.state == MOVED


def find(context: Context, key: str) -> Plan[list[Found]]:
    """The messages that carry a business key and have not ended, by due; at most 1,000 of each queue."""
    check_key(key, context.limits, "key")
    ids: list[str] = []
    told: Counter[int] = Counter()
    pages = yield from every_queue(context, lambda keys: commands.find_by_key(keys, key, FIND_LIMIT))
    while pages:  # more than once only where many that carry the key have ended
        ids += (id for page in pages.values() for id in page)
        told.update({queue: len(page) for queue, page in pages.items()})
        behind = {queue: page.behind for queue, page in pages.items() if page.behind and told[queue] < FIND_LIMIT}
        asked = [
            commands.find_by_key(queue_keys(queue), key, FIND_LIMIT - told[queue], id) for queue, id in behind.items()
        ]
        pages = dict(zip(behind, all_good((yield asked)), strict=True)) if asked else {}
    ids.sort()
    found = [one for one in (yield from get(context, ids)) if one is not None and one.record is not None]
    return sorted(found, key=lambda one: (one.due if one.due is not None else MAX_DUE, one.id))


def count(context: Context, key: str) -> Plan[int]:
    """How many messages carry a reserved key; raises StoreError."""
    return sum((yield from every_queue(context, lambda keys: commands.count_key(keys, key))).values())


def stats(context: Context) -> Plan[list[QueueStats]]:
    """The figures of every queue, in order, with the names of parked sets of routes only: of topics there may be many."""
    return list((yield from every_queue(context, partial(commands.stats, most_held=0))).values())


def redrive(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None
) -> Plan[list[str | StoreError]]:
    """Put dead letters back, due now: 'scheduled', 'not_dead', 'no_route' or 'corrupt' of each, in order.

    One whose topic no route takes any more stays a dead letter.
    """
    entry = entry_of(by, "redrive", context.retention)
    for id in ids:
        check_id(id)
    refused: set[str] = set()
    if context.routes.outdated:
        yield from learn_routes(context.routes)
    if context.routes.refuses_some:
        refused = yield from _without_route(context, ids, topics)

    def ask(keys: QueueKeys, some: list[str], given: list[str]) -> Command[list[str]]:
        return commands.redrive(keys, some, topics=_seen(topics, given), entry=entry, changed=changed_by(by))

    wanted = [id for id in ids if id not in refused]
    results = yield from by_asked_id(context, wanted, ask, _moved, lambda answer: answer == "not_dead")
    return ["no_route" if id in refused else results[id] for id in ids]


def _without_route(context: Context, ids: Sequence[str], topics: Topics | None) -> Plan[set[str]]:
    """Those whose topic no route takes."""
    refused: set[str] = set()
    for id, one in (yield from _look_by_steps(context, ids)).items():
        topic = _topic_of(one)  # None: the script says so
        if topic is None or not isinstance(one, Found) or one.state != State.DEAD:
            continue
        if context.routes.refuses(topic) and (topics is None or topics[id] == topic):
            refused.add(id)
    return refused


def discard(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None
) -> Plan[list[str | StoreError]]:
    """Delete dead letters for good: 'discarded' (now, or before), or 'not_dead' of each, in order."""
    entry = entry_of(by, "discard", context.retention)
    for id in ids:
        check_id(id)

    def ask(keys: QueueKeys, some: list[str], given: list[str]) -> Command[list[bool | None]]:
        return commands.discard(
            keys, some, topics=_seen(topics, given), entry=entry, changed=changed_by(by), retention=context.retention
        )

    results = yield from by_asked_id(context, ids, ask, lambda removed: removed is None, lambda removed: not removed)
    return [
        result if isinstance(result := results[id], StoreError) else "discarded" if result else "not_dead" for id in ids
    ]


def nodes(_context: Context) -> Plan[dict[str, NodeLine]]:
    """The nodes by name, as their lines tell of them."""
    lines, now = all_good((yield [commands.nodes(), commands.redis_now()]))
    return read_nodes(lines, now)


def agreement(queues: int, routes: KnownRoutes) -> Plan[tuple[Meta, Mapping[str, str]]]:
    """The layouts, which the first process writes with so many queues, and the policies; raises StoreError.

    `routes` learns the tables of the live workers on the same trip.
    """
    meta, policies, *lines = yield [
        commands.layout(queues),
        commands.policies(),
        commands.nodes(),
        commands.redis_now(),
    ]
    all_good([meta, policies])
    _take_routes(routes, lines)
    return meta, policies


def learn_routes(routes: KnownRoutes) -> Plan[None]:
    """Read the tables of the live workers. If that fails, no table decides: what was to be done goes on without."""
    _take_routes(routes, (yield [commands.nodes(), commands.redis_now()]))


def _take_routes(routes: KnownRoutes, answers: list[Any]) -> None:
    lines, now = answers
    if isinstance(lines, StoreError) or isinstance(now, StoreError):
        routes.forget()
    else:
        routes.take(read_nodes(lines, now).values())


def durability(settings: Settings) -> Plan[Durability | None]:
    """Where a change has to be before it is answered (None: nothing to wait for).

    Raises ConfigError for a server that would lose messages, or that cannot keep DELAYQ_FSYNC=always.
    """
    server = checks.told((yield checks.questions(settings.fsync, min_replicas=settings.min_replicas)))
    checks.refuse(server, settings.accept)
    fsync = settings.fsync == "always"
    if fsync:
        checks.refuse_fsync(server)
    if not settings.min_replicas and not fsync:
        return None
    return Durability(replicas=settings.min_replicas, fsync=fsync, timeout=settings.redis_timeout)


class RouteState(msgspec.Struct, frozen=True, kw_only=True):
    """A route, as the live workers' lines tell of it. Times are Unix ms by the clock of Redis.

    Each worker has a circuit of its own: `open_at` are those where it is open, `since` the first of them, `next_probe`
    the next of them, `reason` that of the first. `target` is its kind and hosts, '' if no live worker has the route.
    `parked` are messages that are set aside for the target; what waits behind a crowded ordering key is not among them.
    """

    name: str
    target: str
    parked: int
    open_at: tuple[str, ...] = ()
    reason: str | None = None
    since: int | None = None
    next_probe: int | None = None

    @property
    def circuit(self) -> str | None:
        """'open' or 'closed'; None if no live worker has the route."""
        return "open" if self.open_at else "closed" if self.target else None


def routes(context: Context) -> Plan[list[RouteState]]:
    """The routes in the order of the workers' tables; then those that only parked messages know, by name."""
    lines = yield from nodes(context)
    return (yield from route_states(lines, (yield from stats(context))))


def route_states(lines: Mapping[str, NodeLine], queues: Iterable[QueueStats]) -> Plan[list[RouteState]]:
    """The same, of lines and figures that were read already."""
    live = [line for line in lines.values() if not line.stale]
    sets = [
        (one.queue, name)
        for one in queues
        for name in one.parked_sets
        if ParkedSet.is_of_route(name) and name != ParkedSet.NO_ROUTE
    ]
    parked = dict.fromkeys((one.name for line in live for one in line.routes), 0)
    counts = all_good((yield [commands.count_parked(queue_keys(queue), name) for queue, name in sets])) if sets else []
    for (_, name), count in sorted(zip(sets, counts, strict=True)):
        route = ParkedSet.route(name) or ""
        parked[route] = parked.get(route, 0) + count
    return [_state(name, count, live) for name, count in parked.items()]


def _state(name: str, parked: int, live: Iterable[NodeLine]) -> RouteState:
    told = [(line.node, one) for line in live for one in line.routes if one.name == name]
    target = told[0][1].target if told else ""
    broken = sorted((one.circuit.since, node, one.circuit) for node, one in told if one.circuit is not None)
    if not broken:
        return RouteState(name=name, target=target, parked=parked)
    since, _, first = broken[0]
    return RouteState(
        name=name,
        target=target,
        parked=parked,
        open_at=tuple(sorted(node for _, node, _ in broken)),
        reason=first.reason,
        since=since,
        next_probe=min(circuit.probe for _, _, circuit in broken),
    )
