"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str) -> T:
    """Check again in short steps until the answer is true, and return it; only for states without a notification.

    `what` names the state that the test waits for: pytest's timeout, the only end of this loop, shows the line with it.
    """
    while not (answer := look()):
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
