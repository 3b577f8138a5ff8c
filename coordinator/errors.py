"""What a coordinator may raise."""

from __future__ import annotations

from delayq.errors import DelayqError

__all__ = ["CoordinatorError"]


class CoordinatorError(DelayqError):
    """The coordinator cannot be reached now. Who owns what stays as it is; doing the same again is harmless."""
