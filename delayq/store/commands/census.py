"""The census of a queue: its messages by topic, state and due time, as its owner counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from delayq.domain.message import tag_key, topic_key
from delayq.domain.words import shown, stored
from delayq.store.commands.command import Command, Now, by_name, plain
from delayq.store.keys import QueueKeys

__all__ = ["BUCKETS", "REST", "Census", "Slice", "Tally", "bucket_edges", "census", "census_slice", "keep_census"]

#: The number of buckets of due times: messages that are due already, then minutes, with twice the length each time.
BUCKETS: Final = 24
MINUTE: Final = 60_000
#: Stands for all topics that are not counted separately. No topic can have this name.
REST: Final = "*"
_BEGAN: Final = "began"
_VERSION: Final = "version"
#: The prefix of a topic's field, only in the census. Parked sets have other names (`ParkedSet`).
_TOPIC: Final = "t:"


class Tally(msgspec.Struct, array_like=True):
    """A number of messages, the bytes of their records, and their due times by bucket, without the zeros at the end.

    It also has how many of them are not indexed by topic, and, if they have tags, not by tags.
    """

    messages: int = 0
    size: int = 0
    dues: list[int] = []
    unindexed: int = 0
    untagged: int = 0

    def add(self, bucket: int, messages: int, size: int, unindexed: int, untagged: int) -> None:
        """Add more messages."""
        self.messages += messages
        self.size += size
        self.unindexed += unindexed
        self.untagged += untagged
        self.dues += [0] * (bucket + 1 - len(self.dues))
        self.dues[bucket] += messages


class Census(msgspec.Struct, frozen=True):
    """The counts of each topic and state, from a pass through the pool that began at this time (Unix ms).

    `version` is that of the policies of all messages scheduled from then on, until the policies change.
    """

    began: int
    topics: dict[str, dict[str, Tally]]
    version: str = ""


class Slice(msgspec.Struct, frozen=True):
    """A part of a census: its time, the cursor of the next part ('0': this was the last), and the messages that it
    read.

    Each group has topic, state, bucket, messages, bytes, and the messages that are not indexed by topic and by tags.
    """

    now: int
    cursor: str
    looked: int
    groups: list[tuple[str, str, int, int, int, int, int]]


def bucket_edges(began: int) -> list[tuple[int, int]]:
    """Return the begin and the end of the due times of a bucket, from the second one on; the last bucket has no end."""
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
    """Replace the census of a queue. Returns False if the epoch is fenced."""
    fields: list[str | bytes] = []
    for topic, its in counted.topics.items():
        fields += (_TOPIC + topic, msgspec.json.encode({stored(state): tally for state, tally in its.items()}))
    arguments = (epoch, _BEGAN, counted.began, _VERSION, counted.version, *fields)
    return Command("keep_census", (keys.state, keys.census), arguments, lambda reply: bool(reply == b"ok"))


_tallies: Final = msgspec.json.Decoder(dict[str, Tally])


def census(keys: QueueKeys, topic: str = "") -> Command[Census | None]:
    """Read the last census of a queue: complete, or of one topic and the REST; None if there is none."""

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
