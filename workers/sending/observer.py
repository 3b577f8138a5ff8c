"""The events of a worker that its metrics count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from delayq.domain.nodes import LATENESS
from delayq.store.commands import Pulled, Released
from delayq.targets import Result
from delayq.telemetry.histogram import Histogram
from workers.sending.message import InFlightMessage


class Observer:
    """Counts events; this one counts none. Its methods must not block or raise.

    `lateness` has how late messages were, and `failures` is the number of calls of `failed`. The node's
    line has both, and the counts of `delivered`.
    """

    def __init__(self) -> None:
        self.lateness = Histogram(LATENESS)
        self.failures = 0

    def delivered(self) -> tuple[int, Mapping[str, int]]:
        """How many messages pulls appended to streams, and how many sends of each route succeeded, since the start."""
        return 0, {}

    def pulled(self, pulled: Pulled | Released) -> None:
        """A pull returned messages, or appended them to streams in the same Redis."""

    def sent(self, route: str, results: Sequence[Result], took: int) -> None:
        """A send ended after `took` ms."""

    def circuit(self, route: str, open: bool) -> None:
        """A circuit opened or closed."""

    def failed(self) -> None:
        """A pull job met an unexpected error, or Redis refused a command of it."""

    def acked(self, messages: Sequence[InFlightMessage], now: int) -> None:
        """Delivered messages were removed from the queue."""


NO_OBSERVER: Final = Observer()
