"""A plan that reads dead letters of all queues by the time of their death.

The order is (time of death, queue, place in the queue among letters of the same time). A page first asks every queue for
times and ids only and merges them. Then it reads the letters that it has chosen, because bodies may be large.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from delayq.base.errors import InvalidMessage
from delayq.client.looking.dead_groups import reason_class
from delayq.client.plan import Context, Plan
from delayq.domain.message import check_id
from delayq.domain.patterns import check_pattern, matches
from delayq.store import commands
from delayq.store.commands import Command, Found
from delayq.store.connect.exchange import all_good

#: Letters that a page with a filter reads at least, because few of them may match.
LOOKS: Final = 25
#: A page ends after this number of bytes of bodies. The first answers have a few letters, because their sizes are unknown.
MOST_BYTES: Final = 4 * 1024 * 1024
FIRST: Final = 4
#: Times and ids that a queue is asked for at once, at least.
LEAST: Final = 8


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Dead letters by the time of their death, and the token of the next page (None: this is the last).

    `size` is the number of bytes of the bodies that were read, including those of letters that do not match.
    """

    letters: list[Found]
    next_token: str | None
    size: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the page has no letter."""
        return not self.letters


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters, and their order.

    `topic` is a pattern with `*` and `?`. `reason` is a part of the reason in any case, and `group` a class of reasons
    from `dead_groups`. The letters died at or after `from_` and before `to` (Unix ms). `may` returns whether the caller
    may see a topic. None allows all topics, and letters that cannot be read.
    """

    newest: bool = False
    topic: str = ""
    reason: str = ""
    group: str | None = None
    from_: int | None = None
    to: int | None = None
    may: Callable[[str], bool] | None = None

    @property
    def picky(self) -> bool:
        """Whether a letter has to be read to know whether it matches."""
        return bool(self.topic or self.reason) or self.group is not None or self.may is not None

    def takes(self, letter: Found) -> bool:
        """Whether the topic and the reason match. A letter whose record cannot be read has no topic."""
        if self.reason and self.reason.lower() not in (letter.reason or "").lower():
            return False
        if self.group is not None and reason_class(letter.reason or "") != self.group:
            return False
        if not self.topic and self.may is None:
            return True
        try:
            topic = letter.record.topic if letter.record is not None else None
        except ValueError:  # its topic is not text
            topic = None
        return (
            topic is not None
            and (not self.topic or matches(self.topic, topic))
            and (self.may is None or self.may(topic))
        )


class _Place(NamedTuple):
    """The place of a letter in the order of all queues."""

    buried: int
    queue: int
    id: str


def _place(letter: Found) -> _Place:
    return _Place(letter.ended or 0, letter.queue, letter.id)


def dead_letters(
    context: Context, limit: int, token: str | None = None, wanted: Wanted | None = None
) -> Plan[DeadLetterPage]:
    """Read a page of at most `limit` dead letters, or of fewer if some that were read do not match, or if they are large.

    Raises StoreError and InvalidMessage.
    """
    wanted = wanted if wanted is not None else Wanted()
    if wanted.topic:
        check_pattern(wanted.topic, "topic")
    page = _Page(context, wanted, _read_token(token, newest=wanted.newest))
    chosen = yield from page.choose(max(limit, LOOKS) if wanted.picky else limit)
    letters, looked, size = yield from page.read(chosen)
    is_last = page.ended and looked == len(chosen)
    taken: list[Found] = []
    for letter in letters:
        if not wanted.takes(letter):
            continue
        if len(taken) == limit:  # the next page begins behind the last one that was taken
            last = taken[-1]
            return DeadLetterPage(taken, _token(_place(last), newest=wanted.newest), size)
        taken.append(letter)
    return DeadLetterPage(taken, None if is_last else _token(chosen[looked - 1], newest=wanted.newest), size)


