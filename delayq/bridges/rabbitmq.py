"""The bridge for producers that write to RabbitMQ: the messages of a queue are scheduled by their `x-delay` headers.

A message is acknowledged when delayq has accepted it, and not before. A message that delayq can never accept goes to the
dead-letter exchange of the queue. At least once: a message that has a `message_id` is scheduled once, however often the
broker delivers it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from delayq.base.clock import Clock
from delayq.base.errors import ConfigError, Conflict, DelayqError, InvalidMessage, StoreError, TooManyPending
from delayq.bridges.amqp_messages import Reader
from delayq.client.client import Client
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.message import Message
from delayq.targets.rabbitmq.errors import NoAddress, words_of
from delayq.targets.rabbitmq.stream import BrokerStream

MOST: Final = 500  # in one call
LOOK: Final = 0.2  # s that it waits for messages before it checks whether to stop
FIRST_PAUSE: Final = 100
LONGEST_PAUSE: Final = 5_000
#: The final answers of the broker: no right, no such queue, no such virtual host. A retry changes nothing.
HOPELESS: Final = frozenset({403, 404, 405, 530})


class Counts(msgspec.Struct):
    """The outcomes of the messages so far; `repeated` counts messages that had been scheduled before."""

    scheduled: int = 0
    repeated: int = 0
    refused: int = 0


class _Taken(msgspec.Struct):
    """A message that the broker waits for an answer to."""

    tag: int
    message: Message
    redelivered: bool
    since: int  # monotonic ms


class Bridge:
    """Takes messages from one queue and schedules them. `run` in one thread; `stop` from any thread, or from a signal."""

    def __init__(
        self,
        client: Client,
        brokers: Sequence[pika.ConnectionParameters],
        queue: str,
        reader: Reader,
        tell: Callable[[str], None],
        *,
        clock: Clock,
        prefetch: int = 1_000,
    ) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # its errors are reported
        self.counts = Counts()
        self._client = client
        self._brokers = brokers
        self._queue = queue
        self._reader = reader
        self._tell = tell
        self._clock = clock
        self._prefetch = prefetch
        self._stopping = False
        self._condition = threading.Condition()
        self.connects = False  # whether it waits for the broker, with no message taken
        self._served = False  # whether the broker has ever allowed it to read the queue
        self._taken: deque[_Taken] = deque()  # in the order of their tags
        self._channel: Any = None
        self._trouble = ""

    def stop(self) -> None:
        """Let `run` finish its current messages, and return."""
        self._stopping = True

    def run(self) -> Counts:
        """Take messages until `stop`. Raises LayoutMismatch, and ConfigError if it was never allowed to read the queue."""
        pause = FIRST_PAUSE
        while not self._stopping:
            try:
                self.connects = True
                with pika.BlockingConnection(self._brokers, _impl_class=BrokerStream) as connection:
                    self.connects = False
                    self._consume(connection)
                    pause = FIRST_PAUSE
                    self._work(connection)
                    self._channel.close()  # unanswered messages go back to the queue
            except (AMQPError, OSError) as error:
                self.connects = False
                self._lost(error)
                self._wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
        return self.counts

    def _lost(self, error: BaseException) -> None:
        """Forget all unanswered messages: the broker has them, and delivers them again."""
        self._taken.clear()
        words = words_of(error)
        if not self._served and _is_hopeless(error):
            raise ConfigError(
                f"RabbitMQ does not allow the bridge to read the queue {self._queue!r}: {words}"
            ) from None
        self._troubled(f"RabbitMQ: {words}; retrying")

    def _consume(self, connection: Any) -> None:
        self._channel = connection.channel()
        self._channel.basic_qos(prefetch_count=self._prefetch)
        self._channel.basic_consume(self._queue, self._take)
        self._channel.add_on_cancel_callback(lambda _: self._cancelled())
        if self._served:
            self._untroubled()
        else:
            self._trouble = ""
            self._tell(f"taking the messages of the queue {self._queue} of RabbitMQ; Ctrl-C or SIGTERM ends it")
        self._served = True

    def _cancelled(self) -> None:
        raise ChannelClosedByBroker(404, f"the queue {self._queue!r} was deleted")

    def _work(self, connection: Any) -> None:
        pause = again_at = 0
        while not self._stopping:
            # Also while Redis is away, for the heartbeats. The prefetch bounds the messages taken meanwhile.
            left = again_at - self._clock.monotonic()
            connection.process_data_events(min(LOOK, left / 1000) if left > 0 else 0 if self._taken else LOOK)
            if not self._taken or self._clock.monotonic() < again_at:
                continue
            error = self._schedule([self._taken[place] for place in range(min(MOST, len(self._taken)))])
            if error is None:
                self._untroubled()
                pause = 0
            else:
                self._troubled(f"{str(error).rstrip('.')}; retrying")
                pause = min(LONGEST_PAUSE, pause * 2) if pause else FIRST_PAUSE
                again_at = self._clock.monotonic() + pause

    def _take(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        """Read a delivery and keep it for the next call, or refuse it at once."""
        try:
            message = self._reader.read(method, properties, body, self._clock.now())
        except InvalidMessage as error:
            self._refuse(method.delivery_tag, properties.message_id, error)
            return
        since = self._clock.monotonic()
        self._taken.append(_Taken(method.delivery_tag, message, bool(method.redelivered), since))

    def _schedule(self, batch: Sequence[_Taken]) -> StoreError | TooManyPending | None:
        """Schedule the first of the taken messages, and acknowledge all with an answer. Return the error of the others."""
        now = self._clock.monotonic()
        outcomes = self._client.schedule_many([_since(one, now) for one in batch])
        failure: StoreError | TooManyPending | None = None
        left: list[_Taken] = []
        accepted: list[int] = []
        for one, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Scheduled):
                accepted.append(one.tag)
                if outcome.created:
                    self.counts.scheduled += 1
                else:
                    self.counts.repeated += 1
            elif isinstance(outcome, Conflict) and outcome.removed and one.redelivered:
                accepted.append(one.tag)  # it was scheduled, and removed before the broker got the answer
                self.counts.repeated += 1
            elif isinstance(outcome, InvalidMessage | Conflict):
                self._refuse(one.tag, one.message.id, outcome)
            elif isinstance(outcome, StoreError | TooManyPending):
                failure = outcome
                left.append(one)
            else:
                raise outcome
        for _ in batch:
            self._taken.popleft()
        self._taken.extendleft(reversed(left))
        if len(accepted) == len(batch):  # and no earlier message waits for an answer
            self._channel.basic_ack(accepted[-1], multiple=True)
        else:
            for tag in accepted:
                self._channel.basic_ack(tag)
        return failure

    def _refuse(self, tag: int, id: str | None, error: DelayqError) -> None:
        self.counts.refused += 1
        self._channel.basic_reject(tag, requeue=False)
        self._tell(f"refused {id or 'a message without an id'} of the queue {self._queue}: {error}")

    def _troubled(self, trouble: str) -> None:
        """Report it once."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell(trouble)

    def _untroubled(self) -> None:
        if self._trouble:
            self._trouble = ""
            self._tell("going on")

    def _wait(self, pause: int) -> None:
        end = self._clock.monotonic() + pause
        with self._condition:
            while not self._stopping and (left := end - self._clock.monotonic()) > 0:
                self._clock.wait(self._condition, min(left, LOOK * 1000))


def _is_hopeless(error: BaseException) -> bool:
    """Return whether a retry changes nothing: with several brokers, at none of them."""
    if isinstance(error, NoAddress):
        return all(_is_hopeless(one) for _, one in error.failures)
    words = words_of(error)
    return getattr(error, "reply_code", None) in HOPELESS or any(f"({code})" in words for code in HOPELESS)


def _since(one: _Taken, now: int) -> Message:
    """Return the message, with the remaining part of its delay."""
    waited = now - one.since
    delay = one.message.delay_time or 0
    return msgspec.structs.replace(one.message, delay_time=max(0, delay - waited)) if waited and delay else one.message
