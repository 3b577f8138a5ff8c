"""The names of all Redis keys, and which queue of a layout an id belongs to.

Everything of queue `q` shares the hash tag `{q}`, so a script is atomic and Redis Cluster works. A queue's number is
never used again: each layout goes on counting behind the last one, so layouts share no key.
"""

from __future__ import annotations

import binascii
import os
import re
from functools import lru_cache
from typing import Final

import msgspec

__all__ = ["META", "NODES", "REWRITTEN", "Layout", "QueueKeys", "queue_keys", "rate_key", "report_key"]

META: Final = "delayq:meta"
NODES: Final = "delayq:nodes"
REWRITTEN: Final = "delayq:rewritten"

_SUFFIX = re.compile(r"\.[0-9a-f]{4}")
_crc16 = binascii.crc_hqx


class QueueKeys:
    """The keys of one queue."""

    __slots__ = (
        "attempts", "dead", "final", "index", "pool", "queue", "reasons", "state", "tag", "wake",
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
        self.wake = prefix + "wake"

    @property
    def number(self) -> int:
        """The number of the queue."""
        return int(self.tag)

    def parked(self, name: str) -> str:
        """The tickets parked under `name`: 't:' and a route's name, or 'k:', a route's name, '/' and an ordering key."""
        return f"delayq:{{{self.tag}}}:parked:{name}"

    def stream(self, topic: str) -> str:
        """The topic's stream in this queue's slot, for Redis Cluster."""
        return f"delayq:{{{self.tag}}}:stream:{topic}"


@lru_cache(maxsize=4096)
def queue_keys(queue: int) -> QueueKeys:
    """The keys of queue number `queue`."""
    return QueueKeys(str(queue))


def rate_key(job: str) -> str:
    """When a job may send again that keeps to a rate."""
    return f"delayq:rate:{job}"


def report_key(name: str) -> str:
    """How far a job is that reports under this name."""
    return f"delayq:report:{name}"


class Layout(msgspec.Struct, frozen=True):
    """So many queues, numbered from `first` on, and where an id lives in them: a function of the id alone."""

    queues: int
    first: int = 0

    @property
    def numbers(self) -> range:
        """The numbers of its queues."""
        return range(self.first, self.first + self.queues)

    def queue_of(self, id: str) -> int:
        """CRC-16 (XMODEM) of the id modulo the number of queues; an id that ends in '.hhhh' says its CRC itself."""
        if self.has_suffix(id):
            return self.first + int(id[-4:], 16) % self.queues
        return self.first + _crc16(id.encode(), 0) % self.queues

    @staticmethod
    def has_suffix(id: str) -> bool:
        """Whether the id says its CRC itself, as one with an ordering key does."""
        return id[-5:-4] == "." and _SUFFIX.fullmatch(id, len(id) - 5) is not None

    @staticmethod
    def keyed_id(id: str, ordering_key: str) -> str:
        """The id with the ordering key's CRC-16 behind it, so that one key has one queue."""
        suffix = f".{_crc16(ordering_key.encode(), 0):04x}"
        return id if id.endswith(suffix) else id + suffix

    @staticmethod
    def random_suffix() -> str:
        """A suffix that messages of one batch may share, so that one script takes them all."""
        return f".{os.urandom(2).hex()}"
