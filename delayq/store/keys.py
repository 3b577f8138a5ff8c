"""The names of all Redis keys, and which queue an id belongs to.

Everything of queue `q` shares the hash tag `{q}`, so a script is atomic and Redis Cluster works.
"""

from __future__ import annotations

import binascii
import re
import secrets
from functools import lru_cache
from typing import Final

__all__ = ["META", "NODES", "Layout", "QueueKeys", "queue_keys"]

META: Final = "delayq:meta"
NODES: Final = "delayq:nodes"

_SUFFIX = re.compile(r"\.[0-9a-f]{4}")
_crc16 = binascii.crc_hqx


class QueueKeys:
    """The keys of one queue."""

    __slots__ = (
        "attempts", "dead", "final", "guard", "index", "pool", "queue", "reasons", "state", "tag", "wake",
    )  # fmt: skip

    def __init__(self, tag: str) -> None:
        prefix = f"delayq:{{{tag}}}:"
        self.tag = tag
        self.pool = prefix + "pool"
        self.queue = prefix + "queue"
        self.state = prefix + "state"
        self.attempts = prefix + "attempts"
        self.index = prefix + "keys"
        self.dead = prefix + "dead"
        self.reasons = prefix + "reasons"
        self.final = prefix + "final"
        self.guard = prefix + "guard"
        self.wake = prefix + "wake"

    def parked(self, name: str) -> str:
        """The tickets parked under `name`: 't:' and a route's name, or 'k:' and an ordering key."""
        return f"delayq:{{{self.tag}}}:parked:{name}"

    def stream(self, topic: str) -> str:
        """The topic's stream in this queue's slot, for Redis Cluster."""
        return f"delayq:{{{self.tag}}}:stream:{topic}"


@lru_cache(maxsize=4096)
def queue_keys(queue: int) -> QueueKeys:
    """The keys of queue number `queue`."""
    return QueueKeys(str(queue))


class Layout:
    """How many queues there are, and where an id lives: a function of the id alone."""

    __slots__ = ("queues",)

    def __init__(self, queues: int) -> None:
        self.queues = queues

    def queue_of(self, id: str) -> int:
        """CRC-16 (XMODEM) of the id modulo the number of queues; an id that ends in '.hhhh' says its CRC itself."""
        if id[-5:-4] == "." and _SUFFIX.fullmatch(id, len(id) - 5):
            return int(id[-4:], 16) % self.queues
        return _crc16(id.encode(), 0) % self.queues

    def keyed_id(self, id: str, ordering_key: str) -> str:
        """The id with the ordering key's CRC-16 behind it, so that one key has one queue."""
        suffix = f".{_crc16(ordering_key.encode(), 0):04x}"
        return id if id.endswith(suffix) else id + suffix

    def random_suffix(self) -> str:
        """A suffix that messages of one batch may share, so that one script takes them all."""
        return f".{secrets.randbelow(65536):04x}"
