"""The layouts of a Redis: the oldest first, the newest takes what is new; the others are left as they empty."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.store.keys import Layout

__all__ = ["Layouts", "following", "read_layouts", "write_layouts"]


def read_layouts(text: str) -> tuple[Layout, ...]:
    """The layouts that `delayq:meta` lists: '16', or '16 64@16' (64 queues, numbered from 16 on)."""
    layouts = []
    for word in text.split():
        queues, _, first = word.partition("@")
        layouts.append(Layout(int(queues), int(first or 0)))
    return tuple(layouts)


def write_layouts(layouts: Sequence[Layout]) -> str:
    """What `read_layouts` reads."""
    return " ".join(f"{one.queues}@{one.first}" if one.first else str(one.queues) for one in layouts)


def following(layouts: Sequence[Layout], queues: int) -> Layout:
    """The layout to list behind these; the same again gives the same, so a lost list is found again."""
    return Layout(queues, layouts[-1].numbers.stop)


class Layouts:
    """What this process knows of them. It may be as old as it likes: a closed queue says so, and the list is read anew.

    `shut` are queues that have said MOVED, which they do for ever. Threads may share it.
    """

    __slots__ = ("asked_at", "known", "shut")

    def __init__(self, known: Sequence[Layout]) -> None:
        self.known = tuple(known)
        self.shut: set[int] = set()
        self.asked_at: int | None = None  # monotonic ms

    def take(self, listed: Sequence[Layout]) -> None:
        """Know what `delayq:meta` lists now; older news than what is known is no news."""
        if listed and listed[-1].first >= self.known[-1].first:
            self.known = tuple(listed)

    @property
    def queues(self) -> list[int]:
        """The numbers of all queues, in order."""
        return [queue for layout in self.known for queue in layout.numbers]

    def place(self, id: str, behind: int = -1) -> int | None:
        """The queue to ask for an id, behind the one that said MOVED; None if no further layout is known."""
        for layout in self.known:
            if layout.first > behind:
                return layout.queue_of(id)
        return None

    def place_new(self, id: str) -> int:
        """The queue to begin with for an id that was made just now, so no queue that is shut can have it."""
        for layout in self.known:
            queue = layout.queue_of(id)
            if queue not in self.shut:
                break
        return queue
