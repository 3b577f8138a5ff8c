"""Big plain backlogs of local streams: appended by transactions, which cost the server less than pull.lua does.

pull.lua is the way for everything; this one goes beside it for as long as all that is due is plain. What is not is left
to the next pull, and so is the end of the backlog, for a pull says until when to sleep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from delayq.clock import Clock
from delayq.errors import StoreError
from delayq.store.commands import Now, Pulled, Retention
from delayq.store.commands.appending import Batch, Streams
from delayq.store.connect.append_transaction import Appended, Due
from delayq.store.connect.store import Store
from delayq.store.keys import QueueKeys
from workers.queue.flood import LATE
from workers.queue.in_flight import InFlight
from workers.queue.topics import Topics

if TYPE_CHECKING:
    from workers.sending.spans import Spans

__all__ = ["Appending"]

MOST = 200  # messages of a transaction: other clients wait for about 1 ms
MOST_BYTES = 256 * 1024
FEWEST = 50  # to begin with: nobody knows yet how large they are
RUN = 5  # ms after which others have their turn
BATCHES = 32  # in a run, at most
PULL_EVERY = 250  # ms, in a flood: a pull looks for the rest of what is to be known of a backlog
LONGEST_REST = 64  # pulls
log = structlog.get_logger()


class Appending:
    """Appends one queue's backlog under one epoch. Not safe for threads: it belongs to the pull job."""

    def __init__(
        self, keys: QueueKeys, epoch: str, flight: InFlight, *, store: Store, topics: Topics, clock: Clock,
        retention: Retention, most: int = MOST, spans: Spans | None = None,
    ) -> None:  # fmt: skip
        self._keys = keys
        self._flight = flight
        self._topics = topics
        self._clock = clock
        self._spans = spans
        self._most = min(most, MOST)
        self._appender = store.appender(keys, epoch, retention) if topics.local else None
        self._known: object = None
        self._streams = Streams(keys, ())
        self._size = min(FEWEST, self._most)
        self.last_due = 0  # of what was appended last
        self._asked = 0
        self._upto = 0  # both clocks have reached it
        self._on = False
        self._rest = 0  # pulls until the next try
        self._rests = 1
        self._pull_at = 0  # monotonic ms

    # -- when ----------------------------------------------------------------------------------------------------------

    def see(self, pulled: Pulled, *, flood: bool) -> None:
        """A pull of the backlog tells whether this way is worth it; pulls notice when a flood begins."""
        plain = pulled.more and pulled.appended > 0
        plain = plain and not (pulled.tickets or pulled.unknown_topics or pulled.refused)
        self._rest = max(0, self._rest - 1)
        self._on = self._appender is not None and plain and not self._rest
        self._upto = pulled.now
        self._pull_at = self._clock.monotonic() + (PULL_EVERY if flood else LATE)

    @property
    def wanted(self) -> bool:
        """Whether to run instead of a pull of the backlog."""
        return self._on and self._clock.monotonic() < self._pull_at

    # -- how -----------------------------------------------------------------------------------------------------------

    def run(self, now: Now) -> tuple[int, bool]:
        """Append for a while: (how many were appended, whether it is fenced). After trouble, pulls look again."""
        appended, ends = 0, self._clock.monotonic() + RUN
        try:
            self.ask(now, self._upto)
            for number in range(1, BATCHES + 1):
                due = self.read()
                if due.batch is None or not self.worth(due):
                    self._stop(due, appended)
                    return appended, due.fenced
                whole = len(due.batch) == due.found
                self._on = whole and due.found == self._asked  # else there is nothing more, or a pull has to look
                goes_on = self._on and number < BATCHES and self._clock.monotonic() < ends
                done = self.append(due.batch, now, ask=goes_on)
                appended += done.count
                if not (whole and done.all):
                    self._stop(due, appended)
                    break
                if not goes_on:
                    break
        except StoreError as error:
            log.warning("appending_failed", queue=self._keys.tag, error=str(error))
            self._stop(None, appended)
        except Exception:
            self._stop(None, appended)
            raise
        return appended, False

    def ask(self, now: Now, upto: int) -> None:
        """Ask for what is due until `upto`."""
        assert self._appender is not None
        self._upto = upto
        self._appender.ask(*self._question(), now)

    def read(self) -> Due:
        """What was asked for."""
        assert self._appender is not None
        if self._topics.known() is not self._known:
            self._known = self._topics.known()
            self._streams = Streams(self._keys, self._topics.known(), traced=self._spans is not None)
        return self._appender.read(self._streams, self._flight.held, MOST_BYTES)

    def worth(self, due: Due) -> bool:
        """Whether a transaction is."""
        return due.batch is not None and len(due.batch) * 10 >= self._most

    def append(self, batch: Batch, now: Now, *, ask: bool = False) -> Appended:
        """Append a batch; `ask` for the next along with it."""
        assert self._appender is not None
        # As many of this size as may go at once, so that large bodies are not read in vain.
        room = MOST_BYTES * len(batch) // max(1, batch.bytes)
        self._size = max(1, min(self._most, room, 2 * self._size))
        done = self._appender.append(batch, now, self._question() if ask else None)
        if done.all:
            self.last_due = batch.last_due
        if self._spans is not None and done.all and batch.traces:
            self._spans.appended(batch.traces, self._clock.now())
        return done

    def _question(self) -> tuple[int, int, int]:
        self._asked = self._size
        return self._flight.offset.due, min(self._upto, self._clock.now()), self._size

    def _stop(self, due: Due | None, appended: int) -> None:
        """Leave it to pulls; for longer each time that nothing came of it."""
        self._on = False
        self._rests = 1 if appended else min(2 * self._rests, LONGEST_REST)
        self._rest = self._rests
        if due is None or due.fenced:
            self._rest = LONGEST_REST

    def close(self) -> None:
        """Close the connection."""
        if self._appender is not None:
            self._appender.close()
