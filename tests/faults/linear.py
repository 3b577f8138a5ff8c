"""Whether what several callers were told about one id can have happened one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Call", "explained"]


@dataclass(frozen=True)
class Call:
    """A call: 'cancel' or 'move', when it began and ended, and the result that it was told."""

    kind: str
    began: int
    ended: int
    told: str


#: What a call tells in each state of the message, and which state is left. A moved message lies far ahead.
_TELLS = {
    ("cancel", "pending"): ("cancelled", "cancelled"),
    ("cancel", "far"): ("cancelled", "cancelled"),
    ("cancel", "in_flight"): ("in_flight", "removed"),
    ("cancel", "delivered"): ("delivered", "delivered"),
    ("cancel", "cancelled"): ("cancelled", "cancelled"),
    ("cancel", "removed"): ("in_flight", "removed"),
    ("move", "pending"): ("scheduled", "far"),
    ("move", "far"): ("scheduled", "far"),
    ("move", "in_flight"): ("in_flight", "in_flight"),
    ("move", "delivered"): ("delivered", "delivered"),
    ("move", "cancelled"): ("cancelled", "cancelled"),
    ("move", "removed"): ("removed_in_flight", "removed"),
}
#: What happens by itself, at any moment.
_HIDDEN = {"pending": "in_flight", "in_flight": "delivered"}
#: How often the message may have arrived, by the state that is left.
_ARRIVED = {"pending": {0}, "far": {0}, "in_flight": {0}, "cancelled": {0}, "delivered": {1}, "removed": {0, 1}}


def explained(calls: Sequence[Call], arrived: int, state: str = "pending") -> bool:
    """Whether some order of the calls, which keeps those apart that did not overlap, tells what was told.

    Every order is tried, with what happens by itself in between. `arrived` is how often the message was forwarded.
    """
    return any(arrived in _ARRIVED[end] for end in _ends(list(calls), state))


def _ends(calls: list[Call], state: str) -> Iterator[str]:
    if not calls:
        yield state
    if state in _HIDDEN:
        yield from _ends(calls, _HIDDEN[state])
    for call in calls:
        others = [one for one in calls if one is not call]
        if any(one.ended < call.began for one in others):
            continue  # another one was over before this one began
        told, then = _TELLS[call.kind, state]
        if told == call.told:
            yield from _ends(others, then)
