"""The commands queues, nodes and routes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from delayq.answers.service import NodeOut, RouteOut, nodes_out, queues_out, routes_out
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.cli.options import ApiUrl, AsJson, RedisUrl, Verbose, connect_any
from delayq.domain.nodes import ranges


def queues(verbose: Verbose = False, redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the figures and the owner of each queue."""
    with connect_any(redis_url, api) as client:
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


def nodes(redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the nodes, and the queues that each of them owns."""
    with connect_any(redis_url, api) as client:
        answer = nodes_out(client.nodes())
    if json:
        Output().json(answer)
    elif answer.nodes:
        columns = ("node", "state", "queues", "address", "version", "coordinator", "since", "seen", "handed over")
        Output().table(columns, map(_node_row, answer.nodes))
    else:
        say("no nodes are running; start a worker with python -m workers.")
    return 0


def _node_row(node: NodeOut) -> Sequence[object]:
    state, queues = "stale" if node.stale else "live", ranges([one.queue for one in node.queues])
    told = node.address, node.version, node.coordinator, *map(shown, (node.since, node.seen, node.handed_over))
    return node.node, state, queues, *told


def routes(redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the routes, their circuits and parked messages."""
    with connect_any(redis_url, api) as client:
        answer = routes_out(client.routes())
    if json:
        Output().json(answer)
    elif answer.routes:
        columns = ("name", "circuit", "parked", "target", "since", "next probe", "open at", "reason")
        Output().table(columns, map(_route_row, answer.routes))
    else:
        say("no live worker reports routes; start one with python -m workers.")
    return 0


def _route_row(route: RouteOut) -> Sequence[object]:
    open_at = ",".join(route.open_at) or None
    probe = shown(route.since), shown(route.next_probe_time), open_at, route.reason or None
    return route.name, route.circuit, route.parked, route.target, *probe
