"""Ordering keys: of one key, and one route, only one message is on its way; the others wait behind it, in due order."""

from __future__ import annotations

from bisect import insort

from workers.held import Held

__all__ = ["MOST", "Lanes"]

#: Messages of one key held in memory; beyond that they are parked under the key.
MOST = 16
LOW = 4

_Lane = tuple[str, str]


def _place(held: Held) -> tuple[int, bytes]:
    return held.place


class Lanes:
    """The held messages of each ordering key. The first of a lane may be on its way, the others wait."""

    def __init__(self) -> None:
        self._lanes: dict[_Lane, list[Held]] = {}
        self._of_key: dict[str, int] = {}
        self._of_route: dict[str, int] = {}

    @staticmethod
    def _of(held: Held) -> _Lane:
        return (held.route.name if held.route is not None else "", held.ordering_key)

    def full(self, held: Held) -> bool:
        """Whether the message's key has as many in memory as it may."""
        return len(self._lanes.get(self._of(held), ())) >= MOST

    def low(self, key: str) -> bool:
        """Whether few messages of a key are in memory, so that parked ones may come back."""
        return self._of_key.get(key, 0) <= LOW

    def count(self, route: str) -> int:
        """How many messages of a route are in its lanes."""
        return self._of_route.get(route, 0)

    def enter(self, held: Held) -> bool:
        """Take a place by due; True if it is the first and may go."""
        name = self._of(held)
        lane = self._lanes.setdefault(name, [])
        self._of_key[name[1]] = self._of_key.get(name[1], 0) + 1
        self._of_route[name[0]] = self._of_route.get(name[0], 0) + 1
        if lane and lane[0].sending:
            insort(lane, held, lo=1, key=_place)
        else:
            insort(lane, held, key=_place)
        return lane[0] is held and not held.sending

    def behind(self, held: Held) -> list[Held]:
        """Those that wait in the message's lane, without it."""
        return [one for one in self._lanes.get(self._of(held), ()) if one is not held]

    def leave(self, held: Held) -> Held | None:
        """Give up the place; the one that may go now, if any."""
        name = self._of(held)
        lane = self._lanes.get(name)
        if lane is None or held not in lane:
            return None
        first = lane[0] is held
        lane.remove(held)
        self._of_route[name[0]] -= 1
        self._of_key[name[1]] -= 1
        if not self._of_key[name[1]]:
            del self._of_key[name[1]]
        if not lane:
            del self._lanes[name]
            return None
        return lane[0] if first else None

    def waiting(self) -> list[Held]:
        """The first of each lane whose back-off is running."""
        return [lane[0] for lane in self._lanes.values() if lane[0].again_at is not None]
