"""Plans that read topics: what applies to them, and which nodes may still deliver messages of a paused one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from delayq.client.known_routes import name_of_route
from delayq.client.looking.counting import taken_now_or_before
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.message import check_topic
from delayq.domain.nodes import LINE_AGE, NodeLine, read_nodes
from delayq.domain.patterns import check_pattern, compiled, is_pattern
from delayq.domain.policies import Bucket, Limit, Pause, Policies, Policy
from delayq.store import commands
from delayq.store.commands import HELD_AT_ONCE, REST, Census
from delayq.store.connect.exchange import all_good
from delayq.store.keys import ParkedSet

#: ms after its longest send from which a silent worker has given up all sends: it starts none once its record is old.
GIVEN_UP: Final = LINE_AGE + 1_000
#: The longest send (ms) of an older worker that does not publish its own.
LONGEST_SEND: Final = 30_000
#: The name under which nodes report topics that they do not name.
OTHERS: Final = "*"


class Arriving(msgspec.Struct, frozen=True):
    """A node, and the number of paused messages that it may still deliver; None until it has confirmed the pause."""

    node: str
    in_flight: int | None


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """A topic with its route, policy, pause and limit; `held` is the highest possible number of held messages.

    `bucket` is the token bucket of a topic with a rate limit, and `limit` is the reason if a resume has set the rate.
    `granted_last_second` is the number of permits that workers got in the last whole second; they ask ahead of their
    sends. `counts` are its messages by state at `as_of` (Unix ms): now if there are few messages, else at the last
    census. It is None before the first census. `arriving` are the nodes that may still deliver messages of a paused
    topic.
    """

    topic: str
    route: str | None
    pause: Pause | None
    policy: Policy | None
    bucket: Bucket | None
    held: int
    counts: dict[str, int] | None
    as_of: int | None
    limit: Limit | None = None
    granted_last_second: int | None = None
    arriving: tuple[Arriving, ...] = ()


def nodes_arriving(lines: Mapping[str, bytes], now: int, match: str, version: str) -> Iterable[Arriving]:
    """The nodes that may still deliver messages of topics that have been paused since this version."""
    pattern = compiled(match)
    for line in read_nodes(lines, now).values():
        longest = line.longest_send
        if longest is None:
            longest = max((route.send_timeout or 0 for route in line.routes), default=0) or LONGEST_SEND
        if now - line.seen >= GIVEN_UP + longest:
            continue  # if it has only stalled, it abandons all sends when it continues, and pulls again
        if line.policies is None or line.policies < version:
            yield Arriving(line.node, None)
        elif count := sum(count for topic, count in line.held.items() if topic == OTHERS or pattern.match(topic)):
            yield Arriving(line.node, count)


def read_policies(context: Context) -> Plan[Policies]:
    """Read all policies, pauses and limits."""
    (fields,) = all_good((yield [commands.policies(context.keys)]))
    return Policies.read(fields)


def arriving(context: Context, match: str) -> Plan[list[Arriving] | None]:
    """Read the nodes that may still deliver messages paused by exactly this pattern; None without such a pause."""
    fields, lines, now = all_good(
        (yield [commands.policies(context.keys), commands.nodes(context.keys), commands.redis_now()])
    )
    stand = Policies.read(fields)
    return list(nodes_arriving(lines, now, match, stand.version)) if match in stand.pauses else None


def topic(context: Context, name: str, *, live: bool = True) -> Plan[TopicState]:
    """Read a topic; `live` as in `taken_now_or_before`."""
    check_topic(name)
    fields, lines, now = all_good(
        (yield [commands.policies(context.keys), commands.nodes(context.keys), commands.redis_now()])
    )
    stand = Policies.read(fields)
    queues = yield from every_queue(context, partial(commands.stats, most_held=0))
    sets = [commands.count_parked(context.keys.queue(queue), ParkedSet.of_topic(name)) for queue in queues]
    held = {name: sum(all_good((yield sets)))}
    known = yield from taken_now_or_before(context.keys, queues, name, live=live)
    state = _state(stand, name, _route_name(context, read_nodes(lines, now), name), held, known, now)
    if state.bucket is not None:
        spent, now = all_good((yield [commands.spent(context.keys, state.bucket.name), commands.redis_now()]))
        state = msgspec.structs.replace(state, granted_last_second=spent.last_second(now))
    if state.pause is not None:
        state = msgspec.structs.replace(state, arriving=tuple(nodes_arriving(lines, now, name, stand.version)))
    return state


def topics(
    context: Context, match: str = "*", paused: bool | None = None, *, live: bool = True
) -> Plan[list[TopicState]]:
    """Read the topics that have messages or held messages, or that a pause or a policy names, sorted by name.

    `match` is a pattern, and `paused` selects paused topics or the others.
    """
    fits = compiled(check_pattern(match)).match
    fields, lines, now = all_good(
        (yield [commands.policies(context.keys), commands.nodes(context.keys), commands.redis_now()])
    )
    stand, nodes = Policies.read(fields), read_nodes(lines, now)
    queues = yield from every_queue(context, partial(commands.stats, most_held=0))
    held = yield from held_of(context, match)
    known = yield from taken_now_or_before(context.keys, queues, live=live)
    named = [one.match for one in (*stand.pauses.values(), *stand.policies.values(), *stand.limits.values())]
    names = {*held, *(one for one in named if not is_pattern(one))}
    names.update(topic for one in known or () for topic in one.topics if topic != REST)
    return [
        _state(stand, name, _route_name(context, nodes, name), held, known, now)
        for name in sorted(names)
        if fits(name) and paused in (None, stand.pause(name) is not None)
    ]


def _route_name(context: Context, nodes: Mapping[str, NodeLine], topic: str) -> str | None:
    return name_of_route(topic, nodes.values(), context.routes.own)


def _state(
    stand: Policies, topic: str, route: str | None, held: Mapping[str, int], known: Sequence[Census] | None, now: int
) -> TopicState:
    counts: Counter[str] = Counter()
    for one in known or ():
        if topic not in one.topics and REST in one.topics:  # the census may have counted it among the rest
            known = None
            break
        for state, tally in one.topics.get(topic, {}).items():
            counts[state] += tally.messages
    bucket, limit = stand.bucket(topic), stand.limit(topic)
    return TopicState(
        topic=topic,
        route=route,
        pause=stand.pause(topic),
        policy=stand.policy(topic),
        bucket=bucket,
        limit=limit if limit is not None and limit.bucket == bucket else None,
        held=held.get(topic, 0),
        counts=None if known is None else dict(sorted(counts.items())),
        as_of=None if known is None else min((one.began for one in known), default=now),
    )


def held_of(context: Context, match: str) -> Plan[Counter[str]]:
    """Count the held messages of the topics that a pattern covers, by topic, including tickets of cancelled messages.

    Redis executes a packet without a break. So a packet looks at `HELD_AT_ONCE` topics at most, however many are paused.
    """
    look = HELD_AT_ONCE // max(1, len(context.layouts.queues))
    first = partial(commands.held_topics, cursor="0", match=match, look=max(1, look))
    pages = yield from every_queue(context, first)
    counts: dict[int, dict[str, int]] = {queue: {} for queue in pages}
    while pages:
        for queue, page in pages.items():
            counts[queue].update(page.counts)
        left = [queue for queue, page in pages.items() if page.cursor != "0"]
        look = max(1, HELD_AT_ONCE // max(1, len(left)))
        asked = [commands.held_topics(context.keys.queue(queue), pages[queue].cursor, match, look) for queue in left]
        pages = dict(zip(left, all_good((yield asked)), strict=True)) if asked else {}
    found: Counter[str] = Counter()
    for one in counts.values():
        found.update(one)
    return found
