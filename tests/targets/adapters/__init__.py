"""What arrived at a target, as its adapter for the conformance suite sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from delayq.received import Received

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
    #: The same by the reader of delayq for consumers of this target.
    received: Received | None = field(default=None, compare=False)
