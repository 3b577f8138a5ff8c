"""The names of all Redis keys, ids, and the queue and layout of an id.

All keys of queue `q` share the hash tag `{q}`, so a script is atomic and Redis Cluster works. A queue's number is never
used again: each layout continues the numbers of the last one, so layouts share no key. The oldest layout comes first,
and the newest accepts new messages; the others are left as they empty.
"""

from __future__ import annotations

import binascii
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache  # noqa: TID251  # the keys are numbers of queues
from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

from delayq.base.clock import Clock, unix_ns
from delayq.domain.message import NAMESPACE

#: The most characters of an id.
LONGEST_ID: Final = 128
#: While there is more than one layout, the list is read again after this many ms.
LOOK_EVERY: Final = 10_000


class ParkedSet:
    """The names of a queue's parked sets. Only this class knows how they are spelled.

    A parked set holds the tickets of messages that cannot be delivered for now. There are four kinds:

    - the set of a route whose target accepts nothing,
    - the set of a paused or limited topic, whose messages are *held*,
    - the set of a lane, an ordering key of a topic with more messages than fit into the owner's memory,
    - the set of all topics that have no route.
    """

    #: Messages whose topic has no route. No route can have this name.
    NO_ROUTE: Final = "t:*"

    @staticmethod
    def of_route(route: str) -> str:
        """The set of a route's messages, which wait for its target."""
        return f"t:{route}"

    @staticmethod
    def of_topic(topic: str) -> str:
        """The set of a topic's held messages."""
        return f"h:{topic}"

    @staticmethod
    def of_lane(topic: str, ordering_key: str) -> str:
        """The set of a lane. A topic has no '/', so no two lanes share a name."""
        return f"k:/{topic}/{ordering_key}"

    @staticmethod
    def is_of_route(name: str) -> bool:
        """Whether it is the set of a route, or the one of topics without a route."""
        return name.startswith("t:")

    @staticmethod
    def is_of_topic(name: str) -> bool:
        """Whether it holds the messages of a paused or limited topic."""
        return name.startswith("h:")

    @staticmethod
    def is_of_lane(name: str) -> bool:
        """Whether it is the set of a lane."""
        return name.startswith("k:/")

    @staticmethod
    def is_of_former_lane(name: str) -> bool:
        """Whether it is the set of an ordering key of a route: versions that ordered messages across topics made such
        lanes.
        """
        return name.startswith("k:") and not name.startswith("k:/")

    @classmethod
    def route(cls, name: str) -> str | None:
        """The route of a route's set or of a former lane; None for other sets."""
        if cls.is_of_former_lane(name):
            return name[2:].partition("/")[0]
        return name[2:] if cls.is_of_route(name) and name != cls.NO_ROUTE else None

    @classmethod
    def topic(cls, name: str) -> str | None:
        """The topic of all messages in the set; None if it holds messages of several topics."""
        if cls.is_of_lane(name):
            return name[3:].partition("/")[0]
        return name[2:] if cls.is_of_topic(name) else None


class QueueKeys:
    """The keys of one queue."""

    __slots__ = (
        "attempts", "audit", "census", "dead", "ended", "final", "index", "moves", "pool", "prefix", "queue", "reasons",
        "state", "tag", "wake",
    )  # fmt: skip

    def __init__(self, namespace: str, tag: str) -> None:
        self.prefix = prefix = f"{namespace}:{{{tag}}}:"
        self.tag = tag
        self.pool = prefix + "pool"
        self.queue = prefix + "queue"
        self.state = prefix + "state"
        self.attempts = prefix + "attempts"
        self.index = prefix + "keys"
        self.audit = prefix + "audit"
        self.dead = prefix + "dead"
        self.reasons = prefix + "reasons"
        self.final = prefix + "final"
        self.ended = prefix + "ended"
        self.moves = prefix + "moves"
        self.wake = prefix + "wake"
        self.census = prefix + "census"

    @property
    def number(self) -> int:
        """The number of the queue."""
        return int(self.tag)

    def parked(self, name: str) -> str:
        """Return the key of the tickets of one parked set; `ParkedSet` makes the names."""
        return f"{self.prefix}parked:{name}"

    def held(self, topic: str) -> str:
        """Return the key of the tickets that a pause or a limit of the topic holds."""
        return self.parked(ParkedSet.of_topic(topic))

    def stream(self, topic: str) -> str:
        """Return the topic's stream in this queue's slot, for Redis Cluster."""
        return f"{self.prefix}stream:{topic}"


@lru_cache(maxsize=4096)
def _queue_keys(namespace: str, queue: int) -> QueueKeys:
    return QueueKeys(namespace, str(queue))


