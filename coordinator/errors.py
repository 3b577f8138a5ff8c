"""The errors of a coordinator."""

from __future__ import annotations

from delayq.base.errors import DelayqError


class CoordinatorError(DelayqError):
    """The coordinator cannot be reached now. All owners stay, and it is safe to repeat the call."""


class CoordinatorRefused(CoordinatorError):
    """The coordinator refuses this node, or this node does not trust it. Somebody has to correct that."""
