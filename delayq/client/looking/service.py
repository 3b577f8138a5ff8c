"""Plans that read the figures of queues, nodes and routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.nodes import NodeLine, read_nodes
from delayq.store import commands
from delayq.store.commands import QueueStats
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys, ParkedSet


def queues(context: Context) -> Plan[list[QueueStats]]:
    """Read the figures of every queue, in order, without the names of held topics, which may be many."""
    return list((yield from every_queue(context, partial(commands.stats, most_held=0))).values())


def nodes(context: Context) -> Plan[dict[str, NodeLine]]:
    """Read the nodes by name, with what each last reported."""
    lines, now = all_good((yield [commands.nodes(context.keys), commands.redis_now()]))
    return read_nodes(lines, now)


class NodeDeliveries(msgspec.Struct, frozen=True):
    """The number of messages that a live node has delivered by a route since its start; None: it is not reported.

    The times are Unix ms: `since` is the start by the node's clock, and `seen` is its report by the clock of Redis.
    """

    node: str
    since: int | None
    seen: int
    delivered: int | None


class RouteState(msgspec.Struct, frozen=True, kw_only=True):
    """A route as live workers report it. Times are Unix ms by the clock of Redis.

    Each worker has its own circuit: `open_at` names the workers whose circuit is open. `since` and `reason` are those
    of the circuit that opened first, and `next_probe` is the earliest next probe. `target` is the kind and the hosts of
    the target, or '' if no live worker has the route. `parked` counts the messages that wait for the target, not those
    that wait for their ordering key. `delivered_by` has the deliveries of each live node.
    """

    name: str
    target: str
    parked: int
    open_at: tuple[str, ...] = ()
    reason: str | None = None
    since: int | None = None
    next_probe: int | None = None
    delivered_by: tuple[NodeDeliveries, ...] = ()

    @property
    def delivered(self) -> int | None:
        """The messages that the live nodes have delivered; None if a node does not report it, or no node is live."""
        counts = [one.delivered for one in self.delivered_by if one.delivered is not None]
        return sum(counts) if counts and len(counts) == len(self.delivered_by) else None

    @property
    def circuit(self) -> str | None:
        """'open' or 'closed'; None if no live worker has the route."""
        return "open" if self.open_at else "closed" if self.target else None


def routes(context: Context) -> Plan[list[RouteState]]:
    """Read the routes in the order of the workers' tables, then routes that only parked messages name, by name."""
    lines = yield from nodes(context)
    return (yield from route_states(context.keys, lines, (yield from queues(context))))


def route_states(keys: Keys, lines: Mapping[str, NodeLine], queues: Iterable[QueueStats]) -> Plan[list[RouteState]]:
    """Read the routes of nodes and queues that were read before."""
    live = [line for line in lines.values() if not line.stale]
    sets = [
        (one.queue, name)
        for one in queues
        for name in one.parked_sets
        if ParkedSet.is_of_route(name) and name != ParkedSet.NO_ROUTE
    ]
    parked = dict.fromkeys((one.name for line in live for one in line.routes), 0)
    counts = all_good((yield [commands.count_parked(keys.queue(queue), name) for queue, name in sets])) if sets else []
    for (_, name), count in sorted(zip(sets, counts, strict=True)):
        route = ParkedSet.route(name) or ""
        parked[route] = parked.get(route, 0) + count
    return [_state(name, count, live) for name, count in parked.items()]


def _state(name: str, parked: int, live: Iterable[NodeLine]) -> RouteState:
    reports = [(line, one) for line in live for one in line.routes if one.name == name]
    delivered = tuple(NodeDeliveries(line.node, line.since, line.seen, one.delivered) for line, one in reports)
    target = reports[0][1].target if reports else ""
    broken = sorted((one.circuit.since, line.node, one.circuit) for line, one in reports if one.circuit is not None)
    if not broken:
        return RouteState(name=name, target=target, parked=parked, delivered_by=delivered)
    since, _, first = broken[0]
    return RouteState(
        name=name,
        target=target,
        parked=parked,
        open_at=tuple(sorted(node for _, node, _ in broken)),
        reason=first.reason,
        since=since,
        next_probe=min(circuit.probe for _, _, circuit in broken),
        delivered_by=delivered,
    )
