"""Who changed what by hand: what is said of him with a change, and a plan that reads it again, the newest first.

The order is that of (time, number in its ms, queue): what stands under a place in it, a page goes on behind.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Final, NamedTuple

import msgspec

from delayq.client.plan import Context, Plan
from delayq.errors import InvalidMessage
from delayq.store import commands
from delayq.store.commands import Audited, AuditedMessage, Found, Retention
from delayq.store.connect.exchange import all_good
from delayq.store.keys import AUDIT, Layout, queue_keys

__all__ = ["AuditEntry", "AuditPage", "By", "WantedEntries", "audit", "ended_by", "entry_of"]

LONGEST_REASON: Final = 200
#: Entries that a stream is asked for at first, and at most: each may tell of 500 messages, so more only while few are told of.
#: And those that a page looks at, about.
STEP: Final = 8
MOST_STEP: Final = 64
FEW: Final = 2_000
MOST_LOOKS: Final = 5_000
#: The stream of the whole, among those of the queues.
WHOLE: Final = -1
#: Entries that are looked at for who ended an id, and by how many ms they may be apart from its end: a script reads the
#: clock when it has begun.
LOOK: Final = 50
APART: Final = 20


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who changes something by hand: his name, the id of his key, from which address, and why."""

    actor: str
    key: str = ""
    address: str = ""
    reason: str = ""

    def check(self) -> None:
        """Raise InvalidMessage for a reason that is too long, or more than a line."""
        if len(self.reason) > LONGEST_REASON or not self.reason.isprintable():
            raise InvalidMessage("reason", f"is a line of at most {LONGEST_REASON} characters")


def entry_of(by: By | None, action: str, retention: Retention) -> str:
    """What a script is told that writes it down; nothing if nobody is to be."""
    if by is None:
        return ""
    by.check()
    said = msgspec.json.encode({**msgspec.to_builtins(by), "action": action}).decode()
    return f"{retention.audit_most} {retention.audit_window} {said}"


class AuditEntry(msgspec.Struct, frozen=True):
    """A change by hand, and the queue of its messages (None: it concerned the whole)."""

    queue: int | None
    change: Audited


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the newest first, and the token of the next page (None: this is the last)."""

    entries: list[AuditEntry]
    next_token: str | None


class WantedEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries. Of one that concerns messages only those are told that are wanted.

    `topic` is a pattern with `*` and `?`; `key` a business key; `actor` a name, or the id of a key; they were made from
    `since` on and before `until` (Unix ms). `may` says of which topics somebody may know (None: of all, and of the whole).
    """

    id: str = ""
    key: str = ""
    topic: str = ""
    actor: str = ""
    action: str = ""
    since: int | None = None
    until: int | None = None
    may: Callable[[str], bool] | None = None

    def of(self, change: Audited) -> Audited | None:
        """What is wanted of a change; None if nothing is."""
        if self.actor not in ("", change.actor, change.key) or self.action not in ("", change.action):
            return None
        if not change.messages:
            return change if self.may is None and not (self.id or self.key or self.topic) else None
        messages = tuple(one for one in change.messages if self._takes(one))
        return msgspec.structs.replace(change, messages=messages) if messages else None

    def _takes(self, one: AuditedMessage) -> bool:
        if self.id and one.id != self.id and not (Layout.has_suffix(one.id) and one.id[:-5] == self.id):
            return False
        if self.key and self.key not in one.keys:
            return False
        if self.topic and not re.match(translate(self.topic), one.topic):
            return False
        return self.may is None or self.may(one.topic)


class _Place(NamedTuple):
    """Of an entry, in the order of all."""

    at: int
    number: int
    queue: int


def audit(
    context: Context, limit: int, token: str | None = None, wanted: WantedEntries | None = None
) -> Plan[AuditPage]:
    """A page of at most `limit`, or fewer where not all that were looked at are wanted; raises StoreError."""
    wanted = wanted if wanted is not None else WantedEntries()
    oldest = "-" if wanted.since is None else str(wanted.since)
    before = "+" if wanted.until is None else f"({wanted.until}-0"
    behind = _read_token(token)
    queues = [WHOLE, *range(context.layouts.known[-1].numbers.stop)]
    taken: list[AuditEntry] = []
    looked, step = 0, STEP
    while looked < MOST_LOOKS:
        asked = [commands.audited(_stream(queue), step, _newest(queue, behind) or before, oldest) for queue in queues]
        pages = dict(zip(queues, all_good((yield asked)), strict=True))
        found = sorted(_placed(pages), reverse=True)
        # What lies behind the last entry of a stream that has more may not be next.
        known_to = max(
            (_Place(page[-1].at, page[-1].number, queue) for queue, page in pages.items() if len(page) == step),
            default=None,
        )
        for place, change in found:
            if known_to is not None and place < known_to:
                break
            behind, looked = place, looked + 1
            if (shown := wanted.of(change)) is not None:
                taken.append(AuditEntry(None if place.queue == WHOLE else place.queue, shown))
                if len(taken) == limit:
                    return AuditPage(taken, _token(place))
        if known_to is None:
            return AuditPage(taken, None)
        queues = [queue for queue, page in pages.items() if page]
        told = sum(len(one.messages) for page in pages.values() for one in page)
        step = min(2 * step, MOST_STEP) if told < FEW else STEP
    assert behind is not None
    return AuditPage(taken, _token(behind))


def _stream(queue: int) -> str:
    return AUDIT if queue == WHOLE else queue_keys(queue).audit


def _newest(queue: int, behind: _Place | None) -> str:
    """The id of an entry from which on a stream is behind a place."""
    if behind is None:
        return ""
    return f"{'' if queue < behind.queue else '('}{behind.at}-{behind.number}"


def _placed(pages: dict[int, list[Audited]]) -> Iterator[tuple[_Place, Audited]]:
    for queue, page in pages.items():
        for one in page:
            yield _Place(one.at, one.number, queue), one


def _token(last: _Place) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, last)).encode()).decode().rstrip("=")


def _read_token(token: str | None) -> _Place | None:
    if token is None:
        return None
    try:
        at, number, queue = map(
            int, base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).split()
        )
    except ValueError:
        at = -1
    if not 0 <= at < 2**53 or not 0 <= number < 2**53 or not WHOLE <= queue < 2**53:
        raise InvalidMessage("pageToken", "is not a token that this API gave out; start without one")
    return _Place(at, number, queue)


def ended_by(found: Found) -> Plan[Found]:
    """A message that was ended by hand, with who did it, if that was written down."""
    assert found.ended is not None
    stream = queue_keys(found.queue).audit
    (entries,) = yield [commands.audited(stream, LOOK, str(found.ended + APART), str(found.ended - APART))]
    for entry in entries if isinstance(entries, list) else ():
        if any(one.id == found.id for one in entry.messages):
            return msgspec.structs.replace(found, ended_by=entry.actor)
    return found
