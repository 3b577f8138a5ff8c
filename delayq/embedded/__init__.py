"""A real server that belongs to this process, and the functions to run child processes."""

from delayq.embedded.server import EmbeddedServer, EmbeddedServerError

__all__ = ["EmbeddedServer", "EmbeddedServerError"]