class _Page:
    """The letters behind a place, merged from all queues."""

    def __init__(self, context: Context, wanted: Wanted, behind: _Place | None) -> None:
        self._context = context
        self._wanted = wanted
        self._behind = behind
        self._found: dict[int, deque[_Place]] = {}
        self._last: dict[int, _Place] = {}  # where each queue that may have more letters continues
        self.ended = False

    def _order(self, place: _Place) -> tuple[int, int]:
        return (-place.buried, -place.queue) if self._wanted.newest else (place.buried, place.queue)

    def _begin(self, queue: int) -> tuple[int, str] | None:
        """The letter of a queue behind which the page begins."""
        newest, begin, end = self._wanted.newest, self._wanted.from_, self._wanted.to
        first: tuple[int, str] | None = None
        if newest and end is not None:
            first = (end - 1, "")
        elif not newest and begin is not None:
            first = (begin, "")
        if self._behind is None:
            return first
        buried, at, id = self._behind
        if queue == at:
            behind = (buried, id)
        elif (queue < at) == newest:  # letters of the same time in these queues come behind the place
            behind = (buried, "")
        else:
            behind = (buried - 1 if newest else buried + 1, "")
        if first is None or (behind[0] <= first[0] if newest else behind[0] >= first[0]):
            return behind
        return first

    def choose(self, most: int) -> Plan[list[_Place]]:
        """The places of the next letters; `ended` is True if none follow them."""
        known = self._context.layouts.queues
        step = max(LEAST, -(-2 * most // len(known)))
        listed, *pages = all_good(
            (yield [commands.layouts(self._context.keys), *(self._ask(queue, step) for queue in known)])
        )
        self._context.layouts.take(listed)
        self._take(known, pages, step)
        chosen: list[_Place] = []
        asking: Sequence[int] = [queue for queue in self._context.layouts.queues if queue not in self._found]
        while True:
            if asking:
                self._take(asking, all_good((yield [self._ask(queue, step) for queue in asking])), step)
            while not (asking := [queue for queue in self._last if not self._found[queue]]):
                heads = [places[0] for places in self._found.values() if places]
                first = min(heads, key=self._order, default=None)
                if first is None or self._is_over(first):
                    self.ended = True
                    return chosen
                if len(chosen) == most:
                    return chosen
                chosen.append(self._found[first.queue].popleft())

    def _ask(self, queue: int, step: int) -> Command[Any]:
        last = self._last.get(queue)
        after = self._begin(queue) if last is None else (last.buried, last.id)
        return commands.deaths(self._context.keys.queue(queue), step, after, newest=self._wanted.newest)

    def _take(self, queues: Sequence[int], pages: Sequence[list[tuple[int, str]]], step: int) -> None:
        for queue, page in zip(queues, pages, strict=True):
            self._found[queue] = deque(_Place(buried, queue, id) for buried, id in page)
            self._last.pop(queue, None)
            if len(page) == step:
                self._last[queue] = self._found[queue][-1]

    def _is_over(self, place: _Place) -> bool:
        begin, end = self._wanted.from_, self._wanted.to
        if self._wanted.newest:
            return begin is not None and place.buried < begin
        return end is not None and place.buried >= end

    def read(self, chosen: Sequence[_Place]) -> Plan[tuple[list[Found], int, int]]:
        """The letters at these places, in order, without those that are no dead letters any more.

        They end after `MOST_BYTES` of bodies. Also return how many places were read, and the number of these bytes. The sizes are
        not known before, so the first answers of Redis have few letters.
        """
        letters, at, size, step = list[Found](), 0, 0, FIRST
        while at < len(chosen) and size < MOST_BYTES:
            some = chosen[at : at + step]
            ids: dict[int, list[str]] = {}
            for place in some:
                ids.setdefault(place.queue, []).append(place.id)
            answers = all_good((yield [commands.letters(self._context.keys.queue(queue), ids[queue]) for queue in ids]))
            found = {_place(one): one for page in answers for one in page if one is not None}
            letters += (found[place] for place in some if place in found)
            size += sum(len(one.record.payload) for one in found.values() if one.record is not None)
            at += len(some)
            step = max(1, min(2 * step, MOST_BYTES * at // max(1, size) - at))
        return letters, at, size


def _token(last: _Place, *, newest: bool) -> str:
    text = f"{'newest' if newest else 'oldest'} {last.buried} {last.queue} {last.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str | None, *, newest: bool) -> _Place | None:
    if token is None:
        return None
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        order, buried, queue, id = text.split(" ")
        place = _Place(abs(int(buried)) % 2**53, min(abs(int(queue)), 2**53), check_id(id))
    except (ValueError, InvalidMessage):
        raise InvalidMessage("pageToken", "is not a token of this API; start without a token") from None
    if order not in ("newest", "oldest"):
        raise InvalidMessage("pageToken", "is not a token of this API; start without a token")
    if (order == "newest") != newest:
        raise InvalidMessage(
            "pageToken", f"is a token of the list with the {order} first; use the same order, or start again"
        )
    return place
