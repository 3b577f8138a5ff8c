"""A producer for the Kafka target that needs no broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, cast

from confluent_kafka import KafkaError, Producer

from delayq.routes import Route
from delayq.targets.kafka.target import KafkaTarget
from tests.support.timeouts import SEND_TIMEOUT

__all__ = ["SILENCE", "URL", "FakeProducer", "Opened"]

URL = "kafka://127.0.0.1:1"
SILENCE = object()


class FakeProducer:
    """Reports what `fate` says of a message at the next poll, or raises it; SILENCE is no report."""

    def __init__(self, settings: dict[str, Any], logger: logging.Logger) -> None:
        self.settings = settings
        self.logger = logger
        self.fate: Callable[[str], Any] = lambda id: None
        self.topics: list[str] = []
        self.closed = False
        self.purged = False
        self._waiting: list[tuple[Any, Any]] = []
        self._condition = threading.Condition()

    def produce(self, topic: str, value: bytes, key: str, headers: Any, on_delivery: Any) -> None:
        assert not self.closed
        self.fate_of(dict(headers)["id"], on_delivery)
        self.topics.append(topic)

    def fate_of(self, id: str, on_delivery: Any) -> None:
        fate = self.fate(id)
        if isinstance(fate, Exception):
            raise fate
        self.report(on_delivery, fate)

    def report(self, on_delivery: Any, fate: Any = None) -> None:
        with self._condition:
            self._waiting.append((on_delivery, fate))
            self._condition.notify()

    def poll(self, timeout: float) -> int:
        with self._condition:
            if not [one for one in self._waiting if one[1] is not SILENCE]:
                self._condition.wait(0.01)
            ready = [one for one in self._waiting if one[1] is not SILENCE]
            self._waiting = [one for one in self._waiting if one[1] is SILENCE]
        for report, fate in ready:
            report(fate, None)
        return len(ready)

    def purge(self) -> None:
        self.purged = True
        with self._condition:
            self._waiting = [(report, KafkaError(KafkaError._PURGE_QUEUE)) for report, _ in self._waiting]
            self._condition.notify()

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def close(self) -> None:
        self.closed = True

    def __len__(self) -> int:
        return len(self._waiting)


class Opened:
    """Opens targets, and has the producers that they made."""

    def __init__(self) -> None:
        self.made: list[FakeProducer] = []
        self.targets: list[KafkaTarget] = []

    def __call__(
        self, url: str = URL, options: dict[str, Any] | None = None, send_timeout: int | None = SEND_TIMEOUT
    ) -> KafkaTarget:
        route = Route(name="k", target=url, send_timeout=send_timeout, options=options or {})
        self.targets.append(KafkaTarget(url, route, "", make=cast(Callable[..., Producer], self._make)))
        return self.targets[-1]

    def _make(self, settings: dict[str, Any], logger: logging.Logger) -> FakeProducer:
        self.made.append(FakeProducer(settings, logger))
        return self.made[-1]
