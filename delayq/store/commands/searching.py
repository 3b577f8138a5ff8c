"""Searches: pages of a queue, of a parked set or of its dead letters, and counts by due time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from delayq.base.times import Instant
from delayq.domain.message import State, given_instant
from delayq.domain.words import stored
from delayq.store.commands.command import Command, Now, plain
from delayq.store.commands.reading import Found, found
from delayq.store.keys import ParkedSet, QueueKeys

__all__ = ["DEAD", "EVERYTHING", "QUEUE", "QUEUE_STATES", "Filter", "Page", "aside", "counts", "page", "records"]

#: Places of messages in a queue, besides the names of its parked sets.
QUEUE: Final = ""
DEAD: Final = "dead"
#: The states of messages that are neither parked nor dead.
QUEUE_STATES: Final = (State.SCHEDULED, State.DUE, State.IN_FLIGHT, State.RETRYING)
#: Bytes of a record that contain its generation.
_GENERATION: Final = 7


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of messages: a message matches all given fields; '' and none match everything.

    `topic` is a pattern with `*` and `?`; `among` are patterns of which one must match too (None: any topic). Messages
    are due from `due_from` on and before `due_to`, in Unix ms. Both may be given as an aware datetime or as RFC 3339.
    For a dead letter, the time of death counts. `property` is a name with its value, `id_prefix` a prefix of the id,
    `key` a business key.
    """

    topic: str = ""
    among: tuple[str, ...] | None = None
    tags: str = ""
    property: tuple[str, str] | None = None
    id_prefix: str = ""
    states: tuple[str, ...] = ()
    due_from: int | None = None
    due_to: int | None = None
    key: str | None = None

    if TYPE_CHECKING:  # the given types may be more than those of the fields

        def __init__(
            self,
            *,
            topic: str = "",
            among: tuple[str, ...] | None = None,
            tags: str = "",
            property: tuple[str, str] | None = None,
            id_prefix: str = "",
            states: tuple[str, ...] = (),
            due_from: Instant | None = None,
            due_to: Instant | None = None,
            key: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, field in (("due_from", "dueFrom"), ("due_to", "dueTo")):
            msgspec.structs.force_setattr(self, name, given_instant(field, getattr(self, name)))

    def wants(self, *states: str) -> bool:
        """Return whether messages in one of these states may match."""
        return not self.states or any(state in self.states for state in states)


#: The filter that matches every message.
EVERYTHING: Final = Filter()


def aside(name: str) -> str:
    """Return the state of the messages of a parked set."""
    return State.HELD if ParkedSet.is_of_topic(name) else State.PARKED


class Page(msgspec.Struct, frozen=True):
    """Messages by due time, and the place of the next page: the due time and ticket of the last one; None: this is the
    last.

    `places` has the due time and ticket of each. `looked` messages were read, of which `known` have a topic that the
    filter's `among` covers. A dead letter's ticket is its id. If only sizes were requested, the messages have no
    records, but `sizes` has their generation and bytes.
    """

    messages: list[Found]
    places: list[tuple[int, bytes]]
    after: tuple[int, bytes] | None
    looked: int
    known: int
    sizes: list[tuple[bytes, int]]


def page(
    keys: QueueKeys,
    place: str = QUEUE,
    wanted: Filter = EVERYTHING,
    *,
    after: tuple[int, bytes] | None = None,
    look: int = 1_000,
    most_bytes: int = 1024 * 1024,
    most: int | None = None,
    only_sizes: bool = False,
    now: Now = "",
) -> Command[Page]:
    """Read a page of one queue's messages in a place: QUEUE, the name of a parked set, or DEAD; by all filters except a
    key.

    It begins after the previous page. It reads at most `look` messages and about `most_bytes` of records, and returns
    at most `most`.
    """
    kind = {QUEUE: "queue", DEAD: "dead"}.get(place) or aside(place)
    members = {QUEUE: keys.queue, DEAD: keys.dead}.get(place) or keys.parked(place)
    begin = (wanted.due_from or 0, b"")
    due, ticket = begin if after is None or after[0] < begin[0] else after
    states = ",".join(("", *map(stored, wanted.states), "")) if place == QUEUE and wanted.states else ""
    name, value = wanted.property or ("", "")

    def read(reply: list[Any]) -> Page:
        here, watermark = int(reply[0]), int(reply[1]) if reply[1] else -1
        stands = b"" if place == QUEUE else kind.encode()
        messages, places, sizes = [], [], []
        for i in range(6, len(reply), 5):
            member, score, record, attempts, reason = reply[i : i + 5]
            id = member.decode() if place == DEAD else member[:-8].decode()
            whole = b"" if only_sizes else record
            one = found(id, keys.number, (whole, stands, score, attempts, reason), here, watermark)
            if one is not None:
                messages.append(one)
                places.append((int(score), member))
                if only_sizes:
                    sizes.append((record[:_GENERATION], int(record[_GENERATION:])))
        return Page(messages, places, (int(reply[2]), reply[3]) if reply[2] else None, reply[4], reply[5], sizes)

    return Command(
        "page",
        (keys.state, members, keys.pool, keys.attempts, keys.reasons),
        (
            *(now, kind, due, ticket, "" if wanted.due_to is None else wanted.due_to),
            *(look, most_bytes, look if most is None else most),
            *(states, wanted.id_prefix, wanted.tags, name, value, wanted.topic),
            *("size" if only_sizes else "", *(wanted.among or ())),
        ),
        read,
    )


def records(keys: QueueKeys, ids: Sequence[str]) -> Command[list[bytes | None]]:
    """Read the records of these ids of one queue, unchanged."""
    return plain("HMGET", keys.pool, *ids, read=list)


def counts(keys: QueueKeys, place: str, edges: Sequence[int | None]) -> Command[list[int]]:
    """Count the messages of one queue in a place between each two adjacent edges of due times.

    None means the beginning as the first edge, and the end as the last one.
    """
    members = {QUEUE: keys.queue, DEAD: keys.dead}.get(place) or keys.parked(place)
    first, *others = edges
    ends = ("-inf" if first is None else first, *("+inf" if one is None else one for one in others))
    return Command("counts", (members,), ends, list)
