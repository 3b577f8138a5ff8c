"""How routes are: what live workers say of them in their lines, and how much is parked for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate

import msgspec

from delayq.client.placement import every_queue
from delayq.client.plan import Context, Plan
from delayq.message import State
from delayq.nodes import NodeLine, RouteLine, read_nodes
from delayq.store import commands
from delayq.store.commands import Found
from delayq.store.connect.exchange import all_good
from delayq.store.keys import queue_keys

__all__ = ["RouteState", "explain_parked", "routes"]

OF_ROUTE = "t:"
NO_ROUTE = "*"
WAITS = "its target has no room for it yet, or messages of its ordering key go first"


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
    lines, now = all_good((yield [commands.nodes(), commands.redis_now()]))
    live = [line for line in read_nodes(lines, now).values() if not line.stale]
    queues = yield from every_queue(context, commands.stats)
    sets = [
        (queue, name)
        for queue, stats in queues.items()
        for name in stats.parked_sets
        if name.startswith(OF_ROUTE) and name != OF_ROUTE + NO_ROUTE
    ]
    parked = dict.fromkeys((one.name for line in live for one in line.routes), 0)
    counts = all_good((yield [commands.count_parked(queue_keys(queue), name) for queue, name in sets])) if sets else []
    for (_, name), count in sorted(zip(sets, counts, strict=True)):
        route = name.removeprefix(OF_ROUTE)
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


def explain_parked(found: Iterable[Found | None]) -> Plan[dict[str, Found]]:
    """Those that are parked, by id, with the reason and when their target is probed next, as their owner says."""
    parked = [one for one in found if one is not None and one.state == State.PARKED]
    if not parked:
        return {}
    lines, now = all_good((yield [commands.nodes(), commands.redis_now()]))
    nodes = read_nodes(lines, now)
    return {one.id: _explained(one, nodes) for one in parked}


def _explained(one: Found, nodes: Mapping[str, NodeLine]) -> Found:
    owners = [line for line in nodes.values() if not line.stale and one.queue in line.queues]
    if not owners:
        return msgspec.structs.replace(one, reason="no live worker says that it owns its queue")
    owner = max(owners, key=lambda line: line.queues[one.queue].epoch)
    if not owner.routes or one.record is None:  # an older worker
        return one
    route = _route_of(one.record.topic, owner.routes)
    if route is None:
        return msgspec.structs.replace(one, reason=f"no route of {owner.node} takes its topic")
    if route.circuit is None:
        return msgspec.structs.replace(one, reason=WAITS)
    reason = f"the circuit of route {route.name} is open: {route.circuit.reason}"
    return msgspec.structs.replace(one, reason=reason, next_probe=route.circuit.probe)


def _route_of(topic: str, table: Iterable[RouteLine]) -> RouteLine | None:
    return next((route for route in table if re.match(translate(route.match), topic)), None)
