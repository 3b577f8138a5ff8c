"""Where pulls of a queue go on."""

from __future__ import annotations

from delayq.store.commands import Head, Pulled

__all__ = ["Cursor"]


class Cursor:
    """A place in the queue, (due, ticket): the ticket last looked at, or b'' for all that is due then and later."""

    __slots__ = ("_back", "due", "ticket", "unread")

    def __init__(self, due: int = 0) -> None:
        self.due = due
        self.ticket = b""
        self.unread = False  # moved back since the last pull
        self._back: int | None = None  # the earliest due since then that is to be looked at again, beyond this place

    @property
    def place(self) -> Head:
        """Up to there everything is in flight or gone."""
        return self.due, self.ticket

    def begin_pull(self) -> Head:
        """A pull sets out from this place."""
        self.unread, self._back = False, None
        return self.place

    def pull_failed(self) -> None:
        """Nobody knows what the pull took."""
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
