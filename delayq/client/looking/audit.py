"""A plan that reads the audit, the newest entry first.

Entries are ordered by time, by their number within a millisecond and by queue. A token names an entry in this order, and the
next page begins behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.audit import ACTIONS
from delayq.client.looking.tokens import read_token, token_of
from delayq.client.plan import Context, Plan
from delayq.domain.message import MAX_DUE, Limits, check_id, check_key, given_instant
from delayq.domain.patterns import check_pattern, matches
from delayq.store import commands
from delayq.store.commands import Audited, AuditedMessage
from delayq.store.connect.exchange import all_good
from delayq.store.keys import Keys, Layout

#: Entries that a stream is asked for at first, and at most. One entry may name 500 messages, so the number grows only while
#: a reply names fewer than FEW messages. A page reads about MOST_LOOKS entries.
STEP: Final = 8
MOST_STEP: Final = 64
FEW: Final = 2_000
MOST_LOOKS: Final = 5_000
#: The stream of changes that concern no single queue, as if it were a queue.
WHOLE: Final = -1
#: ms by which the clocks of Redis and of a caller may differ, and the number of acts that a token remembers.
SKEW: Final = 10_000
MOST_ACTS: Final = 50
#: Messages that one entry of a page names at most.
MOST_NAMED: Final = 500


class AuditEntry(msgspec.Struct, frozen=True):
    """A manual change, and the queue of its messages (None: no messages, or messages of several queues)."""

    queue: int | None
    change: Audited


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, the newest first, and the token of the next page (None: this is the last)."""

    entries: list[AuditEntry]
    next_token: str | None

    @property
    def is_empty(self) -> bool:
        """Whether the page has no entry."""
        return not self.entries


def check_span(begin: int | None, end: int | None) -> None:
    """Raise InvalidMessage for an invalid range of times, which callers name `from` and `to`."""
    for field, at in (("from", begin), ("to", end)):
        if at is not None and not 0 <= at <= MAX_DUE:
            raise InvalidMessage(field, "is out of the range of times")
    if begin is not None and end is not None and end <= begin:
        raise InvalidMessage("to", "must be later than from")


