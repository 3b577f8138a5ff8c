"""The consumer groups that a client knows to be made in all streams of their topics."""

from __future__ import annotations

from typing import Final

from delayq.base.remembered import Remembered

#: ms after which a call looks again whether the record of its group exists.
LOOK_EVERY: Final = 60_000
#: Groups that are remembered, and the most characters of a topic, a group and a stream.
MOST: Final = 10_000
LONGEST: Final = 1_024


class KnownGroups:
    """The groups by the field of their record, with their first and last queue. Threads may share the object.

    The time is that of Redis, which each answer to a receive has.
    """

    __slots__ = ("_known", "_now")

    def __init__(self) -> None:
        self._known: Remembered[str, tuple[tuple[int, ...], int | None]] = Remembered(MOST, LONGEST)
        self._now: int | None = None

    def saw(self, now: int) -> None:
        """Note the time of Redis (Unix ms)."""
        self._now = now

    def queues(self, field: str) -> tuple[int, ...] | None:
        """The first and the last queue of a group, none for a single stream; None if the caller has to look."""
        queues, since = self._known.get(field, (None, 0))
        if since is None:  # from before the first time that this client has read
            self._known.keep(field, (queues or (), self._now))
            return queues
        return None if self._now is None or self._now - since >= LOOK_EVERY else queues

    def keep(self, field: str, queues: tuple[int, ...]) -> None:
        """Keep a group that was found to be made."""
        self._known.keep(field, (queues, self._now))
