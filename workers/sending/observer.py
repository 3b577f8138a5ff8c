"""What is told to the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delayq.store.commands import Pulled
from delayq.targets import Result
from workers.sending.message import InFlightMessage

__all__ = ["Observer"]


class Observer(Protocol):
    """Is told what happens; must not block or raise."""

    def pulled(self, pulled: Pulled) -> None:
        """Messages were taken, or appended to streams in the same Redis."""

    def sent(self, route: str, results: Sequence[Result], took: int) -> None:
        """A send ended after so many ms."""

    def circuit(self, route: str, open: bool) -> None:
        """A circuit opened or closed."""

    def failed(self) -> None:
        """A pull job met an unexpected error, or Redis refused what it was told; it goes on."""

    def acked(self, messages: Sequence[InFlightMessage], now: int) -> None:
        """Forwarded messages left the queue."""
