"""A search over all queues by due time, one page at a time; each page reads a bounded number of messages.

The order is (due time, queue, set, ticket), with the time of death in place of the due time for dead letters. Every set is
read from the beginning of the page, step by step, and always the set that was read the least far. The page ends where every
set has been read. So a message that does not change is on exactly one page, whatever other messages do.

A step reads only the places and sizes of messages. Bodies are read only for the page itself, so a large message beyond the
page costs no more than a small one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from re import fullmatch
from typing import Final, NamedTuple

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.looking.explain import explain_parked
from delayq.client.looking.tokens import read_token, token_of
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.message import MAX_DUE, Limits, Message, State
from delayq.domain.patterns import check_pattern, matches
from delayq.store import commands
from delayq.store.commands import DEAD, QUEUE, QUEUE_STATES, Command, Filter, Found, Page, QueueStats, aside
from delayq.store.connect.exchange import all_good
from delayq.store.keys import ParkedSet

__all__ = [
    "ENDED_STATES", "MOST_BYTES", "MOST_LOOKED", "MOST_SECONDS",
    "PAUSE", "SEARCHED_STATES", "SECONDS", "Search", "SearchPage", "check_filter", "has_topic",
    "is_among", "order_of", "read_token", "takes", "token_of",
]  # fmt: skip

#: Seconds between two steps, in which Redis serves other clients.
PAUSE: Final = 0.0005
#: The messages that one step reads, and the sets.
STEP: Final = 200
STEP_SETS: Final = 25
#: A page ends at the first of these bounds: messages read, bytes of records shown, seconds.
MOST_LOOKED: Final = 20_000
MOST_BYTES: Final = 1024 * 1024
SECONDS: Final = 0.2
#: Seconds of a page that has no message yet: it reads as many messages as it can in this time.
MOST_SECONDS: Final = 1.0

#: The states of a message that has not ended.
SEARCHED_STATES: Final = (*QUEUE_STATES, State.PARKED, State.HELD, State.DEAD)
#: The states of a message that has ended. Only its id, business keys and topic are remembered, so only a key finds it.
ENDED_STATES: Final = (State.DELIVERED, State.CANCELLED, State.REMOVED_IN_FLIGHT, State.DISCARDED)
_PREFIX: Final = r"[A-Za-z0-9._:-]{1,128}"


class SearchPage(msgspec.Struct, frozen=True):
    """Messages by due time, the number of messages read for them, and the token of the next page (None: this is the last).

    With `among` in the filter, `looked` counts only messages of these topics, so that it reveals nothing about others.
    """

    messages: list[Found]
    looked: int
    next_token: str | None


def check_filter(wanted: Filter) -> None:
    """Raise InvalidMessage for the first invalid field of a filter."""
    if wanted.topic:
        check_pattern(wanted.topic, "topic")
    if wanted.id_prefix and not fullmatch(_PREFIX, wanted.id_prefix):
        raise InvalidMessage("idPrefix", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
    name, value = wanted.property or ("name", "")
    try:
        Message(topic="t", delay_time=0, tags=wanted.tags, properties={name: value}).validate(Limits(), 0)
    except InvalidMessage as error:
        raise InvalidMessage("tags" if error.field == "tags" else "property", error.reason) from None
    for state in wanted.states:
        if wanted.key is None and state in ENDED_STATES:
            raise InvalidMessage("state", f"{state!r} needs a business key")
        if state not in (*SEARCHED_STATES, *ENDED_STATES):
            raise InvalidMessage(
                "state",
                f"{state!r} is not one of {', '.join(SEARCHED_STATES)}; with a key also {', '.join(ENDED_STATES)}",
            )
    for field, due in (("dueFrom", wanted.due_from), ("dueTo", wanted.due_to)):
        if due is not None and not 0 <= due <= MAX_DUE:
            raise InvalidMessage(field, "is out of the range of due times")
    if wanted.due_from is not None and wanted.due_to is not None and wanted.due_to <= wanted.due_from:
        raise InvalidMessage("dueTo", "must be later than dueFrom")


def takes(wanted: Filter, found: Found) -> bool:
    """Whether a message that was found in another way matches the filter."""
    record = found.record
    if not wanted.wants(found.state) or not found.id.startswith(wanted.id_prefix):
        return False
    if record is None:
        ended = found.state in ENDED_STATES
        dues = wanted.due_from is not None or wanted.due_to is not None
        if wanted.tags or wanted.property or (dues and ended):
            return False
        if wanted.topic and (found.topic is None or not has_topic(wanted, found.topic)):
            return False
        return wanted.among is None or ended  # the API decides by the topic or the id of an ended message
    due = _due_of(found)
    return (
        has_topic(wanted, record.topic)
        and wanted.tags in ("", record.tags)
        and (wanted.property is None or wanted.property in record.properties.items())
        and (wanted.due_from or 0) <= due
        and (wanted.due_to is None or due < wanted.due_to)
    )


def order_of(found: Found) -> tuple[int, str]:
    """The order of messages that were found in another way: by due time, then by id."""
    return _due_of(found), found.id


def _due_of(found: Found) -> int:
    """The due time; for a parked message the time that was asked for, for a dead letter the time of death."""
    due = found.due if found.ended is None else found.ended
    if due is None and (message := found.message) is not None:
        due = message.expect_date
    return MAX_DUE if due is None else due


def has_topic(wanted: Filter, topic: str) -> bool:
    """Whether messages of a topic may match the filter."""
    return is_among(wanted, topic) and (not wanted.topic or matches(wanted.topic, topic))


def is_among(wanted: Filter, topic: str) -> bool:
    """Whether the caller may see messages of a topic."""
    return wanted.among is None or any(matches(one, topic) for one in wanted.among)


class _Place(NamedTuple):
    """The place of a message in the order of the search; `name` is the name of its set."""

    due: int
    queue: int
    name: str
    ticket: bytes


class _Seen(NamedTuple):
    """A message that matches, with the generation and the size of its record, which is not read yet."""

    place: _Place
    found: Found
    generation: bytes
    size: int


class _Source:
    """A set, and how far it has been read."""

    __slots__ = ("at", "name", "queue")

    def __init__(self, queue: int, name: str) -> None:
        self.queue = queue
        self.name = name
        self.at: _Place | None = None

    def behind(self, place: _Place | None) -> tuple[int, bytes] | None:
        """The due time and ticket behind which to read, if the page begins behind this place."""
        if self.at is not None:
            return self.at.due, self.at.ticket
        if place is None:
            return None
        order = (self.queue, self.name), (place.queue, place.name)
        if order[0] == order[1]:
            return place.due, place.ticket
        return place.due + (order[0] < order[1]), b""


class Search:
    """One page of a search: call `begin`, then `step` while it `goes_on`, then `end`. Wait a moment between two steps."""

    def __init__(self, context: Context, wanted: Filter, limit: int, token: str | None = None) -> None:
        self._context = context
        self._wanted = wanted
        self._limit = limit
        self._behind = read_token(token, timeless(wanted), _Place) if token is not None else None
        self._unread: list[_Source] = []
        self._sources: list[_Source] = []  # sets that were read and have more
        self._found: list[_Seen] = []
        self._looked = 0
        self._known = 0  # of those, the messages that the caller may see
        self._most = STEP

    def begin(self) -> Plan[None]:
        """Read which sets there are."""
        queues = yield from every_queue(self._context, commands.stats)
        self._unread = [_Source(queue, name) for queue, stats in queues.items() for name in self._names(stats)]
        self._most = max(8, -(-2 * self._limit // max(1, len(self._unread))))

    def _names(self, stats: QueueStats) -> Iterator[str]:
        wants = self._wanted.wants
        if stats.scheduled and wants(*QUEUE_STATES):
            yield QUEUE
        for name in stats.parked_sets:  # the name of a set of held messages, or of a lane, has the topic
            topic = ParkedSet.topic(name)
            if wants(aside(name)) and (topic is None or has_topic(self._wanted, topic)):
                yield name
        if stats.dead and wants(State.DEAD):
            yield DEAD

    @property
    def is_empty(self) -> bool:
        """Whether the page has no message so far."""
        return not self._read()

    def goes_on(self, *, in_time: bool) -> bool:
        """Whether the page needs another step. Every set is read once, so that each page makes progress."""
        if self._unread:
            return True
        if not self._sources or not in_time:
            return False
        read = self._read()
        if not read:  # so that a page is not empty although a message could be found in time
            return True
        return self._looked < MOST_LOOKED and len(read) <= self._limit and sum(one.size for one in read) < MOST_BYTES

    def step(self) -> Plan[None]:
        """Read the next messages of the sets that were read the least far."""
        if self._unread:
            asked, self._unread = self._unread[:STEP_SETS], self._unread[STEP_SETS:]
        else:
            asked = [min(self._sources, key=_at)]
            self._sources.remove(asked[0])
        pages = all_good((yield [self._ask(one, len(asked)) for one in asked]))
        for source, page in zip(asked, pages, strict=True):
            self._take(source, page)

    def _ask(self, source: _Source, share: int) -> Command[Page]:
        return commands.page(
            self._context.keys.queue(source.queue),
            source.name,
            self._wanted,
            after=source.behind(self._behind),
            look=STEP // share,
            most_bytes=MOST_BYTES // share,
            most=min(self._most, STEP // share),
            only_sizes=True,
        )

    def _take(self, source: _Source, page: Page) -> None:
        self._looked += page.looked
        self._known += page.known
        for (due, ticket), one, (generation, size) in zip(page.places, page.messages, page.sizes, strict=True):
            if one.state in (State.PARKED, State.HELD):
                one = msgspec.structs.replace(one, due=None)
            self._found.append(_Seen(_Place(due, source.queue, source.name, ticket), one, generation, size))
        if page.after is not None:
            source.at = _Place(page.after[0], source.queue, source.name, page.after[1])
            self._sources.append(source)

    def _read(self) -> list[_Seen]:
        """The messages found up to the place that every set has reached."""
        if not self._sources:
            return self._found
        frontier = min(map(_at, self._sources))
        return [one for one in self._found if one.place <= frontier]

    def end(self) -> Plan[SearchPage]:
        """Read the messages of the page and return it."""
        found = sorted(self._read(), key=lambda one: one.place)
        shown = found[: self._shown(found)]
        token = None
        if len(found) > len(shown):
            token = token_of(shown[-1].place, timeless(self._wanted))
        elif self._sources:
            token = token_of(min(map(_at, self._sources)), timeless(self._wanted))
        messages = yield from self._with_records(shown)
        explained = yield from explain_parked(self._context.keys, messages)
        return SearchPage([explained.get(one.id, one) for one in messages], self._known, token)

    def _shown(self, found: Sequence[_Seen]) -> int:
        """The number of these messages that fit the page's bound of bytes, but at least one."""
        size = 0
        for number, one in enumerate(found[: self._limit]):
            size += one.size
            if size > MOST_BYTES:
                return max(1, number)
        return min(len(found), self._limit)

    def _with_records(self, shown: Sequence[_Seen]) -> Plan[list[Found]]:
        """The messages with their records, without those that have changed since the step that found them."""
        messages: list[Found] = []
        for first in range(0, len(shown), STEP):
            chunk = shown[first : first + STEP]
            queues: dict[int, list[str]] = {}
            for one in chunk:
                queues.setdefault(one.place.queue, []).append(one.found.id)
            answers = all_good(
                (yield [commands.records(self._context.keys.queue(queue), ids) for queue, ids in queues.items()])
            )
            raw = {
                queue: dict(zip(ids, records, strict=True))
                for (queue, ids), records in zip(queues.items(), answers, strict=True)
            }
            for one in chunk:
                record = raw[one.place.queue][one.found.id]
                if record is not None and record.startswith(one.generation):
                    messages.append(msgspec.structs.replace(one.found, record=commands.read_record(record)))
        return messages


def _at(source: _Source) -> _Place:
    assert source.at is not None
    return source.at


def timeless(wanted: Filter) -> Filter:
    """The part of a filter that a token is for: a caller may change the due times between two pages."""
    return msgspec.structs.replace(wanted, due_from=None, due_to=None)
