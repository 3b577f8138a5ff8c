"""What a coordinator may raise."""

from __future__ import annotations

from delayq.errors import DelayqError

__all__ = ["CoordinatorError", "CoordinatorRefused"]


class CoordinatorError(DelayqError):
    """The coordinator cannot be reached now. Who owns what stays as it is; doing the same again is harmless."""


class CoordinatorRefused(CoordinatorError):
    """The coordinator is there and lets this node not in, or is not trusted by it: people have to mend that."""
