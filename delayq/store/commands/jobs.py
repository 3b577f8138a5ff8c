"""For jobs on many messages: read them page by page, keep to a rate, report how far they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from delayq.store.commands.command import Command, Now, by_name, plain
from delayq.store.commands.reading import Found, found
from delayq.store.keys import QueueKeys, rate_key, report_key

__all__ = ["REPORT_KEPT", "Page", "keep_report", "list_pending", "report", "reported", "take_rate", "unreport"]

#: ms for which a report is kept after the last word of it.
REPORT_KEPT: Final = 86_400_000


class Page(msgspec.Struct, frozen=True):
    """Messages by due, and where the next page begins: the due and ticket of the last one; None: this is the last."""

    messages: list[Found]
    after: tuple[int, bytes] | None


def list_pending(
    keys: QueueKeys,
    *,
    parked: str = "",
    begin: int = 0,
    after: tuple[int, bytes] | None = None,
    end: int | None = None,
    topic: str = "",
    most: int = 1_000,
    most_bytes: int = 1024 * 1024,
    now: Now = "",
) -> Command[Page]:
    """A page of one queue's pending messages, or of those that are parked under a name.

    From the due `begin`, or behind the page before, to the due `end`; `most` are looked at, those of `topic` are told.
    """
    due, ticket = after if after is not None else (begin, b"")
    place = b"parked" if parked else b""

    def read(reply: list[Any]) -> Page:
        here, watermark = int(reply[0]), int(reply[1]) if reply[1] else -1
        messages = []
        for i in range(4, len(reply), 4):
            parts = (reply[i + 2], place, reply[i + 1], reply[i + 3], b"")
            one = found(reply[i][:-8].decode(), keys.number, parts, here, watermark)
            if one is not None:
                messages.append(one)
        return Page(messages, (int(reply[2]), reply[3]) if reply[2] else None)

    return Command(
        "list_pending",
        (keys.state, keys.parked(parked) if parked else keys.queue, keys.pool, keys.attempts),
        (now, due, ticket, "" if end is None else end, topic, most, most_bytes),
        read,
    )


def take_rate(job: str, rate: int, count: int, *, now: Now = "") -> Command[int]:
    """Spend `count` of the `rate` messages per second that the tasks of a job share: how many ms to wait first."""
    return Command("take_rate", (rate_key(job),), (now, rate, count), int)


def report(name: str, field: str, line: bytes) -> Command[None]:
    """Write a line of a report."""
    return plain("HSET", report_key(name), field, line, read=lambda _: None)


def unreport(name: str, field: str) -> Command[None]:
    """Take a line out of a report."""
    return plain("HDEL", report_key(name), field, read=lambda _: None)


def keep_report(name: str) -> Command[None]:
    """Keep a report for another day."""
    return plain("PEXPIRE", report_key(name), REPORT_KEPT, read=lambda _: None)


def reported(name: str) -> Command[Mapping[str, bytes]]:
    """The lines of a report; none if there is no such report, or not any more."""
    return plain("HGETALL", report_key(name), read=by_name)