class WantedEntries(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of entries. An entry about messages names only the messages that match.

    `topic` is a pattern with `*` and `?`, and `key` a business key. `actor` is a name or the id of an API key, and
    `action` one of `ACTIONS`. Entries were made at or after `from_` and before `to` (Unix ms). None matches everything.
    `may` returns whether the caller may see a topic. None allows all topics, and changes that concern no topic.
    """

    id: str | None = None
    key: str | None = None
    topic: str | None = None
    actor: str | None = None
    action: str | None = None
    from_: int | None = None
    to: int | None = None
    may: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        for name, field in (("from_", "from"), ("to", "to")):
            msgspec.structs.force_setattr(self, name, given_instant(field, getattr(self, name)))

    def check(self, limits: Limits) -> None:
        """Raise InvalidMessage for the first invalid field."""
        if self.id is not None:
            check_id(self.id)
        if self.key is not None:
            check_key(self.key, limits, "key")
        if self.topic is not None:
            check_pattern(self.topic, "topic")
        if self.actor == "":
            raise InvalidMessage("actor", "is empty; omit it to match all")
        if self.action is not None and self.action not in ACTIONS:
            raise InvalidMessage("action", f"{self.action!r} is not one of {', '.join(ACTIONS)}")
        check_span(self.from_, self.to)

    @property
    def asked(self) -> WantedEntries:
        """The part of the filter that a token is for: a caller may change the times between two pages."""
        return msgspec.structs.replace(self, from_=None, to=None, may=None)

    def of(self, change: Audited) -> Audited | None:
        """The matching part of a change; None if nothing matches."""
        if self.actor not in (None, change.actor, change.key) or self.action not in (None, change.action):
            return None
        if not change.messages:
            of_messages = self.id is not None or self.key is not None or self.topic is not None
            return change if self.may is None and not of_messages else None
        messages = tuple(one for one in change.messages if self._takes(one))
        if not messages:
            return None
        of_all = self.id is None and self.key is None and self.topic is None and self.may is None
        return msgspec.structs.replace(change, messages=messages, count=change.count if of_all else len(messages))

    def _takes(self, one: AuditedMessage) -> bool:
        if self.id is not None and one.id != self.id and not (Layout.has_suffix(one.id) and one.id[:-5] == self.id):
            return False
        if self.key is not None and self.key not in one.keys:
            return False
        if self.topic is not None and not matches(self.topic, one.topic):
            return False
        return self.may is None or self.may(one.topic)


class _Place(NamedTuple):
    """The place of an entry in the order of all streams."""

    at: int
    number: int
    queue: int


class _Behind(NamedTuple):
    """The entry behind which a page begins, and acts of former pages: other queues may have older entries of these acts."""

    at: int
    number: int
    queue: int
    acts: tuple[str, ...] = ()


class _Taken:
    """The entries of a page. The parts of one act in several queues are one entry."""

    def __init__(self, wanted: WantedEntries, former_acts: Iterable[str]) -> None:
        self.entries: list[AuditEntry] = []
        self._wanted = wanted
        self._former_acts = dict.fromkeys(former_acts)
        self._of_acts: dict[str, int] = {}

    def take(self, place: _Place, change: Audited, *, more: bool) -> None:
        """Add an entry if it matches; without `more`, only if it belongs to an act of the page."""
        act = f"{change.act} {change.actor} {change.key}" if change.act else ""  # an act belongs to one actor and key
        at = self._of_acts.get(act)
        if act in self._former_acts or (at is None and not more):
            return
        if (shown := self._wanted.of(change)) is None:
            return
        entry = AuditEntry(None if place.queue == WHOLE else place.queue, shown)
        if at is not None:
            self.entries[at] = _together(self.entries[at], entry)
            return
        if act:
            self._of_acts[act] = len(self.entries)
        self.entries.append(entry)

    def began(self) -> int | None:
        """Return the approximate time at which the oldest act of the page began (Unix ms); None without an act."""
        return min((began - SKEW for act in self._of_acts if (began := _began(act)) is not None), default=None)

    def behind(self, place: _Place) -> _Behind:
        """Return the place of the next page. If there are many acts, keep those that began first, because they may have
        entries for longest.
        """
        acts = sorted((_began(act) or 0, act) for act in (*self._former_acts, *self._of_acts))
        return _Behind(*place, tuple(act for began, act in acts if began - SKEW <= place.at)[:MOST_ACTS])


def _began(act: str) -> int | None:
    text = act.partition("-")[0]
    return int(text) if text.isdigit() else None


def _together(newer: AuditEntry, older: AuditEntry) -> AuditEntry:
    """Merge two entries of one act."""
    one, other = newer.change, older.change
    details = [other.detail] if older.queue is None and other.detail else [other.detail, one.detail]
    return AuditEntry(
        newer.queue if newer.queue == older.queue else None,
        msgspec.structs.replace(
            one,
            messages=(*one.messages, *other.messages)[:MOST_NAMED],
            detail="\n".join(dict.fromkeys(filter(None, details))),
            count=one.count + other.count,
            since=min(one.since, other.since),
        ),
    )


def audit(
    context: Context, limit: int, token: str | None = None, wanted: WantedEntries | None = None
) -> Plan[AuditPage]:
    """Read a page of at most `limit` entries, or of fewer if some do not match; raises InvalidMessage and StoreError."""
    wanted = wanted if wanted is not None else WantedEntries()
    wanted.check(context.limits)
    if limit < 1:
        raise InvalidMessage("limit", "must be at least 1")
    oldest = "-" if wanted.from_ is None else str(wanted.from_)
    before = "+" if wanted.to is None else f"({wanted.to}-0"
    begin = None if token is None else read_token(token, wanted.asked, _Behind)
    behind = None if begin is None else _Place(*begin[:3])
    queues = [WHOLE, *range(context.layouts.known[-1].numbers.stop)]
    taken = _Taken(wanted, () if begin is None else begin.acts)
    full: _Place | None = None  # the end of the page: behind it only the remaining entries of its acts are read
    looked, step = 0, STEP
    while looked < MOST_LOOKS:
        asked = [
            commands.audited(_stream(context.keys, queue), step, _newest(queue, behind) or before, oldest)
            for queue in queues
        ]
        pages = dict(zip(queues, all_good((yield asked)), strict=True))
        found = sorted(_placed(pages), reverse=True)
        # A stream that has more entries may have the next one. So entries behind its last known one have to wait.
        known_to = max(
            (_Place(page[-1].at, page[-1].number, queue) for queue, page in pages.items() if len(page) == step),
            default=None,
        )
        for place, change in found:
            if known_to is not None and place < known_to:
                break
            behind, looked = place, looked + 1
            taken.take(place, change, more=full is None)
            if full is None and len(taken.entries) == limit:
                full = place
        began = taken.began()
        if full is not None and (known_to is None or began is None or known_to.at < began):
            return AuditPage(taken.entries, token_of(taken.behind(full), wanted.asked))
        if known_to is None:
            return AuditPage(taken.entries, None)
        queues = [queue for queue, page in pages.items() if page]
        named = sum(len(one.messages) for page in pages.values() for one in page)
        step = min(2 * step, MOST_STEP) if named < FEW else STEP
    assert behind is not None
    return AuditPage(taken.entries, token_of(taken.behind(full or behind), wanted.asked))


def _stream(keys: Keys, queue: int) -> str:
    return keys.audit if queue == WHOLE else keys.queue(queue).audit


def _newest(queue: int, behind: _Place | None) -> str:
    """The id of the newest entry of a stream that lies behind a place."""
    if behind is None:
        return ""
    return f"{'' if queue < behind.queue else '('}{behind.at}-{behind.number}"


def _placed(pages: dict[int, list[Audited]]) -> Iterator[tuple[_Place, Audited]]:
    for queue, page in pages.items():
        for one in page:
            yield _Place(one.at, one.number, queue), one
