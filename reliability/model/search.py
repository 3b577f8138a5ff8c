"""A breadth-first search over the states of a model: a counter-example is a shortest one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


class Broken(Exception):
    """A step that must not be; raised by the steps of a model."""


def search(
    start: S, steps: Callable[[S], Iterable[tuple[str, S]]], wrong: Callable[[S], str | None], limit: int
) -> tuple[str | None, str, int]:
    """Return the violation or None, the steps that lead to it or how far the search went, and the number of states."""
    seen: dict[S, tuple[str, S] | None] = {start: None}
    todo = deque([start])
    while todo and len(seen) < limit:
        s = todo.popleft()
        try:
            for label, following in steps(s):
                if following not in seen:
                    seen[following] = (label, s)
                    if what := wrong(following):
                        return what, _trace(seen, following), len(seen)
                    todo.append(following)
        except Broken as what:
            return str(what), _trace(seen, s), len(seen)
    return None, "bounded" if todo else "every state", len(seen)


def _trace(seen: dict[S, tuple[str, S] | None], s: S) -> str:
    labels = []
    while (before := seen[s]) is not None:
        label, s = before
        labels.append(label)
    return " · ".join(reversed(labels))
