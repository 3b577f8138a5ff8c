"""Who changed what by hand: what is said of him with a change, and a plan that reads it again, the newest first.

The order is that of (time, number in its ms, queue): what stands under a place in it, a page goes on behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from delayq.client.plan import Context, Plan
from delayq.client.tokens import read_token, token_of
from delayq.errors import InvalidMessage
from delayq.message import MAX_DUE, Limits, check_id, check_key, given_instant
from delayq.patterns import check_pattern, compiled
from delayq.store import commands
from delayq.store.commands import Audited, AuditedMessage, Found, Retention
from delayq.store.connect.exchange import all_good
from delayq.store.keys import AUDIT, Layout, queue_keys

__all__ = [
    "ACTIONS",
    "Action",
    "AuditEntry",
    "AuditPage",
    "By",
    "WantedEntries",
    "audit",
    "changed_by",
    "check_span",
    "ended_by",
    "entry_of",
]

LONGEST_REASON: Final = 200
#: What is done by hand, by its name in an entry.
Action = Literal[
    "cancel", "reschedule", "deliver_now", "redrive", "discard", "pause", "resume", "put_policy", "delete_policy", "repair",
    "write_off", "reshard", "bump_era", "undo_backfill",
]  # fmt: skip
ACTIONS: Final[tuple[str, ...]] = get_args(Action)
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
    """Who changes something by hand: his name, the id of his key, from which address, and why.

    `changed` gets the ids of the messages that are written down as changed by him: not of those that were so already.
    `patterns` are those of the topics that his key may change, if they are not all: they bound how many pauses and policies
    he may make, and are not written down.
    """

    actor: str
    key: str = ""
    address: str = ""
    reason: str = ""
    changed: list[str] = []
    patterns: tuple[str, ...] | None = None

    def check(self) -> None:
        """Raise InvalidMessage for a reason that is too long, or for what is not one line."""
        if not self.actor.isprintable():
            raise InvalidMessage("actor", "is a line of printable text")
        if len(self.reason) > LONGEST_REASON or not self.reason.isprintable():
            raise InvalidMessage("reason", f"is a line of at most {LONGEST_REASON} characters")


def entry_of(by: By | None, action: Action, retention: Retention) -> str:
    """What a script is told that writes it down; nothing if nobody is to be."""
    if by is None:
        return ""
    by.check()
    said = msgspec.json.encode(
        msgspec.to_builtins(msgspec.structs.replace(by, changed=[], patterns=None)) | {"action": action}
    ).decode()
    return f"{retention.audit_most} {retention.audit_window} {said}"


def changed_by(by: By | None) -> list[str] | None:
    """Where the ids go of what is changed by somebody."""
    return None if by is None else by.changed


class AuditEntry(msgspec.Struct, frozen=True):
    """A change by hand, and the queue of its messages (None: it concerned the whole)."""

    queue: int | None
    change: Audited


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the newest first, and the token of the next page (None: this is the last)."""

    entries: list[AuditEntry]
    next_token: str | None


def check_span(first: str, since: int | None, last: str, until: int | None) -> None:
    """Raise InvalidMessage for a time that makes no sense, by the names of its beginning and its end."""
    for field, at in ((first, since), (last, until)):
        if at is not None and not 0 <= at <= MAX_DUE:
            raise InvalidMessage(field, "lies out of the times that there are")
    if since is not None and until is not None and until <= since:
        raise InvalidMessage(last, f"is not later than {first}")


class WantedEntries(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries. Of one that concerns messages only those are told that are wanted.

    `topic` is a pattern with `*` and `?`; `key` a business key; `actor` a name, or the id of a key; `action` one of `ACTIONS`;
    they were made from `since` on and before `until` (Unix ms). None stands for any. `may` says of which topics somebody may
    know (None: of all, and of the whole).
    """

    id: str | None = None
    key: str | None = None
    topic: str | None = None
    actor: str | None = None
    action: str | None = None
    since: int | None = None
    until: int | None = None
    may: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            msgspec.structs.force_setattr(self, name, given_instant(name, getattr(self, name)))

    def check(self, limits: Limits) -> None:
        """Raise InvalidMessage for the first field that makes no sense."""
        if self.id is not None:
            check_id(self.id)
        if self.key is not None:
            check_key(self.key, limits, "key")
        if self.topic is not None:
            check_pattern(self.topic, "topic")
        if self.actor == "":
            raise InvalidMessage("actor", "is empty; leave it out for anybody")
        if self.action is not None and self.action not in ACTIONS:
            raise InvalidMessage("action", f"{self.action!r} is none of {', '.join(ACTIONS)}")
        check_span("since", self.since, "until", self.until)

    @property
    def asked(self) -> WantedEntries:
        """What a token is for: the times may be others."""
        return msgspec.structs.replace(self, since=None, until=None, may=None)

    def of(self, change: Audited) -> Audited | None:
        """What is wanted of a change; None if nothing is."""
        if self.actor not in (None, change.actor, change.key) or self.action not in (None, change.action):
            return None
        if not change.messages:
            of_messages = self.id is not None or self.key is not None or self.topic is not None
            return change if self.may is None and not of_messages else None
        messages = tuple(one for one in change.messages if self._takes(one))
        return msgspec.structs.replace(change, messages=messages) if messages else None

    def _takes(self, one: AuditedMessage) -> bool:
        if self.id is not None and one.id != self.id and not (Layout.has_suffix(one.id) and one.id[:-5] == self.id):
            return False
        if self.key is not None and self.key not in one.keys:
            return False
        if self.topic is not None and not _compiled(self.topic).match(one.topic):
            return False
        return self.may is None or self.may(one.topic)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return compiled(pattern)


class _Place(NamedTuple):
    """Of an entry, in the order of all."""

    at: int
    number: int
    queue: int


def audit(
    context: Context, limit: int, token: str | None = None, wanted: WantedEntries | None = None
) -> Plan[AuditPage]:
    """A page of at most `limit`, or fewer where not all that were looked at are wanted; raises InvalidMessage and StoreError."""
    wanted = wanted if wanted is not None else WantedEntries()
    wanted.check(context.limits)
    if limit < 1:
        raise InvalidMessage("limit", "is at least 1")
    oldest = "-" if wanted.since is None else str(wanted.since)
    before = "+" if wanted.until is None else f"({wanted.until}-0"
    behind = None if token is None else read_token(token, wanted.asked, _Place)
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
                    return AuditPage(taken, token_of(place, wanted.asked))
        if known_to is None:
            return AuditPage(taken, None)
        queues = [queue for queue, page in pages.items() if page]
        told = sum(len(one.messages) for page in pages.values() for one in page)
        step = min(2 * step, MOST_STEP) if told < FEW else STEP
    assert behind is not None
    return AuditPage(taken, token_of(behind, wanted.asked))


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


def ended_by(found: Found) -> Plan[Found]:
    """A message that was ended by hand, with who did it, if that was written down."""
    assert found.ended is not None
    stream = queue_keys(found.queue).audit
    (entries,) = yield [commands.audited(stream, LOOK, str(found.ended + APART), str(found.ended - APART))]
    for entry in entries if isinstance(entries, list) else ():
        if any(one.id == found.id for one in entry.messages):
            return msgspec.structs.replace(found, ended_by=entry.actor)
    return found
