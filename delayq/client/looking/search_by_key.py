"""A search by a business key: messages that carry it and match a filter, by id, one page at a time.

The index of each queue has ids in order, and the lowest ids of all queues are read first. Each page is sorted by due time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from delayq.base.errors import InvalidMessage
from delayq.client.looking.messages import get
from delayq.client.looking.search import (
    ENDED_STATES,
    MOST_BYTES,
    MOST_LOOKED,
    SEARCHED_STATES,
    Search,
    SearchPage,
    check_filter,
    is_among,
    order_of,
    takes,
    timeless,
)
from delayq.client.looking.tokens import read_token, token_of
from delayq.client.plan import Context, Plan, every_queue
from delayq.domain.message import check_key
from delayq.store import commands
from delayq.store.commands import Filter, Found
from delayq.store.connect.exchange import all_good

#: Ids that a queue is asked for at once, and messages that are read at once: at first, and at most.
IDS: Final = 200
FIRST_READ: Final = 8
MOST_READ: Final = 100


def search_of(context: Context, wanted: Filter, limit: int, token: str | None) -> Search | SearchByKey:
    """Return the page of a search, by the index of a key if there is one; raises InvalidMessage for an invalid filter."""
    check_filter(wanted)
    if limit < 1:
        raise InvalidMessage("limit", "must be at least 1")
    return (Search if wanted.key is None else SearchByKey)(context, wanted, limit, token)


class SearchByKey:
    """One page of a search by a business key, with the methods of `Search`."""

    def __init__(self, context: Context, wanted: Filter, limit: int, token: str | None = None) -> None:
        assert wanted.key is not None
        check_key(wanted.key, context.limits, "key")
        self._context = context
        self._wanted = wanted
        self._key = wanted.key
        self._limit = limit
        self._behind = read_token(token, timeless(wanted), str) if token is not None else ""
        self._ended = IDS if set(wanted.states).intersection(ENDED_STATES) else 0
        self._ids: dict[int, deque[str]] = {}  # the next ids of each queue
        self._unread: dict[int, str] = {}  # queues that have more ids behind this one
        self._found: list[Found] = []
        self._looked = 0
        self._told = 0  # of those, the messages that the caller may see: `looked` reveals no others
        self._looked_bytes = 0
        self._found_bytes = 0

    def begin(self) -> Plan[None]:
        """Read which queues have messages with this key."""
        self._take((yield from every_queue(self._context, lambda keys: self._ask(keys.number, self._behind))))

    def _ask(self, queue: int, behind: str) -> commands.Command[commands.Carriers]:
        return commands.find_by_key(
            self._context.keys.queue(queue),
            self._key,
            IDS,
            behind,
            ended=self._ended,
            retention=self._context.retention,
        )

    def _take(self, pages: dict[int, commands.Carriers]) -> None:
        for queue, ids in pages.items():
            self._unread.pop(queue, None)
            if every := sorted((*ids, *ids.ended)):
                self._ids[queue] = deque(every)
            if ids.behind:
                self._unread[queue] = ids.behind

    @property
    def is_empty(self) -> bool:
        """Whether the page has no message so far."""
        return not self._found

    def goes_on(self, *, in_time: bool) -> bool:
        """Return whether the page needs another step. Every page makes at least one step, so that it makes progress."""
        if not self._ids and not self._unread:
            return False
        full = len(self._found) >= self._limit or self._found_bytes >= MOST_BYTES
        return not self._looked or (in_time and not full and (self.is_empty or self._looked < MOST_LOOKED))

    def step(self) -> Plan[None]:
        """Read the next messages."""
        asked = {queue: behind for queue, behind in self._unread.items() if queue not in self._ids}
        if asked:
            answers = all_good((yield [self._ask(queue, behind) for queue, behind in asked.items()]))
            self._take(dict(zip(asked, answers, strict=True)))
        ids = self._next()
        for one in (yield from get(self._context, ids)):
            topic = one.known_topic if one is not None else None
            self._told += is_among(self._wanted, topic or "")
            if one is None or one.state not in (*SEARCHED_STATES, *self._wanted.states):
                continue
            size = _size(one)
            self._looked_bytes += size
            if takes(self._wanted, one):
                self._found.append(one)
                self._found_bytes += size
        self._looked += len(ids)

    def _next(self) -> list[str]:
        """The next ids of all queues, up to the place where a queue has to be asked for more."""
        most = MOST_READ if self._looked else FIRST_READ
        if self._looked_bytes:
            most = max(1, min(most, MOST_BYTES * self._looked // self._looked_bytes))
        ids: list[str] = []
        if self._unread.keys() - self._ids:
            return ids  # the next id of that queue may be the lowest: so far all its messages have ended
        while self._ids and len(ids) < most:
            queue = min(self._ids, key=lambda one: self._ids[one][0])
            ids.append(self._ids[queue].popleft())
            if not self._ids[queue]:
                del self._ids[queue]
                if queue in self._unread:
                    break
        if ids:
            self._behind = ids[-1]
        return ids

    def end(self) -> Plan[SearchPage]:
        """Return the page."""
        yield from ()  # everything was read before
        size, shown = 0, self._found[: self._limit]
        for number, one in enumerate(shown):
            size += _size(one)
            if size > MOST_BYTES and number:
                shown = shown[:number]
                break
        token = None
        if len(shown) < len(self._found):
            token = token_of(shown[-1].id, timeless(self._wanted))
        elif self._ids or self._unread:
            token = token_of(self._behind, timeless(self._wanted))
        return SearchPage(sorted(shown, key=order_of), self._told, token)


def _size(one: Found) -> int:
    return one.record.size if one.record is not None else 0
