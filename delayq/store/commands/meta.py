"""The facts of all queues: the layouts, the era, the nodes, the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.store.commands.command import RETENTION, Command, Now, Retention, by_name, every, number, plain
from delayq.store.keys import Keys, Layout, QueueKeys, read_layouts, write_layouts

__all__ = [
    "LAYOUT_VERSION",
    "Glance",
    "Meta",
    "advance",
    "advanced",
    "bump_era",
    "close",
    "era",
    "followed",
    "followers",
    "forget_node",
    "forget_silent",
    "glance",
    "is_drained",
    "layout",
    "layouts",
    "meta",
    "nodes",
    "publish_node",
    "redis_now",
    "rewrite",
    "rewritten",
    "set_layouts",
    "tell_rewritten",
]

LAYOUT_VERSION: Final = "3"


class Meta(msgspec.Struct, frozen=True):
    """The facts that all processes share: the layouts, oldest first, their version, the era of the epochs.

    `advanced` is the ms that a development server is ahead of its machine's clock, and None for every other server.
    """

    layouts: tuple[Layout, ...]
    version: str
    era: int
    advanced: int | None = None

    @property
    def queues(self) -> int:
        """The number of queues of the newest layout."""
        return self.layouts[-1].queues


def layout(keys: Keys, queues: int) -> Command[Meta]:
    """Agree on the layouts; the first process writes the first one."""
    return Command("layout", (keys.meta,), (queues, LAYOUT_VERSION), _read_meta)


def meta(keys: Keys) -> Command[Meta | None]:
    """Read the shared facts without writing; None in an unused Redis."""
    fields = "layouts", "version", "era", "advanced"
    return plain("HMGET", keys.meta, *fields, read=lambda reply: _read_meta(reply) if reply[0] else None)


def _read_meta(reply: Any) -> Meta:
    layouts, version, era, advanced = reply
    ahead = None if advanced is None else int(advanced)
    return Meta(read_layouts(layouts.decode()), (version or b"").decode(), int(era or 0), ahead)


def layouts(keys: Keys) -> Command[tuple[Layout, ...]]:
    """Read the current list of layouts; empty in an unused Redis."""
    return plain("HGET", keys.meta, "layouts", read=lambda reply: read_layouts((reply or b"").decode()))


class Glance(msgspec.Struct, frozen=True):
    """Read the time of Redis (Unix ms), the list of layouts, and the version of the policies ('' = none was ever set)."""

    now: int
    layouts: tuple[Layout, ...]
    policies: str


def glance(keys: Keys, *, now: Now = "") -> Command[Glance]:
    """The facts that a worker reads repeatedly."""
    return Command(
        "glance",
        (keys.meta, keys.policies),
        (now,),
        lambda reply: Glance(int(reply[0]), read_layouts(reply[1].decode()), reply[2].decode()),
    )


def set_layouts(
    keys: Keys, before: Sequence[Layout], after: Sequence[Layout], *, entry: str = ""
) -> Command[tuple[Layout, ...]]:
    """List other layouts, if the list is still the given one. Return the current list."""
    return Command(
        "set_layouts",
        (keys.meta, keys.audit),
        (write_layouts(before), write_layouts(after), entry),
        lambda reply: read_layouts((reply or b"").decode()),
    )


def close(keys: QueueKeys, *, entry: str = "") -> Command[bool]:
    """Close a queue permanently to new messages. Return whether it was open."""
    return Command("close", (keys.state, keys.audit), (entry,), bool)


def is_drained(keys: QueueKeys, *, now: Now = "", retention: Retention = RETENTION) -> Command[bool]:
    """Return whether a closed queue is empty and remembers no ids. Ids that ended before the window are forgotten."""
    return Command(
        "is_drained",
        (keys.state, keys.queue, keys.pool, keys.final, keys.dead, keys.index, keys.ended, keys.moves),
        (now, retention.window),
        bool,
    )


def era(keys: Keys) -> Command[int]:
    """Read the era of new epochs; 0 in an unused Redis."""
    return plain("HGET", keys.meta, "era", read=lambda reply: int(reply or 0))


def bump_era(keys: Keys, latest: int, *, entry: str = "") -> Command[tuple[int, int]]:
    """Begin a new era, later than `latest`, the era of the queues' epochs. Return the eras before and after.

    A repeat begins a still later one, which is harmless.
    """
    return Command("bump_era", (keys.meta, keys.audit), (latest, entry), lambda reply: (int(reply[0]), int(reply[1])))


def redis_now() -> Command[int]:
    """Read the time of Redis, Unix ms."""
    return plain("TIME", read=lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def advance(keys: Keys, advanced: int) -> Command[int | None]:
    """Set the ms that the time of a development server is ahead of the machine's clock. Return the current ms.

    None if the server is not a development server: nothing was done.
    """
    return Command(
        "advance", (keys.meta,), (advanced, keys.advanced), lambda reply: None if reply is None else int(reply)
    )


def advanced(keys: Keys) -> Command[int | None]:
    """Read the ms that a development server is ahead of the machine's clock; None for every other server."""
    return plain("HGET", keys.meta, "advanced", read=lambda reply: None if reply is None else int(reply))


def followed(keys: Keys, node: str, advanced: int) -> Command[None]:
    """Report that a node has followed the time of a development server so far and has delivered everything that is due."""
    return plain("HSET", keys.advanced, node, advanced, read=lambda _: None)


def followers(keys: Keys) -> Command[dict[str, int]]:
    """Read by node how far it has followed the time of a development server."""
    return plain("HGETALL", keys.advanced, read=lambda reply: {name: int(ms) for name, ms in by_name(reply).items()})


def publish_node(keys: Keys, name: str, line: bytes) -> Command[bytes]:
    """Write a node's report, which API and command line read, even if Redis is full. Return the report before, or b''."""
    return Command("publish_node", (keys.nodes,), (name, line), read=lambda reply: reply)


def forget_node(keys: Keys, name: str) -> Command[None]:
    """Remove a node's report."""
    return plain("HDEL", keys.nodes, name, read=lambda _: None)


def forget_silent(keys: Keys, cursor: str, silent: int, *, page: int = 100, now: Now = "") -> Command[str]:
    """Remove the reports of nodes that have been silent for more than `silent` ms, one page at a time.

    Begins with the cursor '0', and returns the next one; '0' means that all were checked.
    """
    return Command("forget_silent", (keys.nodes,), (now, cursor, page, silent), lambda reply: str(reply.decode()))


def nodes(keys: Keys) -> Command[dict[str, bytes]]:
    """Read the nodes' reports as they were written; `delayq.domain.nodes` parses them."""
    return plain("HGETALL", keys.nodes, read=by_name)


def rewrite() -> Command[None]:
    """Begin to rewrite the append-only file; for a cluster, of each primary."""
    return every("BGREWRITEAOF", read=lambda _: None)


def rewritten(keys: Keys) -> Command[dict[str, int]]:
    """Read by the run id of each server its number of write errors at the beginning of the rewrite that repaired them."""
    return plain(
        "HGETALL",
        keys.rewritten,
        read=lambda reply: {run_id: number(errors) for run_id, errors in by_name(reply).items()},
    )


def tell_rewritten(keys: Keys, run_id: str, errors: int, gone: Sequence[str]) -> list[Command[None]]:
    """Record that, and forget the servers that are gone."""
    told = [plain("HSET", keys.rewritten, run_id, errors, read=lambda _: None)]
    if gone:
        told.append(plain("HDEL", keys.rewritten, *gone, read=lambda _: None))
    return told
