"""Who owns which queue.

Redis decides (the highest epoch wins); a coordinator only spreads the work. `local` gives one node all queues.
"""

from __future__ import annotations

from typing import Protocol

from coordinator.epoch import Claim, epoch_text
from coordinator.local import LocalCoordinator

__all__ = ["Claim", "Coordinator", "LocalCoordinator", "epoch_text"]


class Coordinator(Protocol):
    """Says which queues this node should own, and under which epoch."""

    def start(self) -> None:
        """Take part; raises StoreUnavailable or the like when that is not possible now (call it again)."""

    def assigned(self) -> frozenset[int]:
        """The queues that this node should own now."""

    def claim(self, queue: int) -> Claim | None:
        """Begin owning a queue; None if it is not ours (any more). Raises StoreError."""

    def fenced(self, queue: int, epoch: str) -> None:
        """Redis answered FENCED to the epoch: somebody else has a newer one."""

    def release(self, queue: int, epoch: str) -> None:
        """Stop owning a queue, after its pull job has ended."""

    def stop(self) -> None:
        """Leave."""
