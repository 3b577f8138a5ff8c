"""The errors of a coordinator."""

from __future__ import annotations

from delayq.errors import DelayqError

__all__ = ["CoordinatorError", "CoordinatorRefused"]


class CoordinatorError(DelayqError):
    """The coordinator cannot be reached now. All owners stay, and repeating the call is harmless."""


class CoordinatorRefused(CoordinatorError):
    """The coordinator refuses this node, or this node does not trust it. People have to repair that."""
