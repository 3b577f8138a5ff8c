"""Plans that read the figures of queues, nodes and routes; the state of a route is what live workers report in their lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from delayq.client.plan import Context, Plan, every_queue
from delayq.nodes import NodeLine, read_nodes
from delayq.store import commands
from delayq.store.commands import QueueStats
from delayq.store.connect.exchange import all_good
from delayq.store.keys import ParkedSet, queue_keys

__all__ = [
    "RouteState",
    "nodes",
    "route_states",
    "routes",
    "stats",
]


def stats(context: Context) -> Plan[list[QueueStats]]:
    """The figures of every queue, in order, with the names of parked sets of routes only: of topics there may be many."""
    return list((yield from every_queue(context, partial(commands.stats, most_held=0))).values())


def nodes(_context: Context) -> Plan[dict[str, NodeLine]]:
    """The nodes by name, as their lines tell of them."""
    lines, now = all_good((yield [commands.nodes(), commands.redis_now()]))
    return read_nodes(lines, now)


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
