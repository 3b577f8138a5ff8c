"""One owner's time with a queue: its keys, the epoch, and the incarnation, as scripts are told them."""

from __future__ import annotations

from delayq.store.keys import QueueKeys

__all__ = ["Tenure"]


class Tenure:
    """A queue under one epoch. Its incarnation is how often its owner has gone on without having heard from Redis."""

    __slots__ = ("_incarnation", "epoch", "keys", "name")

    def __init__(self, keys: QueueKeys, epoch: str) -> None:
        self.keys = keys
        self.epoch = epoch
        self._incarnation = 0
        self.name = ""  # what scripts are given
        self.go_on()

    def go_on(self) -> None:
        """Go on though nobody knows what became of what was sent: should it arrive later, it is to do nothing."""
        self._incarnation += 1
        self.name = f"{self.epoch}#{self._incarnation:010}"
