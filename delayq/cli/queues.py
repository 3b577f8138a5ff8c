"""stats, queues, version."""

from __future__ import annotations

from importlib.metadata import version as version_of

from delayq.cli.options import AsJson, RedisUrl, connect
from delayq.cli.output import Output
from delayq.cli.shapes import queue_shape, stats_shape
from delayq.doctor import owners_of

__all__ = ["queues", "stats", "version"]


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
        owners = owners_of(client.nodes(), max(one.now for one in every))
    shapes = [queue_shape(number, one, owners.get(number)) for number, one in enumerate(every)]
    if json:
        Output().json({"queues": shapes})
        return 0
    # Lateness in ms; what a queue does not have is '-'.
    names = ("queue", "depth", "due", "headLateness", "parked", "dead", "owner", "epoch")
    rows = (["-" if one[name] is None else str(one[name]) for name in names] for one in shapes)
    Output().table(("queue", "depth", "due", "late ms", "parked", "dead", "owner", "epoch"), rows)
    return 0


def version(json: AsJson = False) -> int:
    """Print the version of delayq."""
    number = version_of("delayq")
    if json:
        Output().json({"version": number})
    else:
        Output().line(f"delayq {number}")
    return 0
