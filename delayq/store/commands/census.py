"""The census of a queue: how many messages of each topic are in which state, and when they are due, as its owner counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from delayq.message import tag_key, topic_key
from delayq.store.commands.command import Command, Now, by_name, plain
from delayq.store.keys import QueueKeys
from delayq.words import shown, stored

__all__ = ["BUCKETS", "REST", "Census", "Slice", "Tally", "bucket_edges", "census", "census_slice", "keep_census"]

#: By when they are due, messages are counted in so many buckets: what is due already, then minutes, twice as many each time.
BUCKETS: Final = 24
MINUTE: Final = 60_000
#: Stands for all topics beyond those that are counted one by one; no topic can have this name.
REST: Final = "*"
_BEGAN: Final = "began"
_VERSION: Final = "version"
#: How the field of a topic begins, in the census only; parked sets have names of their own (`ParkedSet`).
_TOPIC: Final = "t:"


class Tally(msgspec.Struct, array_like=True):
    """So many messages, the bytes of their records, and how many of them are due when, without the zeros at the end.

    So many of them are not indexed by topic, and of those with tags not by these.
    """

    messages: int = 0
    size: int = 0
    dues: list[int] = []
    unindexed: int = 0
    untagged: int = 0

    def add(self, bucket: int, messages: int, size: int, unindexed: int, untagged: int) -> None:
        """Count some more."""
        self.messages += messages
        self.size += size
        self.unindexed += unindexed
        self.untagged += untagged
        self.dues += [0] * (bucket + 1 - len(self.dues))
        self.dues[bucket] += messages


class Census(msgspec.Struct, frozen=True):
    """What was counted of each topic and state, in a look at the whole pool that began at this time (Unix ms).

    `version` is that of the policies by which everything was scheduled from then on, until they change.
    """

    began: int
    topics: dict[str, dict[str, Tally]]
    version: str = ""


class Slice(msgspec.Struct, frozen=True):
    """A part of a census: when it was taken, where the next one begins ('0': that was all), how many messages it looked at.

    Of each group: topic, state, bucket, messages, bytes, and how many are not indexed by topic, and by tags.
    """

    now: int
    cursor: str
    looked: int
    groups: list[tuple[str, str, int, int, int, int, int]]


def bucket_edges(began: int) -> list[tuple[int, int]]:
    """From when on and before when messages are due that are in a bucket, from the second one on; the last one has no end."""
    return [(began + (2**n - 1) * MINUTE, began + (2 ** (n + 1) - 1) * MINUTE) for n in range(BUCKETS - 1)]


def census_slice(keys: QueueKeys, cursor: str, look: int, began: int | None, *, now: Now = "") -> Command[Slice]:
    """Count about `look` messages of a queue, from a cursor on."""

    def read(reply: list[Any]) -> Slice:
        here, behind, looked, groups = reply
        told = [(topic.decode(errors="replace"), shown(state.decode()), *rest) for topic, state, *rest in groups]
        return Slice(int(here), behind.decode(), looked, told)

    return Command(
        "census_slice",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.dead),
        (now, cursor, look, "" if began is None else began, topic_key(""), tag_key("", "")[:-1]),
        read,
    )


def keep_census(keys: QueueKeys, epoch: str, counted: Census) -> Command[bool]:
    """Keep the census of a queue in the place of the one before; False if the epoch is fenced."""
    fields: list[str | bytes] = []
    for topic, its in counted.topics.items():
        fields += (_TOPIC + topic, msgspec.json.encode({stored(state): tally for state, tally in its.items()}))
    arguments = (epoch, _BEGAN, counted.began, _VERSION, counted.version, *fields)
    return Command("keep_census", (keys.state, keys.census), arguments, lambda reply: bool(reply == b"ok"))


_tallies: Final = msgspec.json.Decoder(dict[str, Tally])


def census(keys: QueueKeys, topic: str = "") -> Command[Census | None]:
    """The last census of a queue, whole or of one topic and the REST; None if there is none."""

    def read_all(reply: Any) -> Census | None:
        return _read(by_name(reply))

    if not topic:
        return plain("HGETALL", keys.census, read=read_all)
    names = (_BEGAN, _VERSION, _TOPIC + topic, _TOPIC + REST)
    return plain(
        "HMGET",
        keys.census,
        *names,
        read=lambda reply: _read({name: one for name, one in zip(names, reply, strict=True) if one is not None}),
    )


def _read(fields: Mapping[str, bytes]) -> Census | None:
    began = fields.get(_BEGAN)
    if began is None:
        return None
    topics = {
        name.removeprefix(_TOPIC): {shown(state): tally for state, tally in _tallies.decode(one).items()}
        for name, one in fields.items()
        if name.startswith(_TOPIC)
    }
    return Census(int(began), topics, fields.get(_VERSION, b"").decode())
