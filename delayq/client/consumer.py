# Made from async_consumer.py by ./dev check --fix; change that one.
"""A consumer: it receives the messages of a topic one after another, and acknowledges or hands back each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delayq.clock import Clock

if TYPE_CHECKING:
    from delayq.client.plans import Received
    from delayq.times import Duration, Instant

__all__ = ["Consumer"]

#: ms that one wait for messages lasts at most, so that a stop is seen.
LONGEST_WAIT: Final = 500


class Receiving(Protocol):
    """The calls of a client that a consumer needs."""

    def receive(
        self,
        topic: str,
        *,
        group: str,
        max: int,
        wait: Duration,
        lease: Duration,
        start: str | Instant,
        tags: str | Sequence[str],
        ack: Sequence[Received],
    ) -> list[Received]: ...
    def ack(self, *messages: Received) -> list[Any]: ...
    def extend(self, message: Received, lease: Duration) -> Any: ...
    def hand_back(self, message: Received, *, reason: str) -> Any: ...


class Consumer:
    """Iterates over the messages of a topic, safe to share between threads.

    The next step of the loop acknowledges the message before. An exception in a `with` block hands the current message back, with
    the exception as its reason. Other consumers receive the messages that are left, at once.
    """

    def __init__(self, client: Receiving, clock: Clock, topic: str, lease: int, options: dict[str, Any]) -> None:
        self._client = client
        self._clock = clock
        self._topic = topic
        self._lease = lease
        self._options = options
        self._ahead: deque[tuple[Received, int]] = deque()
        self._current: Received | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the loop after the current message; from any thread. A consumer that waits ends within half a second."""
        self._stopped = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        done, self._current = [self._current] if self._current is not None else [], None
        if done and (self._ahead or self._stopped):
            self._client.ack(*done)
            done = []
        while not self._stopped:
            while self._ahead:
                message, end = self._ahead.popleft()
                is_old = end - self._clock.monotonic() < self._lease / 2  # it has waited here behind slow ones
                if is_old and (self._client.extend(message, self._lease)).result == "lost":
                    continue
                self._current = message
                return message
            end = self._clock.monotonic() + self._lease
            messages = self._client.receive(
                self._topic, wait=LONGEST_WAIT, lease=self._lease, ack=done, **self._options
            )
            done = []
            self._ahead.extend((one, end) for one in messages)
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Give back the messages that were not handled; again is harmless."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._stopped = True
        current, self._current = self._current, None
        left = [one for one, _ in self._ahead]
        self._ahead.clear()
        if current is not None and isinstance(error, Exception):
            self._client.hand_back(current, reason=f"{type(error).__name__}: {error}")
        elif current is not None:
            left.append(current)
        for one in left:
            self._client.extend(one, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)
