"""When a queue is looked at again."""

from __future__ import annotations

from typing import Final

__all__ = ["LONGEST_WAIT", "ROOM_WAIT", "looks_again_in"]

#: ms after which a queue is looked at in any case: a wake may be lost. All queues of a node look at the same moment, as
#: one packet costs less than one for each.
LONGEST_WAIT: Final = 1_000
#: ms for which what waits for room at its target waits without a report: those of other queues make room, too.
ROOM_WAIT: Final = 20


def looks_again_in(
    monotonic: int,
    *,
    at_once: bool,
    waits_for_room: bool,
    fresh_in: float | None,
    next_due_in: float | None,
    backs_off_for: float | None,
) -> float:
    """The ms until the next look, 0 = at once.

    `at_once`: something is known to be worth it. While something `waits_for_room` nothing but fresh messages is pulled,
    and a report ends the wait.
    """
    if at_once:
        return 1 if waits_for_room else 0
    longest: float = ROOM_WAIT if waits_for_room else LONGEST_WAIT - monotonic % LONGEST_WAIT
    if fresh_in is not None:
        longest = min(longest, fresh_in)
    if backs_off_for is not None:
        longest = min(longest, max(1, backs_off_for))
    if next_due_in is not None and not waits_for_room:
        longest = min(longest, next_due_in)
    return max(1 if waits_for_room else 0, longest)
