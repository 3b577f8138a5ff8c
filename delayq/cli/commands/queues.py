"""stats, queues, nodes, routes."""

from __future__ import annotations

from delayq.cli.options import AsJson, RedisUrl, connect
from delayq.nodes import owners_of, ranges
from delayq.text.output import Output, say
from delayq.text.shapes import Shape, node_shape, queue_shape, route_shape, stats_shape

__all__ = ["nodes", "queues", "routes", "stats"]


def stats(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the figures of all queues together."""
    with connect(redis_url) as client:
        shape = stats_shape(client.stats())
    if json:
        Output().json(shape)
        return 0
    counters = shape.pop("counters")
    Output().fields((name, str(value)) for name, value in (shape | counters).items())
    return 0


def queues(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print each queue's figures and its owner."""
    with connect(redis_url) as client:
        every = client.stats()
        owners = owners_of(client.nodes().values(), {one.queue: one.epoch for one in every})
    shapes = [queue_shape(one, owners.get(one.queue)) for one in every]
    if json:
        Output().json({"queues": shapes})
        return 0
    # Lateness in ms; what a queue does not have is '-'.
    names = ("queue", "depth", "due", "headLateness", "parked", "dead", "owner", "epoch")
    rows = (["-" if one[name] is None else str(one[name]) for name in names] for one in shapes)
    Output().table(("queue", "depth", "due", "late ms", "parked", "dead", "owner", "epoch"), rows)
    return 0


def nodes(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the nodes, and which queues each of them owns."""
    with connect(redis_url) as client:
        shapes = [node_shape(line) for line in client.nodes().values()]
    if json:
        Output().json({"nodes": shapes})
    elif shapes:
        columns = ("node", "state", "queues", "address", "version", "coordinator", "since", "seen", "handed over")
        Output().table(columns, map(_node_row, shapes))
    else:
        say("there are no nodes: start a worker (python -m workers).")
    return 0


def _node_row(shape: Shape) -> list[str]:
    names = ("address", "version", "coordinator", "since", "seen", "handedOver")
    queues = ranges([one["queue"] for one in shape["queues"]])
    return [shape["node"], "stale" if shape["stale"] else "live", queues, *(shape[name] or "-" for name in names)]


def routes(redis_url: RedisUrl = None, json: AsJson = False) -> int:
    """Print the routes: their circuits as live workers tell of them, and how much is parked for each."""
    with connect(redis_url) as client:
        shapes = [route_shape(route) for route in client.routes()]
    if json:
        Output().json({"routes": shapes})
    elif shapes:
        columns = ("name", "circuit", "parked", "target", "since", "next probe", "open at", "reason")
        Output().table(columns, map(_route_row, shapes))
    else:
        say("there are no routes: no worker runs that tells of them (python -m workers).")
    return 0


def _route_row(shape: Shape) -> list[str]:
    cells = (shape["target"], shape["since"], shape["nextProbeTime"], ",".join(shape["openAt"]), shape["reason"])
    return [shape["name"], shape["circuit"] or "-", str(shape["parked"]), *(cell or "-" for cell in cells)]
