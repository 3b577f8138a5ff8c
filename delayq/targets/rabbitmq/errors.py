"""What the broker, or the system, said when something went wrong."""

from __future__ import annotations

from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker

__all__ = ["words_of"]


def words_of(error: BaseException) -> str:
    """What the broker or the system said."""
    if isinstance(error, AMQPConnectionWorkflowFailed):
        error = error.exceptions[-1]
    inner = getattr(error, "exception", None)
    if isinstance(inner, BaseException):
        return words_of(inner)
    if isinstance(error, ConnectionClosedByBroker | ChannelClosedByBroker):
        return f"{error.reply_code} {error.reply_text}"
    if isinstance(error, AMQPConnectionError) and error.args and isinstance(error.args[0], BaseException):
        return words_of(error.args[0])
    return str(error) or type(error).__name__
