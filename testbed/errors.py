"""The errors before a server of the testbed is ready."""

from __future__ import annotations

from delayq.base.errors import DelayqError


class ServerMissing(DelayqError):
    """This machine has no such server; the message explains how to get it."""


class ServerError(DelayqError):
    """A server does not start; the message has the end of its log."""
