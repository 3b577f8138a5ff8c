"""Questions to Redis that several checks have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from delayq.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.store import Store

__all__ = ["ask_all", "redis_now"]

T = TypeVar("T")


def ask_all(store: Store, wanted: Iterable[Command[T]]) -> list[T]:
    """The answers in order; raises the first StoreError."""
    answers: list[T] = []
    for answer in store.run_many(wanted):
        if isinstance(answer, StoreError):
            raise answer
        answers.append(answer)
    return answers


def redis_now(store: Store) -> int:
    """The time of Redis, Unix ms; raises StoreError."""
    return store.run(commands.redis_now())
