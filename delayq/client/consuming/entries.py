"""The messages of entries of streams, as consumers receive them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from delayq.base.times import LATEST
from delayq.client.consuming.leases import tokens
from delayq.domain.message import text_of, value_of
from delayq.store.commands import ReceivedEntries, StreamEntry

#: Without these fields an entry is no message.
_NEEDED: Final = ("id", "topic")
#: The most bytes of fields of a message. Longer ones are of no message, and no dead letter can have them.
_LONGEST: Final[Mapping[str, int]] = {"topic": 255, "tags": 255, "orderingKey": 255, "keys": 40_000}
_LONGEST_PROPERTY: Final = 40_000


class Leased(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a consumer leased.

    `body` is bytes; `text` and `json()` read it. `due` is its due time (Unix ms). `attempt` counts the attempts to deliver it to
    the stream. `deliveries` counts how often the group received it, and `hand_backs` how often it was handed back. `lease` names
    this lease in `ack`, `extend` and `hand_back`.
    """

    id: str
    topic: str
    group: str
    lease: str
    tags: str = ""
    keys: tuple[str, ...] = ()
    ordering_key: str = ""
    properties: dict[str, str] = {}
    body: bytes
    due: int
    attempt: int = 1
    deliveries: int = 1
    hand_backs: int = 0

    @property
    def text(self) -> str:
        """The body as text. Raises InvalidMessage if it is not UTF-8."""
        return text_of(self.body)

    def json(self) -> Any:
        """Return the value of a body that is JSON. Raises InvalidMessage for any other body."""
        return value_of(self.body)


def why_foreign(fields: Mapping[str, bytes]) -> str | None:
    """Return the reason why an entry is not one of delayq's, or None if it is."""
    if missing := [name for name in _NEEDED if name not in fields]:
        return f"it has no {missing[0]}"
    if any("\ufffd" in name for name in fields):
        return "the name of a field is not UTF-8"
    for name in ("id", "topic"):
        try:
            if not fields[name].decode():
                return f"its {name} is empty"
        except UnicodeDecodeError:
            return f"its {name} is not UTF-8"
    for name, most in (("due", LATEST), ("attempt", 2**31)):
        value = fields.get(name, b"1")
        if not value.isdigit() or len(value) > 20 or int(value) > most:
            return f"its {name} is no number of delayq"
    for name, value in fields.items():
        if name[:2] == "p:" and len(name.encode()) > _LONGEST_PROPERTY:
            return "the name of a property is too long"
        longest = _longest(name)
        if longest and len(value) > longest // 3 and len(_text(fields, name).encode()) > longest:
            return f"its {name} is too long"
    return None


def _longest(name: str) -> int | None:
    """The most bytes of a field, as text. None if any length is possible."""
    return _LONGEST_PROPERTY if name[:2] == "p:" else _LONGEST.get(name)


def new_messages(group: str, place: str, answer: ReceivedEntries) -> list[Leased] | None:
    """Messages that are new to the group and have the same fields. Each field is decoded for all messages at once.

    None if delayq may not have written one of them: each has to be looked at.
    """
    rows, width = answer.rows, len(answer.names) + 1
    count = len(rows) // width
    column = {name: rows[at::width] for at, name in enumerate(answer.names, 1)}
    own = [name for name in answer.names if name.startswith("p:")]
    if any(name not in column for name in _NEEDED) or "\ufffd" in "".join(answer.names):
        return None
    if b"" in column["id"] or b"" in column["topic"] or (own and max(map(len, own)) > _LONGEST_PROPERTY // 3):
        return None

    def texts(name: str, errors: str = "replace") -> list[str]:
        values = column.get(name)
        return [""] * count if values is None else _decoded(values, errors, _longest(name))

    try:
        ids, topics, tags, keys = texts("id", "strict"), texts("topic", "strict"), texts("tags"), texts("keys")
        ordering_keys, properties = texts("orderingKey"), [texts(name) for name in own]
        times = column.get("due") or [entry.partition(b"-")[0] for entry in rows[::width]]
        dues, attempts = _numbers(times, LATEST), _numbers(column.get("attempt") or [b"1"] * count, 2**31)
    except ValueError:
        return None
    words = [tuple(one.split()) for one in keys] if any(keys) else [()] * count
    names = [name[2:] for name in own]
    given = (
        [dict(zip(names, values, strict=True)) for values in zip(*properties, strict=True)]
        if own
        else [{} for _ in ids]
    )
    return [
        Leased(
            id=id,
            topic=topic,
            group=group,
            lease=lease,
            tags=tag,
            keys=words,
            ordering_key=ordering_key,
            properties=properties,
            body=body,
            due=due,
            attempt=attempt,
        )
        for lease, id, topic, tag, words, ordering_key, properties, body, due, attempt in zip(
            tokens(place, answer.call, answer.making, _decoded(rows[::width])),
            ids,
            topics,
            tags,
            words,
            ordering_keys,
            given,
            column.get("body") or [b""] * count,
            dues,
            attempts,
            strict=True,
        )
    ]


def _decoded(values: list[bytes], errors: str = "replace", longest: int | None = None) -> list[str]:
    """The texts of values, which are decoded together: that is faster than one by one.

    Raises ValueError if one may have more than the longest bytes as text. A byte that is not UTF-8 becomes three.
    """
    first, most = values[0], sys.maxsize if longest is None else longest // 3
    if values.count(first) == len(values):
        if len(first) > most:
            raise ValueError
        return [first.decode(errors=errors)] * len(values)
    joined = b"\n".join(values)
    if len(joined) > most and max(map(len, values)) > most:
        raise ValueError
    texts = joined.decode(errors=errors).split("\n")
    return texts if len(texts) == len(values) else [one.decode(errors=errors) for one in values]


def _numbers(values: list[bytes], most: int) -> list[int]:
    """The numbers of values. Raises ValueError for one that is none, or above `most`."""
    if values.count(values[0]) == len(values):
        digits, numbers = values[0], [int(values[0])] * len(values)
    else:
        digits, numbers = b"".join(values), list(map(int, values))
    if not digits.isdigit() or max(numbers) > most:
        raise ValueError
    return numbers


def message_of(group: str, place: str, entry: StreamEntry, making: str = "") -> Leased:
    """The message of an entry that delayq wrote."""
    fields, leased = entry.fields, entry.lease
    return Leased(
        id=_text(fields, "id"),
        topic=_text(fields, "topic"),
        group=group,
        lease=tokens(place, leased.call, making, [leased.entries])[0],
        tags=_text(fields, "tags"),
        keys=tuple(_text(fields, "keys").split()),
        ordering_key=_text(fields, "orderingKey"),
        properties={name[2:]: _text(fields, name) for name in fields if name.startswith("p:")},
        body=fields.get("body", b""),
        due=min(int(fields.get("due") or leased.entries.partition("-")[0]), LATEST),
        attempt=int(fields.get("attempt", 1)),
        deliveries=entry.deliveries,
        hand_backs=entry.hand_backs,
    )


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return fields.get(name, b"").decode(errors="replace")
