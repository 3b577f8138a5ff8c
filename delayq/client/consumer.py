# Made from async_consumer.py by ./dev check --fix; change that one.
"""A consumer: it receives the messages of topics one after another, and acknowledges or hands back each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delayq.clock import Clock
from delayq.store.connect.arrivals import Arrivals
from delayq.store.connect.store import Store

if TYPE_CHECKING:
    from delayq.client.plans import Received, ReceivedPage
    from delayq.times import Duration, Instant

__all__ = ["Consumer"]

#: ms that one wait for messages lasts at most, so that a stop is seen.
LONGEST_WAIT: Final = 500


class Receiving(Protocol):
    """The calls of a client that a consumer needs."""

    store: Store

    def receive_page(
        self, topic: str, *, group: str, max: int, lease: Duration, start: str | Instant, tags: str | Sequence[str]
    ) -> ReceivedPage: ...
    def ack(self, *messages: Received) -> list[Any]: ...
    def extend(self, message: Received, lease: int) -> Any: ...
    def hand_back(self, message: Received, *, reason: str) -> Any: ...
    def release(self, *messages: Received) -> list[Any]: ...


class Consumer:
    """Iterates over the messages of topics, safe to share between threads.

    The next step of the loop acknowledges the message before. An exception in a `with` block hands the current message back, with
    the exception as its reason. Messages that were received ahead are handed back at once when the consumer ends.
    """

    def __init__(
        self, client: Receiving, clock: Clock, topics: Sequence[str], prefetch: int, options: dict[str, Any]
    ) -> None:
        self._client = client
        self._clock = clock
        self._prefetch = prefetch
        self._options = options
        self._lease: int = options["lease"]
        self._topics = list(topics)
        self._ahead: deque[tuple[Received, int]] = deque()
        self._current: Received | None = None
        self._arrivals = Arrivals(client.store)
        self._stopped = False

    def stop(self) -> None:
        """End the loop after the current message; from any thread. A consumer that waits ends within half a second."""
        self._stopped = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        if self._current is not None:
            current, self._current = self._current, None
            self._client.ack(current)
        while not self._stopped:
            if not self._ahead:
                self._receive()
            while self._ahead:
                message, end = self._ahead.popleft()
                is_old = end - self._clock.monotonic() < self._lease / 2  # it has waited here behind slow ones
                if is_old and (self._client.extend(message, self._lease)).result == "lost":
                    continue
                self._current = message
                return message
        self.close()
        raise StopIteration

    def _receive(self) -> None:
        """Receive messages of the topics in turn; if there are none, wait until some arrive."""
        began = self._clock.monotonic()
        streams: list[str] = []
        since, longest = 0, LONGEST_WAIT
        for topic in self._topics:
            left = self._prefetch - len(self._ahead)
            if left <= 0:
                break
            page = self._client.receive_page(topic, max=left, **self._options)
            self._ahead.extend((one, began + self._lease) for one in page.messages)
            streams += page.streams
            since = min(since or page.now, page.now)
            if page.next is not None:
                longest = max(1, min(longest, page.next - page.now))
        self._topics = self._topics[1:] + self._topics[:1]
        if not self._ahead and not self._stopped:
            self._arrivals.wait(streams, since, longest)

    def close(self) -> None:
        """Hand back what was not handled, so that other consumers get it now; again is harmless."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._stopped = True
        current, self._current = self._current, None
        ahead, self._ahead = [one for one, _ in self._ahead], deque()
        if current is not None and error is not None:
            self._client.hand_back(current, reason=f"{type(error).__name__}: {error}")
        elif current is not None:
            ahead.append(current)
        if ahead:
            self._client.release(*ahead)
        self._arrivals.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handled = error if isinstance(error, Exception) else None
        self._end(handled)
