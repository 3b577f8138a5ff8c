"""Where pulls of a queue go on, and in a flood those of its fresh messages, which have an offset of their own then: while
the head of a queue is late, other topics stay on time while a burst drains."""

from __future__ import annotations

from delayq.store.commands import Head, Pulled

__all__ = ["LATE", "Cursor", "Flood"]

LATE = 20  # ms behind which the head counts as a flood
LOOK_BACK = 500
FRESH_EVERY = 12  # ms between two pulls of fresh messages


class Cursor:
    """A place in the queue, (due, ticket): the ticket last looked at, or b'' for all that is due then and later."""

    __slots__ = ("back", "due", "ticket", "unread")

    def __init__(self, due: int = 0) -> None:
        self.due = due
        self.ticket = b""
        self.unread = False  # moved back since the last pull
        self.back: int | None = None  # the earliest due since then that is to be looked at again, beyond this place

    @property
    def place(self) -> Head:
        """Up to there everything is in flight or gone."""
        return self.due, self.ticket

    def begin_pull(self) -> Head:
        """A pull sets out from this place."""
        self.unread, self.back = False, None
        return self.place

    def pull_failed(self) -> None:
        """Nobody knows what the pull took."""
        self.unread = True

    def advance(self, pulled: Pulled) -> None:
        """Go on behind the last message looked at, unless the pull has passed a place that is to be looked at again."""
        if pulled.last is None or self.unread:
            return
        if self.back is not None and self.back <= pulled.last[0]:
            self.unread = True
        else:
            self.due, self.ticket = pulled.last

    def rewind(self, due: int) -> None:
        """Look again at everything from `due` on."""
        if due <= self.due:
            self.due, self.ticket, self.unread = due, b"", True
        elif self.back is None or due < self.back:
            self.back = due


class Flood:
    """Whether there is one, and where the fresh messages go on. Messages with an ordering key are left out by pull."""

    def __init__(self) -> None:
        self.on = False
        self.fresh = Cursor()
        self._pulled_at = 0  # monotonic ms
        self._looked_at: int | None = None  # the now of the last pull of the backlog

    def backlog_waits(self, now: int) -> None:
        """The backlog waits for room at a target; from LATE on, the fresh messages do not wait with it."""
        if not self.on and self._looked_at is not None and now - self._looked_at > LATE:
            self.on = True
            self.fresh = Cursor(self._looked_at - LATE)

    def fresh_in(self, monotonic: int) -> int:
        """The ms until fresh messages are to be pulled, if there is a flood."""
        return max(0, self._pulled_at + FRESH_EVERY - monotonic)

    def begin_fresh(self, monotonic: int) -> Cursor:
        """Fresh messages are pulled now."""
        self._pulled_at = monotonic
        return self.fresh

    def see_backlog(self, pulled: Pulled) -> None:
        """A pull of the backlog tells how late its head is."""
        self._looked_at = pulled.now
        late = pulled.more and pulled.last is not None and pulled.now - pulled.last[0] > LATE
        if late and not self.on and pulled.last is not None:
            # Behind a burst of one ms everything is fresh; `see_fresh` corrects this for a backlog of many.
            self.fresh = Cursor(max(pulled.last[0] + 1, pulled.now - LOOK_BACK))
        self.on = late

    def see_fresh(self, pulled: Pulled) -> None:
        """If even the fresh messages are late, leave them to the backlog and go on with fresher ones."""
        if pulled.more and pulled.last is not None and pulled.now - pulled.last[0] > LATE:
            self.fresh = Cursor(pulled.now - LATE)
