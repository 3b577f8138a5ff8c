# Made from async_consumer.py by ./dev check --fix; change that one.
"""A consumer: it receives the messages of topics, and acknowledges or hands back each of them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delayq.client.consuming.threads import Handlers
from delayq.client.known_routes import LOGGER
from delayq.clock import Clock
from delayq.errors import InvalidMessage, StoreUnavailable
from delayq.patterns import check_pattern, is_pattern
from delayq.store.connect.threads import pause

if TYPE_CHECKING:
    from delayq.client.plans import Leased, TopicState
    from delayq.times import Duration, Instant

__all__ = ["Consumer"]

#: ms that one wait for messages lasts at most, so that a stop is seen.
LONGEST_WAIT: Final = 500
#: ms between two looks for topics that fit a pattern.
FIND_EVERY: Final = 5_000
#: ms that messages take together at most, if they are acknowledged together while others are there to be handled.
ACK_AFTER: Final = 5


class Receiving(Protocol):
    """The calls of a client that a consumer needs."""

    def receive(
        self,
        topic: str | Sequence[str],
        *,
        group: str,
        max: int,
        wait: Duration,
        lease: Duration,
        start: str | Instant,
        tags: str | Sequence[str],
        ack: Sequence[Leased],
    ) -> list[Leased]: ...
    def ack(self, *messages: Leased) -> list[Any]: ...
    def extend(self, message: Leased, lease: Duration) -> Any: ...
    def extend_many(self, messages: Sequence[Leased], lease: Duration) -> list[Any]: ...
    def hand_back(self, message: Leased, *, reason: str) -> Any: ...
    def topics(self, *, match: str) -> list[TopicState]: ...


class Consumer:
    """Iterates over the messages of topics, safe to share between threads.

    The next step of the loop acknowledges the message before; quick ones are acknowledged together. An exception in a `with`
    block hands the current message back, with the exception as its reason. Other consumers receive the messages that are left,
    at once.
    """

    def __init__(
        self, client: Receiving, clock: Clock, topic: str | Sequence[str], lease: int, options: dict[str, Any]
    ) -> None:
        given = [topic] if isinstance(topic, str) else list(topic)
        self._client = client
        self._clock = clock
        self._patterns = [check_pattern(one) for one in given if is_pattern(one)]
        self._topics = deque(one for one in given if not is_pattern(one))
        self._find_at = clock.monotonic()
        self._lease = lease
        self._options = options
        self._ahead: deque[tuple[Leased, int]] = deque()
        self._busy: set[tuple[str, str]] = set()  # topics and ordering keys of the messages that handlers have
        self._current: Leased | None = None
        self._done: deque[Leased] = deque()  # to be acknowledged
        self._done_from = 0  # when the first of them was handed out
        self._acknowledging = threading.Lock()
        self._stopped = False

    def stop(self) -> None:
        """End the loop after the current message; from any thread. A consumer that waits ends within half a second."""
        self._stopped = True

    def run(self, handler: Callable[[Leased], object], *, concurrency: int = 8) -> None:
        """Call `handler` with each message, at most `concurrency` at once, until `stop` is called.

        Each message is acknowledged when its handler returns, and handed back if it raises. Messages of one ordering key are
        handled one after another. At the end this waits for the handlers that run. While the server is away it tries again.
        """
        if concurrency < 1:
            raise InvalidMessage("concurrency", "is at least 1")
        self._options["max"] = max(self._options["max"], concurrency)
        handlers = Handlers(concurrency)
        try:
            while not self._stopped:
                handlers.wait_for_room()
                try:
                    message = self._take()
                    if message is None and self._ahead:  # all are behind others of their keys
                        self._receive(0)
                        message = self._take()
                        if message is None:
                            handlers.wait(LONGEST_WAIT / 1000)
                    elif message is None:
                        self._receive(LONGEST_WAIT)
                except StoreUnavailable as error:
                    logging.getLogger(LOGGER).warning("cannot receive messages, trying again: %s", error)
                    pause(LONGEST_WAIT / 1000)
                    continue
                if message is not None:
                    self._busy.add(_key_of(message))
                    handlers.start(self._handle, handler, message)
        finally:
            handlers.close()
            self._end(None)

    def _handle(self, handler: Callable[[Leased], object], message: Leased) -> None:
        try:
            try:
                handler(message)
            except Exception as error:  # noqa: BLE001  # the handler's: it is the reason of the hand-back
                self._client.hand_back(message, reason=_reason(error))
            else:
                self._done.append(message)
        except Exception as error:  # noqa: BLE001  # other messages are handled all the same
            _log_unsettled([message], error)
        finally:
            self._busy.discard(_key_of(message))
        # Handlers that end during this call leave their messages to this one, which looks again after it released the lock.
        while self._done and self._acknowledging.acquire(blocking=False):
            done = self._take_done()
            try:
                self._client.ack(*done)
            except Exception as error:  # noqa: BLE001  # as above
                _log_unsettled(done, error)
            finally:
                self._acknowledging.release()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Leased:
        if self._current is not None:
            self._done.append(self._current)
            self._current = None
        while not self._stopped:
            now = self._clock.monotonic()
            if self._ahead and self._done and now - self._done_from >= ACK_AFTER:
                self._client.ack(*self._take_done())
            self._current = self._take()
            if self._current is not None:
                if not self._done:
                    self._done_from = now
                return self._current
            self._receive(LONGEST_WAIT, self._take_done())
        self.close()
        raise StopIteration

    def _take_done(self) -> list[Leased]:
        """Take the messages that are to be acknowledged."""
        return [self._done.popleft() for _ in range(len(self._done))]

    def _take(self) -> Leased | None:
        """Take the next message that was received ahead, and that is behind no other one of its key."""
        passed = set[tuple[str, str]]()
        for one in list(self._ahead):
            message, end = one
            key = _key_of(message)
            if message.ordering_key and (key in self._busy or key in passed):
                passed.add(key)
                continue
            self._ahead.remove(one)
            is_old = end - self._clock.monotonic() < self._lease / 2  # it has waited here behind slow ones
            if not is_old or (self._client.extend(message, self._lease)).result != "lost":
                return message
        return None

    def _receive(self, wait: int, done: Sequence[Leased] = ()) -> None:
        """Acknowledge messages that are done, and receive messages of the topics, after at most `wait` ms."""
        if len(self._ahead) >= 2 * self._options["max"]:
            return
        if self._patterns and self._clock.monotonic() >= self._find_at:
            self._find()
        if done and (len(self._topics) != 1 or any(one.topic != self._topics[0] for one in done)):
            self._client.ack(*done)
            done = ()
        if not self._topics:
            pause(wait / 1000)
            return
        end = self._clock.monotonic() + self._lease
        self._topics.rotate(-1)  # so that no topic is always first
        topics = self._topics[0] if len(self._topics) == 1 else list(self._topics)
        messages = self._client.receive(topics, wait=wait, lease=self._lease, ack=done, **self._options)
        self._ahead.extend((one, end) for one in messages)

    def _find(self) -> None:
        """Add the topics that fit a pattern, except those that are received elsewhere."""
        self._find_at = self._clock.monotonic() + FIND_EVERY
        for pattern in self._patterns:
            for found in self._client.topics(match=pattern):
                if found.topic in self._topics:
                    continue
                end = self._clock.monotonic() + self._lease
                try:
                    messages = self._client.receive(found.topic, wait=0, lease=self._lease, ack=(), **self._options)
                except InvalidMessage as error:
                    if error.field != "topic":
                        raise
                    continue  # its route is no stream of delayq's own Redis
                self._topics.append(found.topic)
                self._ahead.extend((one, end) for one in messages)

    def close(self) -> None:
        """Give back the messages that were not handled; again is harmless."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._stopped = True
        current, self._current = self._current, None
        left = [one for one, _ in self._ahead]
        self._ahead.clear()
        if current is not None and isinstance(error, Exception):
            self._client.hand_back(current, reason=_reason(error))
        elif current is not None:
            left.append(current)
        if done := self._take_done():
            self._client.ack(*done)
        if left:
            self._client.extend_many(left, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)


def _key_of(message: Leased) -> tuple[str, str]:
    return message.topic, message.ordering_key


def _log_unsettled(messages: Sequence[Leased], error: Exception) -> None:
    text = "message %s could not be settled, and is received again: %s"
    for one in messages:
        logging.getLogger(LOGGER).warning(text, one.id, error)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
