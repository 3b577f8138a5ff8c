"""What concerns all queues: the layout, the era, the nodes, the time."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.store.commands.command import Command, plain
from delayq.store.keys import META, NODES

__all__ = [
    "LAYOUT_VERSION", "Meta", "bump_era", "era", "forget_node", "layout", "nodes", "publish_node", "redis_now",
]  # fmt: skip

LAYOUT_VERSION: Final = "1"


class Meta(msgspec.Struct, frozen=True):
    """What all processes agree on: the number of queues, the version of the layout, the era of the epochs."""

    queues: int
    version: str
    era: int


def layout(queues: int) -> Command[Meta]:
    """Agree on the layout; the first process writes it."""
    return Command(
        "layout",
        (META,),
        (queues, LAYOUT_VERSION),
        lambda reply: Meta(int(reply[0]), reply[1].decode(), int(reply[2])),
    )


def era() -> Command[int]:
    """The era of new epochs; 0 in a Redis that nobody has used yet."""
    return plain("HGET", META, "era", read=lambda reply: int(reply or 0))


def bump_era(latest: int) -> Command[tuple[int, int]]:
    """Begin a new era, later than `latest`, the one that the queues' epochs are of: (the era before, the era now).

    Doing it again makes it later still, which is harmless.
    """
    return Command("bump_era", (META,), (latest,), lambda reply: (int(reply[0]), int(reply[1])))


def redis_now() -> Command[int]:
    """The time of Redis, Unix ms."""
    return plain("TIME", read=lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def publish_node(name: str, line: bytes) -> Command[None]:
    """Write a node's line, which API and CLI read."""
    return plain("HSET", NODES, name, line, read=lambda _: None)


def forget_node(name: str) -> Command[None]:
    """Remove a node's line."""
    return plain("HDEL", NODES, name, read=lambda _: None)


def nodes() -> Command[dict[str, bytes]]:
    """The nodes' lines, as they were written; `delayq.nodes` reads them."""

    def read(reply: Any) -> dict[str, bytes]:
        pairs = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))
        return {name.decode(errors="replace"): line for name, line in pairs}

    return plain("HGETALL", NODES, read=read)
