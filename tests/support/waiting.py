"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: How many seconds a test waits for a reply where the time-out is not what it is about: on a busy machine a server may stand
#: still for some.
PATIENCE: Final = 30.0


def eventually(look: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """Look again in short steps until the answer is true, and return it; only for what tells nobody by itself."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.01)
    return answer


def settled(look: Callable[[], T], what: str = "something, and no more") -> T:
    """Look again in short steps until the answer is true and stays the same for some of them; return it."""
    seen: list[T] = []

    def same() -> bool:
        seen.append(look())
        return bool(seen[-1]) and seen[-20:-1] == 19 * seen[-1:]

    eventually(same, what)
    return seen[-1]
