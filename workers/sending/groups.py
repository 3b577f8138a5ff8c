"""The groups of messages at a sender, and the lines in which groups wait for permits."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from delayq.targets import Result
from workers.limits.limit import Limit
from workers.sending.message import InFlightMessage

#: Reports the results of a batch to the queue's owner (None: the batch was not sent). Sending threads call it.
Report = Callable[[Sequence[InFlightMessage], Sequence[Result] | None], None]


class Group(msgspec.Struct, frozen=True):
    """Messages of one queue, accepted at `since` (monotonic ms). `stalls` is the number of stalls at their pull."""

    report: Report
    batch: list[InFlightMessage]
    stalls: int
    since: int

    def of(self, batch: list[InFlightMessage]) -> Group:
        """Return a group of some of its messages."""
        return Group(self.report, batch, self.stalls, self.since)

    @property
    def has_limits(self) -> bool:
        """Whether any of its messages has limits."""
        for message in self.batch:  # noqa: SIM110  # a generator would cost each lone message more
            if message.limits:
                return True
        return False

    @property
    def by_limits(self) -> Mapping[tuple[Limit, ...], list[InFlightMessage]]:
        """The messages by their limits."""
        found: dict[tuple[Limit, ...], list[InFlightMessage]] = {}
        for message in self.batch:
            if (some := found.get(message.limits)) is None:
                found[message.limits] = [message]
            else:
                some.append(message)
        return found

    @property
    def weight(self) -> int:
        """The weight of its messages."""
        return sum([message.weight for message in self.batch])

    @property
    def place(self) -> tuple[int, int, bytes]:
        """Its place in a line: its time, then the place of its first message in the queue."""
        return self.since, *self.batch[0].place


class Lines:
    """Groups that wait for permits, in the order in which they came. Each limit with too few permits has a line.

    The sender's lock guards it.
    """

    def __init__(self) -> None:
        self._lines: dict[Limit, list[Group]] = {}
        self._ready: dict[Limit, None] = {}  # limits that may have permits again
        self._weights: Counter[Report] = Counter()  # of each queue
        self.count = 0  # messages in all lines

    @property
    def ready(self) -> Limit | None:
        """A limit that has a line and may have permits again."""
        return next(iter(self._ready), None)

    def notice(self, limits: Iterable[Limit]) -> None:
        """Note that these limits may have permits again."""
        for limit in limits:
            if limit in self._lines:
                self._ready[limit] = None

    def wait(self, limit: Limit) -> None:
        """Note that a limit has too few permits now."""
        self._ready.pop(limit, None)

    def first(self, limit: Limit) -> Group:
        """The first group in the line of a limit."""
        return self._lines[limit][0]

    def of(self, limits: Iterable[Limit]) -> Limit | None:
        """One of these limits that has a line."""
        return next((limit for limit in limits if limit in self._lines), None) if self._lines else None

    def add(self, limit: Limit, group: Group) -> None:
        """Insert a group into the line of a limit."""
        insort(self._lines.setdefault(limit, []), group, key=lambda one: one.place)
        self._weights[group.report] += group.weight
        self.count += len(group.batch)

    def pop(self, limit: Limit) -> Group:
        """Remove the first group of a line, and return it."""
        group = self._lines[limit].pop(0)
        self._weights[group.report] -= group.weight
        self.count -= len(group.batch)
        self._end_if_empty(limit)
        return group

    def _end_if_empty(self, limit: Limit) -> None:
        if not self._lines[limit]:
            del self._lines[limit]
            self._ready.pop(limit, None)

    def count_of(self, limit: Limit) -> int:
        """The number of messages that wait for a limit."""
        return sum([len(group.batch) for group in list(self._lines.get(limit, ()))])

    def weight_of(self, report: Report) -> int:
        """The weight of a queue's messages in all lines."""
        return self._weights[report]

    def withdraw(self, report: Report, which: Callable[[InFlightMessage], bool]) -> list[InFlightMessage]:
        """Remove the messages of a queue for which `which` is true, and return them."""
        taken: list[InFlightMessage] = []
        for limit, line in list(self._lines.items()) if self._weights[report] else ():
            line[:] = withdraw_from(line, report, which, taken)
            self._end_if_empty(limit)
        self.count -= len(taken)
        self._weights[report] -= sum([message.weight for message in taken])
        return taken


def withdraw_from(
    groups: Iterable[Group], report: Report, which: Callable[[InFlightMessage], bool], taken: list[InFlightMessage]
) -> list[Group]:
    """Return the groups without the messages of a queue for which `which` is true. Those are added to `taken`."""
    kept = []
    for group in groups:
        gone = {message for message in group.batch if which(message)} if group.report == report else set()
        if gone:
            taken += [message for message in group.batch if message in gone]
            group = group.of([message for message in group.batch if message not in gone])
        if group.batch:
            kept.append(group)
    return kept
