"""The position from which the next pull of a queue continues. During a flood, fresh messages have a second one.

So other topics stay on time while a burst drains.
"""

from __future__ import annotations

from delayq.store.commands import Head, Pulled

LATE = 20  # ms: if the head is later than that, there is a flood
LOOK_BACK = 500  # ms of the backlog that count as fresh at the start of a flood
FRESH_EVERY = 12  # ms between two pulls of fresh messages


class Cursor:
    """A place in the queue, (due, ticket). The ticket is the last one that was read, or b'' before the first one of that time."""

    __slots__ = ("back", "due", "ticket", "unread")

    def __init__(self, due: int = 0) -> None:
        self.due = due
        self.ticket = b""
        self.unread = False  # whether it moved back after the last pull
        self.back: int | None = None  # the earliest time behind this place from which messages must be read again

    @property
    def place(self) -> Head:
        """All messages before this place are in flight or gone."""
        return self.due, self.ticket

    def has_read(self, due: int) -> bool:
        """Whether no message up to `due` must be read again, neither before this place nor after it."""
        return not self.unread and (self.back is None or due < self.back)

    def begin_pull(self) -> Head:
        """Return the place from which a pull begins."""
        self.unread, self.back = False, None
        return self.place

    def pull_failed(self) -> None:
        """Note that the result of the pull is unknown."""
        self.unread = True

    def advance(self, pulled: Pulled) -> None:
        """Move behind the last message that the pull read, unless messages before it must be read again."""
        if pulled.last is None or self.unread:
            return
        if self.back is not None and self.back <= pulled.last[0]:
            self.unread = True
        else:
            self.due, self.ticket = pulled.last

    def rewind(self, due: int) -> None:
        """Have all messages from `due` on read again."""
        if due <= self.due:
            self.due, self.ticket, self.unread = due, b"", True
        elif self.back is None or due < self.back:
            self.back = due


class Flood:
    """Whether there is a flood, and the place of the fresh messages. The pull returns no fresh ones with an ordering key."""

    def __init__(self) -> None:
        self.on = False
        self.fresh = Cursor()
        self._pulled_at = 0  # monotonic ms
        self._looked_at: int | None = None  # the time of the last pull of the backlog

    def backlog_waits(self, now: int) -> None:
        """Note that the backlog waits for room at a target. After LATE ms, fresh messages no longer wait with it."""
        if not self.on and self._looked_at is not None and now - self._looked_at > LATE:
            self.on = True
            self.fresh = Cursor(self._looked_at - LATE)

    def fresh_in(self, monotonic: int) -> int:
        """The ms until the next pull of fresh messages, if there is a flood."""
        return max(0, self._pulled_at + FRESH_EVERY - monotonic)

    def begin_fresh(self, monotonic: int) -> Cursor:
        """Return the place from which a pull of fresh messages begins now."""
        self._pulled_at = monotonic
        return self.fresh

    def record_backlog(self, pulled: Pulled) -> None:
        """Record how late the head of the backlog is."""
        self._looked_at = pulled.now
        late = pulled.more and pulled.last is not None and pulled.now - pulled.last[0] > LATE
        if late and not self.on and pulled.last is not None:
            # All messages after a burst of one ms are fresh; `record_fresh` corrects this for a longer burst.
            self.fresh = Cursor(max(pulled.last[0] + 1, pulled.now - LOOK_BACK))
        self.on = late

    def record_fresh(self, pulled: Pulled) -> None:
        """If even the fresh messages are late, leave them to the backlog, and continue with later ones."""
        if pulled.more and pulled.last is not None and pulled.now - pulled.last[0] > LATE:
            self.fresh = Cursor(pulled.now - LATE)