class ConsumerKeys:
    """The keys of one consumer group of one stream. They lie in the slot of the stream."""

    __slots__ = ("consumers", "leases", "stream")

    def __init__(self, namespace: str, stream: str, group: str) -> None:
        self.stream = stream
        prefix = f"{namespace}:consumers:{{{slot_tag(stream)}}}:{stream}:{group}"
        self.leases = f"{prefix}:leases"
        self.consumers = f"{prefix}:consumers"


def slot_tag(key: str) -> str:
    """The part of a key by which Redis Cluster chooses its slot. Raises ValueError if no other key can have it as its tag."""
    begin = key.find("{")
    end = key.find("}", begin + 1)
    tag = key[begin + 1 : end] if begin >= 0 and end > begin + 1 else key
    if "}" in tag or ("{" in tag and tag != key[begin + 1 : end]):
        raise ValueError(f"{key!r} has braces that are no hash tag")
    return tag


class Keys:
    """The names of all keys and channels of one namespace. Each begins with its name and a colon."""

    __slots__ = (
        "advanced", "audit", "groups", "makings", "meta", "namespace", "nodes", "pattern", "policies", "rewritten", "trimmed",
    )  # fmt: skip

    def __init__(self, namespace: str = NAMESPACE) -> None:
        self.namespace = namespace
        #: It matches all keys and all channels, except the streams that routes name.
        self.pattern = f"{namespace}:*"
        self.meta = f"{namespace}:meta"
        self.nodes = f"{namespace}:nodes"
        #: A development server only: how far each worker has followed the time. Each move is published on the channel of this
        #: name.
        self.advanced = f"{namespace}:advanced"
        self.rewritten = f"{namespace}:rewritten"
        #: The topics whose streams are trimmed by a policy.
        self.trimmed = f"{namespace}:trimmed"
        #: In the slot of `meta`, as the next ones, so that one question reads both.
        self.policies = f"{namespace}:policies:{{{self.meta}}}"
        self.audit = f"{namespace}:audit:{{{self.meta}}}"
        #: The records of all consumer groups.
        self.groups = f"{namespace}:groups:{{{self.meta}}}"
        #: How far each of these groups is made, and the API key that made it.
        self.makings = f"{namespace}:groups:makings:{{{self.meta}}}"

    def queue(self, queue: int) -> QueueKeys:
        """Return the keys of queue number `queue`."""
        return _queue_keys(self.namespace, queue)

    def consumers(self, stream: str, group: str) -> ConsumerKeys:
        """Return the keys of a consumer group of a stream."""
        return ConsumerKeys(self.namespace, stream, group)

    def rate(self, name: str) -> str:
        """Return the bucket of a rate: of a job, or of topics (`delayq.domain.policies.Bucket`)."""
        return f"{self.namespace}:rate:{name}"

    def slots(self, name: str) -> str:
        """Return the key of the slots of a concurrency limit."""
        return f"{self.namespace}:slots:{name}"

    def report(self, name: str) -> str:
        """Return the key of the progress of a job with this name."""
        return f"{self.namespace}:report:{name}"


#: The keys of an installation whose namespace nobody has chosen.
KEYS: Final = Keys()

# Base 64 in the order of its characters, so that ids sort by time. It has no '.', which marks an ordering key's suffix,
# and no character that a command line would take for an option.
_DIGITS: Final = "0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_ORDERED: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    _DIGITS.encode(),
)
_two_words = Struct(">QQ").pack
_random = os.urandom
_b64 = binascii.b2a_base64
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_crc16 = binascii.crc_hqx
_HEX: Final = "0123456789abcdef"
_FIRST_8 = Struct(">Q").unpack_from


def new_id() -> str:
    """Return a new id: 22 characters of a uuid7, which sort by the time they were made."""
    return _b64(_uuid7())[:22].translate(_ORDERED).decode()


