"""What one queue's owner has in flight, and where it goes on: the offset.

The offset is a place in the queue, (due, ticket): everything before it is held or gone. It lives in memory; a message
that leaves without being settled moves it back.
"""

from __future__ import annotations

from delayq.store.commands import Head, Pulled
from workers.sending.message import InFlightMessage

__all__ = ["Cursor", "InFlight"]


class Cursor:
    """A place to pull from. `ticket` is the last one looked at, or b'' for all that is due at `due` and later."""

    __slots__ = ("_back", "due", "ticket", "unread")

    def __init__(self, due: int = 0) -> None:
        self.due = due
        self.ticket = b""
        self.unread = False  # moved back since the last pull
        self._back: int | None = None  # the earliest due since then that is to be looked at again, beyond this place

    @property
    def place(self) -> Head:
        """Up to there everything is held or gone."""
        return self.due, self.ticket

    def pulls(self) -> None:
        """A pull from here is on its way."""
        self.unread, self._back = False, None

    def stays(self) -> None:
        """The pull has failed: nobody knows what it took."""
        self.unread = True

    def advance(self, pulled: Pulled) -> None:
        """Go on behind the last message looked at, unless the pull has passed a place that is to be looked at again."""
        if pulled.last is None or self.unread:
            return
        if self._back is not None and self._back <= pulled.last[0]:
            self.unread = True
        else:
            self.due, self.ticket = pulled.last

    def rewind(self, due: int) -> None:
        """Look again at everything from `due` on."""
        if due <= self.due:
            self.due, self.ticket, self.unread = due, b"", True
        elif self._back is None or due < self._back:
            self._back = due


class InFlight:
    """The held messages of one queue, by ticket, and the offset."""

    def __init__(self) -> None:
        self.held: dict[bytes, InFlightMessage] = {}
        self.offset = Cursor()
        self.bytes = 0
        self.bytes_of: dict[str, int] = {}  # by route

    def __len__(self) -> int:
        return len(self.held)

    def add(self, held: InFlightMessage) -> None:
        """Hold a pulled message."""
        self.held[held.ticket] = held
        self._weigh(held, held.size)

    def settled(self, held: InFlightMessage) -> None:
        """Let go of a message that was acked, retried, buried or parked."""
        if self.held.get(held.ticket) is held:
            del self.held[held.ticket]
            self._weigh(held, -held.size)

    def _weigh(self, held: InFlightMessage, size: int) -> None:
        self.bytes += size
        if held.route is not None:
            self.bytes_of[held.route.name] = self.bytes_of.get(held.route.name, 0) + size

    def drop(self, held: InFlightMessage) -> None:
        """Let go of a message that was not settled: it will be pulled again."""
        self.settled(held)
        self.offset.rewind(held.score)

    def holds(self, held: InFlightMessage) -> bool:
        """Whether it is still this very one that is held."""
        return self.held.get(held.ticket) is held

    def last_held(self) -> bytes:
        """The last held ticket at the offset's due, up to the offset: where to go on if the last one seen is gone."""
        due, upto = self.offset.due, self.offset.ticket
        if not upto or upto in self.held:
            return b""
        return max((t for t, one in self.held.items() if one.score == due and t <= upto), default=b"")

    def missed(self, place: Head, start: int) -> bool:
        """Whether more stood in the queue before a pull from this place (`start` tickets) than is held."""
        return start > sum(1 for one in self.held.values() if one.place <= place)
