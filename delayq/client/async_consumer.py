"""A consumer: it receives the messages of topics, and acknowledges or hands back each of them."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from delayq.base.clock import Clock
from delayq.base.errors import InvalidMessage, StoreError
from delayq.client.consuming.async_renewal import AsyncLeases, is_lost, log_lost, log_unsettled, passes
from delayq.client.consuming.event_loop import Handlers
from delayq.client.known_routes import LOGGER
from delayq.domain.message import given_duration
from delayq.domain.patterns import check_pattern, is_pattern
from delayq.store.connect.event_loop import pause

if TYPE_CHECKING:
    from delayq.base.times import Duration, Instant
    from delayq.client.consuming.entries import Leased

#: How long a consumer renews the lease of a message, and at most (ms).
LONGEST_RENEWED: Final = 3_600_000
MOST_RENEWED: Final = 12 * 3_600_000
#: ms that one wait for messages lasts at most, so that a stop is seen.
LONGEST_WAIT: Final = 500
#: ms between two looks for topics that fit a pattern.
FIND_EVERY: Final = 5_000
#: The same for topics from which the group has received. The API counts the messages of each group for that.
FIND_OF_GROUP_EVERY: Final = 60_000
#: ms that messages take together at most, if they are acknowledged together while others are there to be handled.
ACK_AFTER: Final = 5
#: While the server is away, each so many attempts are logged.
LOG_EVERY: Final = 60
Names = list[str]


class AsyncReceiving(Protocol):
    """The calls of a client that a consumer needs."""

    async def receive(
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
    async def ack(self, *messages: Leased) -> list[Any]: ...
    async def extend(self, message: Leased, lease: Duration) -> Any: ...
    async def extend_many(self, messages: Sequence[Leased], lease: Duration) -> list[Any]: ...
    async def hand_back(self, message: Leased, *, reason: str) -> Any: ...


class AsyncConsumer:
    """Iterates over the messages of topics, to be awaited on one event loop.

    The next step of the loop acknowledges the message before; quick ones are acknowledged together. An exception in a `with`
    block hands the current message back, with the exception as its reason. Other consumers receive the messages that are left,
    at once. Until then the leases of all messages that it holds are renewed, up to `max_lease` from when each was received.

    While the server is away, the loop and `run` try again. They end by an error that does not pass: a key without the right, a
    topic that cannot be received, another filter.
    """

    def __init__(
        self,
        client: AsyncReceiving,
        clock: Clock,
        find: Callable[[str, str | None], Awaitable[Names]],
        topic: str | Sequence[str],
        lease: Duration,
        max_lease: Duration | None,
        options: dict[str, Any],
    ) -> None:
        given = [topic] if isinstance(topic, str) else list(topic)
        self._client = client
        self._clock = clock
        self._find_topics = find
        self._patterns = [check_pattern(one) for one in given if is_pattern(one)]
        self._named = [one for one in given if not is_pattern(one)]
        self._topics = deque(self._named)
        self._find_at = self._find_of_group_at = clock.monotonic()
        self._lease = given_duration("lease", lease) or 0
        self._options = options
        self._ahead: deque[Leased] = deque()
        self._busy: set[tuple[str, str]] = set()  # topics and ordering keys of the messages that handlers have
        self._current: Leased | None = None
        self.leases = AsyncLeases(client, clock, self._lease, _longest(self._lease, max_lease))
        self._done = self.leases.done
        self._done_from = 0  # when the first of them was handed out
        self._acknowledging = threading.Lock()
        self._failures = 0  # without an answer in between
        self._stopped = False
        # A loop that was left without `close` ends here. At the end of the process, leases end by themselves.
        weakref.finalize(self, self.leases.abandon).atexit = False

    def stop(self) -> None:
        """End the loop after the current message; from any thread. A consumer that waits ends within half a second."""
        self._stopped = True

    async def run(self, handler: Callable[[Leased], Awaitable[object]], *, concurrency: int = 8) -> None:
        """Call `handler` with each message, at most `concurrency` at once, until `stop` is called.

        Each message is acknowledged when its handler returns, and handed back if it raises. Messages of one ordering key are
        handled one after another. At the end this waits for the handlers that run. While the server is away it tries again.
        """
        if concurrency < 1:
            raise InvalidMessage("concurrency", "is at least 1")
        self._options["max"] = max(self._options["max"], concurrency)
        handlers = Handlers(concurrency)
        try:
            while True:
                await handlers.wait_for_room()
                if self._stopped or handlers.failure is not None:
                    break
                message = await self._take(self._clock.monotonic())
                if message is None and self._ahead:  # all are behind others of their keys
                    await self._receive(0)
                    message = await self._take(self._clock.monotonic())
                    if message is None:
                        await handlers.wait(LONGEST_WAIT / 1000)
                elif message is None:
                    await self._receive(LONGEST_WAIT)
                if message is not None:
                    self._busy.add(_key_of(message))
                    handlers.start(self._handle, handler, message)
        finally:
            try:
                await handlers.close()
            finally:
                await self._end(None)
        if handlers.failure is not None:
            raise handlers.failure

    async def _handle(self, handler: Callable[[Leased], Awaitable[object]], message: Leased) -> None:
        try:
            await handler(message)
        except BaseException as error:  # the handler's: it is the reason of the hand-back
            await self._hand_back(message, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._done.append(message)
        finally:
            self._busy.discard(_key_of(message))
        await self._acknowledge()

    async def _hand_back(self, message: Leased, error: BaseException) -> None:
        self.leases.take([message])
        try:
            found = await self._client.hand_back(message, reason=f"{type(error).__name__}: {error}")
        except Exception as failure:  # noqa: BLE001  # other messages are handled all the same
            found = failure
        if isinstance(found, Exception):
            log_unsettled([message], found)
        elif is_lost(found):
            log_lost([message])

    async def _acknowledge(self) -> None:
        """Acknowledge what is done. Handlers that end during this call leave their messages to it: it looks again."""
        while self._done and self._acknowledging.acquire(blocking=False):
            done = self._take_done()
            held = self.leases.take(done)
            try:
                results = await self._client.ack(*done)
            except Exception as error:  # noqa: BLE001  # the next acknowledgement includes them
                results = [error] * len(done)
            except BaseException:
                self._done.extendleft(reversed(self.leases.keep(held)))
                raise
            finally:
                self._acknowledging.release()
            failed = dict[str, Exception]()
            for one, result in zip(done, results, strict=True):
                if isinstance(result, Exception) and passes(result):
                    failed[one.lease] = result
                elif isinstance(result, Exception):
                    log_unsettled([one], result)
                elif is_lost(result):
                    log_lost([one])
            if failed:
                kept = self.leases.keep(one for one in held if one[0].lease in failed)
                self._done.extendleft(reversed(kept))
                self._log_failure(next(iter(failed.values())))
                return

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Leased:
        if self._current is not None:
            self._done.append(self._current)
            self._current = None
        while not self._stopped:
            now = self._clock.monotonic()
            if self._ahead and self._done and now - self._done_from >= ACK_AFTER:
                await self._acknowledge()
            self._current = await self._take(now)
            if self._current is not None:
                if not self._done:
                    self._done_from = now
                return self._current
            await self._receive(LONGEST_WAIT)
        await self.aclose()
        raise StopAsyncIteration

    def _take_done(self) -> list[Leased]:
        """Take the messages that are to be acknowledged."""
        return [self._done.popleft() for _ in range(len(self._done))]

    async def _take(self, now: int) -> Leased | None:
        """Take the next message that was received ahead, and that is behind no other one of its key."""
        if self._ahead and not self._ahead[0].ordering_key and self.leases.is_fresh(self._ahead[0], now):
            return self._ahead.popleft()
        passed = set[tuple[str, str]]()
        for message in list(self._ahead):
            key = _key_of(message)
            if message.ordering_key and (key in self._busy or key in passed):
                passed.add(key)
                continue
            lasts = await self.leases.lasts(message)  # it may have waited here behind slow ones
            if message not in self._ahead:
                return None  # somebody has closed the consumer meanwhile
            self._ahead.remove(message)
            if lasts:
                return message
            self.leases.take([message])
        return None

    async def _receive(self, wait: int) -> None:
        """Acknowledge messages that are done, and receive messages of the topics, after at most `wait` ms.

        If the server is away, this pauses instead.
        """
        try:
            await self._ask(wait)
        except StoreError as error:
            if not passes(error):
                raise
            self._log_failure(error)
            await pause(LONGEST_WAIT / 1000)
        except InvalidMessage as error:
            if error.field != "topic" or len(self._topics) == len(self._named):
                raise
            # A topic that was found has another route now. The next look finds the others again.
            self._topics = deque(self._named)
            self._find_at = self._find_of_group_at = self._clock.monotonic()
        else:
            self._failures = 0

    def _log_failure(self, error: Exception) -> None:
        if self._failures % LOG_EVERY == 0:
            logging.getLogger(LOGGER).warning("cannot receive messages, trying again: %s", error)
        self._failures += 1

    async def _ask(self, wait: int) -> None:
        if len(self._ahead) >= 2 * self._options["max"]:
            await self._acknowledge()
            return
        if self._patterns and self._clock.monotonic() >= self._find_at:
            await self._find()
        topics = self._topics[0] if len(self._topics) == 1 else list(self._topics)
        if not isinstance(topics, str) or any(one.topic != topics for one in self._done):
            await self._acknowledge()
        if not topics:
            await pause(wait / 1000)
            return
        since = self._clock.monotonic()
        self._topics.rotate(-1)  # so that no topic is always first
        done = self._take_done() if isinstance(topics, str) else []
        held = self.leases.take(done)
        try:
            messages = await self._client.receive(topics, wait=wait, lease=self._lease, ack=done, **self._options)
        except BaseException:
            self._done.extendleft(reversed(self.leases.keep(held)))  # they are acknowledged with the next call
            raise
        self._add(messages, since)

    def _add(self, messages: Sequence[Leased], since: int) -> None:
        self.leases.add(messages, since)
        self._ahead.extend(messages)

    async def _find(self) -> None:
        """Add the topics that fit a pattern, except those that are received elsewhere."""
        now, group, failure = self._clock.monotonic(), None, None
        self._find_at = now + FIND_EVERY
        if now >= self._find_of_group_at:
            group = self._options["group"]
        for pattern in self._patterns:
            for topic in await self._find_topics(pattern, group):
                if topic in self._topics:
                    continue
                since = self._clock.monotonic()
                try:
                    messages = await self._client.receive(topic, wait=0, lease=self._lease, ack=(), **self._options)
                except InvalidMessage as error:
                    if error.field != "topic":
                        raise
                    continue  # its route is no stream of delayq's own Redis
                except StoreError as error:
                    failure = error  # the others are received all the same
                    continue
                self._topics.append(topic)
                self._add(messages, since)
        if failure is not None:
            raise failure
        if group is not None:
            self._find_of_group_at = now + FIND_OF_GROUP_EVERY

    async def aclose(self) -> None:
        """Give back the messages that were not handled; again is harmless."""
        await self._end(None)

    async def _end(self, error: BaseException | None) -> None:
        self._stopped = True
        current, self._current = self._current, None
        left = list(self._ahead)
        self._ahead.clear()
        if current is not None and isinstance(error, Exception):
            await self._hand_back(current, error)
        elif current is not None:
            left.insert(0, current)
        await self.leases.close(left)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)


def _key_of(message: Leased) -> tuple[str, str]:
    return message.topic, message.ordering_key


def _longest(lease: int, max_lease: Duration | None) -> int:
    """For how many ms the lease of a message is renewed. Raises InvalidMessage."""
    if max_lease is None:
        return max(lease, LONGEST_RENEWED)
    longest = given_duration("maxLease", max_lease) or 0
    if not lease <= longest <= MOST_RENEWED:
        raise InvalidMessage("maxLease", "is at least the lease, and at most 12 h")
    return longest
