"""The token of a lease, written and parsed here alone, and the changes of leases that consumers want.

A token is '<queue or nothing>.<entry>.<call>.<mark>'. The mark has the making of the group, and a check that a lease which was
never given does not have. Over HTTP a check of the message's id follows. A token of a former version has no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal
from zlib import crc32

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.store.commands import Act, Lease

#: How long a lease lasts unless the consumer chooses another one, and how short and how long it may be (ms).
LEASE: Final = 30_000
SHORTEST_LEASE: Final = 1_000
LONGEST_LEASE: Final = 12 * 3_600_000
MOST_REASON: Final = 200
_TOKEN: Final = re.compile(r"\d{0,9}\.\d{1,20}-\d{1,20}\.[A-Za-z0-9_:-]{1,64}(?:\.[0-9a-f]{16}(?:[0-9a-f]{8})?)?")
_ENTRIES: Final = re.compile(r"\d{1,20}-\d{1,20}(?: \d{1,20}-\d{1,20})*")
#: The lengths of the making of the group, of the check of an id, and of a mark with both checks.
_MAKING, _OF_ID, _MARKS = 8, 8, 24


class LeaseChange(msgspec.Struct, frozen=True):
    """A change of a lease that a consumer wants.

    `ms` is the new lease, or the pause before the message is received again. None means the next one of the policy's `backoff`,
    or of HAND_BACK_DELAYS.
    """

    kind: Literal["ack", "extend", "back", "release"]
    ms: int | None = None
    reason: str = ""


ACK: Final = LeaseChange("ack")
#: A lease, the id of its message if the caller gives it, and the change.
Wanted = tuple[str, str | None, LeaseChange]


def extension(ms: int) -> LeaseChange:
    """The change that lets a lease end in so many ms; 0 releases the message unhandled. Raises InvalidMessage."""
    if ms and not SHORTEST_LEASE <= ms <= LONGEST_LEASE:
        raise InvalidMessage("lease", "is from 1 s to 12 h, or 0 to release the message")
    return LeaseChange("extend", ms) if ms else LeaseChange("release")


def reason_line(reason: str) -> str:
    """The reason of a hand-back as one line of at most MOST_REASON characters, without control characters.

    The text of an exception may have any, and colors of a terminal besides.
    """
    text = reason[:MOST_REASON].encode(errors="replace").decode()
    printable = text if text.isprintable() else "".join([one if one.isprintable() else " " for one in text])
    return " ".join(printable.split()) or "no reason given"


class LeaseRun(msgspec.Struct):
    """The same change of entries that one call leased from a place, and the numbers of their tokens.

    `tail` is what their tokens have after the entry, without the check of an id.
    """

    place: str
    tail: str
    change: LeaseChange
    entries: list[str]
    numbers: list[int]

    @property
    def was_given(self) -> bool:
        """Whether a call has received such leases. It may have if they are those of a former version."""
        call, _, mark = self.tail.partition(".")
        return not mark or mark == _mark(call, mark[:_MAKING])

    @property
    def act(self) -> Act:
        """The change as the store makes it."""
        call, _, mark = self.tail.partition(".")
        change, lease = self.change, Lease(" ".join(self.entries), call)
        reason = reason_line(change.reason) if change.kind == "back" else ""
        return Act(change.kind, lease, change.ms, reason, mark[:_MAKING])


def tokens(place: str, call: str, making: str, entries: Iterable[str]) -> list[str]:
    """The leases of entries of one place that a call received."""
    tail = f"{call}.{_mark(call, making)}"
    return [f"{place}.{entry}.{tail}" for entry in entries]


def _mark(call: str, making: str) -> str:
    return f"{making}{crc32(f'{call}.{making}'.encode()):08x}"


def with_id(token: str, id: str) -> str:
    """The lease, which has no check of an id, with that of its message: it cannot be taken for that of another message."""
    return token + _check_of_id(token.split(".", 2)[1], id)


def _check_of_id(entry: str, id: str) -> str:
    return f"{crc32(f'{entry} {id}'.encode()):08x}"


def parse(wanted: Sequence[Wanted]) -> tuple[list[LeaseRun], dict[int, InvalidMessage]]:
    """Return the changes of leases, and the refusals of those that have the check of another id, by number.

    Raises InvalidMessage for a text that is no lease.
    """
    runs, refused, last = list[LeaseRun](), dict[int, InvalidMessage](), dict[str, LeaseRun]()
    for at, (token, id, change) in enumerate(wanted):
        try:
            place, entry, tail = token.split(".", 2)
        except ValueError:
            raise _no_lease(token) from None
        run = last.get(place)
        if run is None or run.tail != tail or run.change is not change:
            if tail[-_MARKS - 1 : -_MARKS] == ".":
                if id is not None and tail[-_OF_ID:] != _check_of_id(entry, id):
                    text = f"{id!r} is not the message of this lease: give the id and the lease that were received together"
                    refused[at] = InvalidMessage("id", text)
                    continue
                tail = tail[:-_OF_ID]
            if run is None or run.tail != tail or run.change != change:
                if not _TOKEN.fullmatch(token):
                    raise _no_lease(token)
                last[place] = run = LeaseRun(place, tail, change, [], [])
                runs.append(run)
        run.entries.append(entry)
        run.numbers.append(at)
    for run in runs:
        text = " ".join(run.entries)
        if not _ENTRIES.fullmatch(text) or text.count(" ") != len(run.entries) - 1:
            raise _no_lease(next(wanted[at][0] for at in run.numbers if not _TOKEN.fullmatch(wanted[at][0])))
    return runs, refused


def _no_lease(token: str) -> InvalidMessage:
    return InvalidMessage("lease", f"{token!r} is no lease: give the one that was received with the message")
