"""A producer of librdkafka, its thread, and the delivery reports of a batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

from delayq.base.errors import MissingExtra

try:
    from confluent_kafka import KafkaError, Message, Producer
except ModuleNotFoundError:
    raise MissingExtra("a kafka target", "kafka") from None

#: Makes a producer of its settings.
Make = Callable[..., Producer]

POLL_SECONDS: Final = 0.2
#: librdkafka reports purged messages at once; this is for a busy machine.
PURGE_SECONDS: Final = 0.5

_log = logging.getLogger("delayq.targets.kafka.target")


def _librdkafka() -> logging.Logger:
    """The logger of librdkafka, which logs every failed connection, three a second: off, unless somebody sets its level.

    The effect on a message is in the message's result, and in the log of the circuit.
    """
    logger = logging.getLogger("delayq.targets.kafka.target.librdkafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return logger


class BatchReport:
    """The reports on the messages of one batch; None for a message without a report. One thread reports, one waits."""

    __slots__ = ("_done", "_seen", "_wanted", "errors", "reported")

    def __init__(self, size: int) -> None:
        self.reported: list[bool] = [False] * size
        self.errors: list[tuple[int, KafkaError]] = []
        self._seen = 0
        self._wanted = -1
        self._done = threading.Event()

    def report(self, place: int, error: KafkaError | None, message: Message) -> None:
        """The callback of librdkafka for the message at this place."""
        if error is not None:
            self.errors.append((place, error))
        self.reported[place] = True
        self._seen += 1
        if self._seen == self._wanted:
            self._done.set()

    def wait(self, wanted: int, seconds: float) -> bool:
        """Return whether that many were reported within this time."""
        self._wanted = wanted
        # The reporting thread counts first and reads then, this one the other way round, so one of them notices.
        return self._seen == wanted or self._done.wait(seconds)


class Producing:
    """A producer for several threads, until it is closed and the last thread has released it."""

    def __init__(self, settings: Mapping[str, Any], *, make: Make = Producer) -> None:
        self.trouble = ""  # its last error about its brokers
        self.broken = False  # it accepts no messages
        self.down = False  # it reached none of its brokers, and no message has arrived since
        self._lock = threading.Lock()
        self._users = 0
        self._ending = False
        self._producer = make({**settings, "error_cb": self.failed}, logger=_librdkafka())
        self.produce = self._producer.produce
        self._thread = threading.Thread(target=self._serve, name="kafka-reports", daemon=True)
        self._thread.start()

    def take(self) -> Self:
        """Use it, until `release`."""
        with self._lock:
            self._users += 1
        return self

    def release(self) -> None:
        """Release it."""
        with self._lock:
            self._users -= 1

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def abandon(self) -> None:
        """Send no waiting message: all are reported as failed now. The producer is unusable afterwards."""
        self.broken = True
        with suppress(RuntimeError):  # closed meanwhile
            self._producer.purge()

    def end(self) -> None:
        """Close it once nobody uses it."""
        self._ending = True

    def join(self, seconds: float) -> None:
        """Wait until it has closed, for at most this time."""
        self._thread.join(seconds)

    def failed(self, error: KafkaError) -> None:
        """Record an error of the producer itself."""
        if error.fatal():
            self.broken = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down = True
        else:  # the error of each broker
            self.trouble = error.str()

    def arrived(self) -> None:
        """Record that all messages of a batch have arrived."""
        self.trouble = ""
        self.down = False

    def _serve(self) -> None:
        """Receive reports, each as soon as it arrives."""
        producer = self._producer
        while not (self._ending and not self._users):
            try:
                producer.poll(POLL_SECONDS)
            except Exception:
                _log.exception("kafka_poll_failed")  # and continue, because sends wait for the reports
        if len(producer):
            producer.purge()
            producer.flush(PURGE_SECONDS)
        producer.close()
