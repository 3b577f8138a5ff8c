"""A producer of Kafka that tells what is wrong with its brokers when a test lets it, not when it happens to find out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer

__all__ = ["Telling"]


class Telling(Producer):
    """Tells what is wrong with its brokers when it may: at once, or from its first message on.

    `found` is set once it knows of something, told or not, and `down` once it has told that it reaches none of them.
    """

    def __init__(self, settings: Mapping[str, Any], *, early: bool, **more: Any) -> None:
        self.found = threading.Event()
        self.down = threading.Event()
        self._may = threading.Event()
        if early:
            self._may.set()
        tell = settings["error_cb"]

        def wait_and_tell(error: KafkaError) -> None:
            self.found.set()
            self._may.wait()
            tell(error)
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self.down.set()

        super().__init__({**settings, "error_cb": wait_and_tell}, **more)

    def produce(self, *given: Any, **named: Any) -> None:
        self._may.set()
        super().produce(*given, **named)
