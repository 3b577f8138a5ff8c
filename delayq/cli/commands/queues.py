"""queues, nodes, routes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from delayq.answers.service import NodeOut, RouteOut, nodes_out, queues_out, routes_out
from delayq.cli.options import AsJson, RedisUrl, Verbose, connect
from delayq.local_time import shown
from delayq.nodes import ranges
from delayq.terminal import Output, say

__all__ = ["nodes", "queues", "routes"]


def queues(verbose: Verbose = False, redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print each queue's figures and its owner."""
    with connect(redis_url) as client:
        answer = queues_out(client.queues(), client.nodes())
    if json:
        Output().json(answer)
    else:
        more = ("epoch",) if verbose else ()
        cells = attrgetter("queue", "depth", "due", "head_lateness", "parked", "dead", "owner", *more)
        Output().table(
            ("queue", "depth", "due", "late ms", "parked", "dead", "owner", *more), map(cells, answer.queues)
        )
    return 0


def nodes(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the nodes, and which queues each of them owns."""
    with connect(redis_url) as client:
        answer = nodes_out(client.nodes())
    if json:
        Output().json(answer)
    elif answer.nodes:
        columns = ("node", "state", "queues", "address", "version", "coordinator", "since", "seen", "handed over")
        Output().table(columns, map(_node_row, answer.nodes))
    else:
        say("there are no nodes: start a worker (python -m workers).")
    return 0


def _node_row(node: NodeOut) -> Sequence[object]:
    state, queues = "stale" if node.stale else "live", ranges([one.queue for one in node.queues])
    told = node.address, node.version, node.coordinator, *map(shown, (node.since, node.seen, node.handed_over))
    return node.node, state, queues, *told


def routes(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the routes: their circuits as live workers tell of them, and how much is parked for each."""
    with connect(redis_url) as client:
        answer = routes_out(client.routes())
    if json:
        Output().json(answer)
    elif answer.routes:
        columns = ("name", "circuit", "parked", "target", "since", "next probe", "open at", "reason")
        Output().table(columns, map(_route_row, answer.routes))
    else:
        say("there are no routes: no worker runs that tells of them (python -m workers).")
    return 0


def _route_row(route: RouteOut) -> Sequence[object]:
    open_at = ",".join(route.open_at) or None
    probe = shown(route.since), shown(route.next_probe_time), open_at, route.reason or None
    return route.name, route.circuit, route.parked, route.target, *probe