def _uuid7() -> bytes:
    """A uuid7 (RFC 9562): 48 bits of the ms, 12 bits of the part of this ms that has passed, 62 random bits."""
    ms, ns = divmod(unix_ns(), 1_000_000)
    return _two_words(ms << 16 | 0x7000 | (ns << 12) // 1_000_000, 1 << 63 | int.from_bytes(_random(8)) >> 2)


def ids_ending(suffix: str) -> Iterator[str]:
    """Yield new ids that end in `suffix`, in order, without end: 4,096 of a uuid7, whose last two random digits count
    on.
    """
    while True:
        first = new_id()
        head, tail = first[:19], first[21:] + suffix
        for pair in _PAIRS:
            yield head + pair + tail


def spread(id: str, window: int) -> int:
    """Return the ms that a due time is later within its window: the first 8 bytes of the id's BLAKE2b, modulo the
    window.

    A suffix that chooses the queue does not count: an ordering key, or another layout, changes no due time.
    """
    if id[-5:-4] == "." and not id[-4:].strip(_HEX):
        id = id[:-5]
    place: int = _FIRST_8(blake2b(id.encode()).digest())[0]
    return place % window


class Layout(msgspec.Struct, frozen=True):
    """A number of queues, numbered from `first` on, and the queue of an id: a function of the id alone."""

    queues: int
    first: int = 0

    @property
    def numbers(self) -> range:
        """The numbers of its queues."""
        return range(self.first, self.first + self.queues)

    def queue_of(self, id: str) -> int:
        """Return the CRC-16 (XMODEM) of the id modulo the number of queues. An id that ends in '.hhhh' contains its
        CRC.
        """
        if self.has_suffix(id):
            return self.first + int(id[-4:], 16) % self.queues
        return self.first + _crc16(id.encode(), 0) % self.queues

    @staticmethod
    def has_suffix(id: str) -> bool:
        """Return whether the id contains its CRC, as one with an ordering key does."""
        return id[-5:-4] == "." and not id[-4:].strip(_HEX)

    @staticmethod
    def keyed_id(id: str, ordering_key: str) -> str:
        """Append the ordering key's CRC-16 to the id, so that one key has one queue."""
        suffix = f".{_crc16(ordering_key.encode(), 0):04x}"
        return id if id.endswith(suffix) else id + suffix

    @staticmethod
    def random_suffix() -> str:
        """Return a suffix that messages of one batch may share, so that one script takes all of them."""
        return f".{os.urandom(2).hex()}"


def shortened(id: str, room: int) -> str:
    """Return an id of at most so many characters, 97 or more. A long id gets a hash, and keeps its beginning, which may be
    the prefix of a key.
    """
    return id if len(id) <= room else f"{id[:64]}-{blake2b(id.encode(), digest_size=16).hexdigest()}"


def dead_id(id: str, group: str) -> str:
    """Return the id of the dead letter that a group makes of a message. Other groups may give up the same message."""
    suffix = id[-5:] if Layout.has_suffix(id) else ""
    return shortened(f"{id.removesuffix(suffix)}:{group}", LONGEST_ID - len(suffix)) + suffix


def read_layouts(text: str) -> tuple[Layout, ...]:
    """Parse the layouts that `delayq:meta` lists: '16', or '16 64@16' (64 queues, numbered from 16 on)."""
    layouts = []
    for word in text.split():
        queues, _, first = word.partition("@")
        layouts.append(Layout(int(queues), int(first or 0)))
    return tuple(layouts)


def write_layouts(layouts: Sequence[Layout]) -> str:
    """Write the format of `read_layouts`."""
    return " ".join(f"{one.queues}@{one.first}" if one.first else str(one.queues) for one in layouts)


def following(layouts: Sequence[Layout], queues: int) -> Layout:
    """Return the layout to list after these. The same call returns the same, so a lost list is found again."""
    return Layout(queues, layouts[-1].numbers.stop)


class Layouts:
    """This process's knowledge of the layouts. It may be old: a closed queue reports that, and the list is read again.

    `shut` are queues that have answered MOVED, which they do permanently. Threads may share it.
    """

    __slots__ = ("_asked_at", "known", "shut")

    def __init__(self, known: Sequence[Layout]) -> None:
        self.known = tuple(known)
        self.shut: set[int] = set()
        self._asked_at: int | None = None  # monotonic ms

    def take(self, listed: Sequence[Layout]) -> None:
        """Record the list of `delayq:meta`; older lists are ignored."""
        if listed and listed[-1].first >= self.known[-1].first:
            self.known = tuple(listed)

    def outdated(self, clock: Clock) -> bool:
        """Return whether to read the list again, to learn which layouts are gone; never while there is one."""
        if len(self.known) == 1:
            return False
        now = clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < LOOK_EVERY:
            return False
        self._asked_at = now
        return True

    @property
    def queues(self) -> list[int]:
        """The numbers of all queues, in order."""
        return [queue for layout in self.known for queue in layout.numbers]

    def place(self, id: str, behind: int = -1) -> int | None:
        """Return the queue to ask for an id after the one that answered MOVED; None if no further layout is known."""
        for layout in self.known:
            if layout.first > behind:
                return layout.queue_of(id)
        return None

    def place_new(self, id: str) -> int:
        """Return the queue to begin with for a new id, so no closed queue can have it."""
        for layout in self.known:
            queue = layout.queue_of(id)
            if queue not in self.shut:
                break
        return queue
