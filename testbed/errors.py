"""What can go wrong before a server of one's own serves."""

from __future__ import annotations

from delayq.errors import DelayqError

__all__ = ["ServerError", "ServerMissing"]


class ServerMissing(DelayqError):
    """This machine has no such server; the message says how to get one."""


class ServerError(DelayqError):
    """A server does not start; the message has the end of its log."""
