"""What arrived at a target, as its adapter for the conformance suite sees it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Seen"]


@dataclass(frozen=True)
class Seen:
    """A message that arrived; None is what this target does not carry. `due` is Unix ms."""

    id: str
    topic: str | None
    tags: str | None
    keys: tuple[str, ...] | None
    properties: dict[str, str] | None
    ordering_key: str | None
    payload: bytes
    due: int | None
    attempt: int | None
