"""The words of the broker or of the system about an error."""

from __future__ import annotations

from collections.abc import Sequence

from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker


class NoAddress(AMQPConnectionError):  # type: ignore[misc]  # pika has no types
    """No address could be used. `failures` has each `host:port` that was tried, with its error."""

    def __init__(self, failures: Sequence[tuple[str, BaseException]]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        words = dict.fromkeys((where, words_of(error)) for where, error in self.failures)
        if len({said for _, said in words}) == 1:
            return next(said for _, said in words)
        return "; ".join(f"{where}: {said}" for where, said in words)


def words_of(error: BaseException) -> str:
    """The words of the broker or of the system."""
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
