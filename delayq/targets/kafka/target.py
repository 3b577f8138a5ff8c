"""Kafka: each message is a record, which counts as delivered when all replicas in sync have it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial  # noqa: TID251  # the keys are topics of at most 255 characters
from typing import Final

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError
from delayq.domain.message import TRACEPARENT
from delayq.domain.routes import Route
from delayq.targets import OK, Delivery, Result
from delayq.targets.kafka.producer import PURGE_SECONDS, BatchReport, Make, Producing
from delayq.targets.kafka.settings import KafkaSettings, name_of, topic_refusal

# Imported after `kafka_producer`, which names the missing extra.
from confluent_kafka import KafkaError, KafkaException, Producer  # isort: skip

#: ms by which a producer gives up messages before the timeout of `send`.
FIRST_TIMEOUT: Final = 30_000
#: librdkafka checks expired messages once per second, so their time ends this many ms before that of `send`.
EARLIER: Final = 2_000
#: ms that `close` waits for sends; the seconds that they have after that.
CLOSE_MS: Final = 5_000
CLOSING_SECONDS: Final = 2.0

#: Topics come from outside, so this many names are remembered.
MOST_TOPICS: Final = 10_000

#: The message is at fault, if it was alone in the refused request.
FAULTS: Final = frozenset({
    KafkaError.INVALID_MSG_SIZE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP, KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE, KafkaError._INVALID_DIFFERENT_RECORD,
})  # fmt: skip
#: Nothing was written, and the message is not at fault.
REFUSALS: Final = frozenset({
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.INVALID_REQUIRED_ACKS, KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.POLICY_VIOLATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_EXCEPTION, KafkaError.UNKNOWN_TOPIC_ID, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError._AUTHENTICATION,
    KafkaError._QUEUE_FULL, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC,
})  # fmt: skip


_LATE: Final = Result.unknown("Kafka did not report the outcome in time")


class KafkaTarget:
    """Sends by one idempotent producer for all threads; the delivery report of each message decides.

    At least once: a message without a report in time is sent again, with the same `id`. The producer gives
    messages up before `send` does, so that no message leaves the producer after its result was returned.
    """

    max_batch = 1_000

    def __init__(self, url: str, route: Route, redis_url: str, *, make: Make = Producer) -> None:
        self._clock = SystemClock()
        self._make = make
        self._settings = KafkaSettings(url, route)
        self._topic_of = lru_cache(MOST_TOPICS)(partial(_topic_of, self._settings.template))
        self._lock = threading.Lock()
        self._closed = False
        self._ms = route.send_timeout or FIRST_TIMEOUT
        self._alone: Producing | None = None
        self._ended: list[Producing] = []
        try:
            self._main = self._open(alone=False)
        except (KafkaException, ValueError, TypeError) as error:
            reason = self._settings.shown(_words(error.args[0]))
            raise ConfigError(f"route {route.name}: Kafka cannot be used: {reason}") from None

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Pass the batch to the producer and wait for the report of each message."""
        ms = max(1, int(timeout * 1000))
        deadline = self._clock.monotonic() + ms
        results: list[Result] = [_LATE] * len(batch)
        doubtful = self._send(batch, range(len(batch)), results, deadline, ms)
        if doubtful and deadline - self._clock.monotonic() > ms // 2:
            self._send(batch, doubtful, results, deadline, ms, alone=True)
        return results

    def _send(
        self,
        batch: Sequence[Delivery],
        places: Sequence[int],
        results: list[Result],
        deadline: int,
        ms: int,
        *,
        alone: bool = False,
    ) -> Sequence[int]:
        """Send the messages at these places and write down what became of them.

        A broker refuses all records of a batch together. The places of messages that may have been refused for another
        one's fault are returned: they are to be sent alone.
        """
        producing = self._take(ms, alone=alone)
        if producing is None:
            for place in places:
                results[place] = Result.unavailable("the target is closed")
            return ()
        sent = BatchReport(len(batch))
        down = producing.down
        try:
            taken = self._hand_over(producing, batch, places, sent, results, deadline)
            left = max(0, deadline - self._clock.monotonic()) / 1000
            if not sent.wait(len(taken), left):
                producing.abandon()  # or it would send them after their outcome was reported as unknown
                sent.wait(len(taken), PURGE_SECONDS)
        finally:
            producing.release()
        for place in taken:
            if sent.reported[place]:
                results[place] = OK
        if not sent.errors:
            producing.arrived()
        # A batch that found no broker, from its start to its end, was not sent.
        late = Result.unavailable if down and producing.down else Result.unknown
        doubtful = []
        for place, error in tuple(sent.errors):
            if error.code() in FAULTS and not alone:
                doubtful.append(place)
                results[place] = Result.unavailable(f"sent together with others: {_words(error)}")
            else:
                results[place] = _judge(error, producing.trouble, late)
        return doubtful

    def _hand_over(
        self,
        producing: Producing,
        batch: Sequence[Delivery],
        places: Sequence[int],
        sent: BatchReport,
        results: list[Result],
        deadline: int,
    ) -> Sequence[int]:
        """Return the places that the producer has accepted; record the results of the others."""
        produce, report, now = producing.produce, sent.report, self._clock.monotonic
        taken = []
        for place in places:
            one = batch[place]
            asked = one.topic
            topic = self._topic_of(asked)
            if not topic:
                results[place] = Result.rejected(topic_refusal(self._settings.template, asked))
                continue
            if now() >= deadline:  # the producer would give it time of its own
                results[place] = Result.unavailable("no time was left to send it")
                continue
            try:
                key, headers = _key_and_headers(one, topic != asked)
                produce(topic, one.payload, key, headers=headers, on_delivery=partial(report, place))
            except BufferError:
                results[place] = Result.unavailable("the producer's queue is full")
            except KafkaException as failure:
                error = failure.args[0]
                producing.failed(error)
                # It was not accepted, for whatever reason.
                make = Result.rejected if error.code() in FAULTS else Result.unavailable
                results[place] = make(_words(error))
            else:
                taken.append(place)
        return taken

    # -- producers -----------------------------------------------------------------------------------------------------

    def _take(self, ms: int, *, alone: bool) -> Producing | None:
        """Return a working producer with this timeout, to be released; None when the target is closed."""
        with self._lock:
            if self._closed:
                return None
            if ms != self._ms:
                self._ms = ms
                self._renew()
            if alone:
                if self._alone is None or self._alone.broken:
                    self._end(self._alone)
                    self._alone = self._open(alone=True)
                return self._alone.take()
            if self._main.broken:
                main = self._open(alone=False)
                self._end(self._main)
                self._main = main
            return self._main.take()

    def _renew(self) -> None:
        main = self._open(alone=False)
        self._end(self._main)
        self._end(self._alone)
        self._main, self._alone = main, None

    def _open(self, *, alone: bool) -> Producing:
        settings = self._settings.timed(max(1, self._ms - min(EARLIER, self._ms // 2)))
        if alone:
            ms = max(1, self._ms // 4)
            settings = {**self._settings.timed(ms), "batch.num.messages": 1}
        return Producing(settings, make=self._make)

    def _end(self, producing: Producing | None) -> None:
        """Close it once its users have released it."""
        self._ended = [one for one in self._ended if one.alive]
        if producing is not None:
            producing.end()
            self._ended.append(producing)

    def close(self) -> None:
        """Let the current sends end, for some seconds; then send nothing."""
        with self._lock:
            self._closed = True
            self._end(self._main)
            self._end(self._alone)
            ending = self._ended
        deadline = self._clock.monotonic() + CLOSE_MS
        for one in ending:
            one.join(max(0, deadline - self._clock.monotonic()) / 1000)
        late = [one for one in ending if one.alive]
        for one in late:
            one.abandon()
        for one in late:
            one.join(CLOSING_SECONDS)


def _topic_of(template: str, topic: str) -> str:
    """Return the name of the record's topic; '' if Kafka does not allow it."""
    return "" if topic_refusal(template, topic) else name_of(template, topic)


def _key_and_headers(one: Delivery, other_name: bool) -> tuple[str | None, dict[str, str | bytes | None]]:
    """Return the record's key, which chooses its partition, and its headers; the topic if its name here differs."""
    ordering_key, keys = one.ordering_key, one.keys
    headers: dict[str, str | bytes | None] = {
        "id": one.id, "due": str(one.due), "attempt": str(one.attempt), "content-type": one.content_type
    }  # fmt: skip
    if other_name:
        headers["topic"] = one.topic
    if tags := one.tags:
        headers["tags"] = tags
    if keys:
        headers["keys"] = keys[0] if len(keys) == 1 else " ".join(keys)
    if ordering_key:
        headers["ordering-key"] = ordering_key
    if properties := one.properties:
        for name, value in properties.items():
            headers[name if name == TRACEPARENT else f"p:{name}"] = value  # where Kafka's tracing expects it
    return ordering_key or (keys[0] if keys else None), headers


def _judge(error: KafkaError, trouble: str, late: Callable[[str], Result]) -> Result:
    """The outcome of a message by its report's error. With one of FAULTS the message was alone.

    `late` is what one is whose time was over.
    """
    code = error.code()
    if code in FAULTS:
        return Result.rejected(_words(error))
    if code in REFUSALS:
        return Result.unavailable(_words(error))
    make = late if code == KafkaError._MSG_TIMED_OUT else Result.unknown
    return make(f"{_words(error)}; {trouble}" if trouble else _words(error))


def _words(error: object) -> str:
    """Return the broker's own words, or librdkafka's."""
    return f"{error.str()} ({error.name()})" if isinstance(error, KafkaError) else str(error)
