"""`python -m reliability.consuming.consumer http|redis URL GROUP SEED FILE`: a consumer of the run, until SIGTERM.

Most messages it acknowledges at once. It hands some back, extends some leases, forgets some messages, and acknowledges some only
after their lease has ended. It hands back each message of `POISONED` every time, so these become dead letters.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from delayq import Client, http
from delayq.config import load_settings
from delayq.errors import DelayqError, StoreError
from reliability.consuming.records import Records, now

__all__ = ["LEASE", "MIN_REPLICAS", "POISONED", "REDIS_TIMEOUT", "TOPIC"]

TOPIC: Final = "chaos.consumed"
LEASE: Final = 2_000  # ms
REDIS_TIMEOUT: Final = 2_000
MIN_REPLICAS: Final = 1
POISONED: Final = 50  # one of so many messages
PAUSE = 0.2


class Consumer:
    """Receives and settles messages by a client of Redis or of the API."""

    def __init__(self, client: Any, group: str, dice: random.Random, records: Records) -> None:
        self._client = client
        self._group = group
        self._dice = dice
        self._records = records
        self.stopped = False

    def run(self) -> None:
        """Consume until it is stopped."""
        while not self.stopped:
            sent = now()
            try:
                messages = self._client.receive(TOPIC, group=self._group, max=3, wait=500, lease=LEASE)
            except DelayqError as error:
                self._failed(error)
                continue
            self._records.write("answered")
            for one in messages:
                self._records.write("leased", one.id, one.lease, sent + LEASE)
            for one in messages:
                self._handle(one)

    def _failed(self, error: object) -> None:
        self._records.write("failed", more=str(error))
        time.sleep(PAUSE)

    def _handle(self, one: Any) -> None:
        chance = self._dice.random()
        if int(one.id.rpartition("-")[2]) % POISONED == 0 or chance < 0.05:
            self._records.write("returns", one.id, one.lease)
            self._settle(one, lambda: self._client.hand_back(one, reason="no stock", delay_time=200))
            return
        if chance < 0.07:
            return  # its lease ends
        if chance < 0.09:
            time.sleep(LEASE / 1000 + PAUSE)
        elif chance < 0.15:
            sent = now()
            try:
                result = self._client.extend(one, LEASE)
            except StoreError as error:
                self._failed(error)
            else:
                if getattr(result, "result", "") == "extended":
                    self._records.write("extended", one.id, one.lease, sent + LEASE)
        self._records.write("handled", one.id, one.lease)
        self._settle(one, lambda: self._client.ack(one)[0])

    def _settle(self, one: Any, call: Callable[[], Any]) -> None:
        """Repeat a call until it has an answer: that is always safe."""
        while not self.stopped:
            try:
                result = call()
            except DelayqError as error:
                result = error
            if not isinstance(result, Exception):
                self._records.write("settled", one.id, one.lease, result.result)
                return
            self._failed(result)


def main(kind: str, url: str, group: str, seed: str, file: str) -> None:
    """Consume until SIGTERM."""
    client: Any
    if kind == "http":
        client = http.Client(url, timeout=4_000, give_up_after=8_000)
    else:
        client = Client(settings=load_settings(redis_url=url, redis_timeout=REDIS_TIMEOUT, min_replicas=MIN_REPLICAS))
    consumer = Consumer(client, group, random.Random(seed), Records(Path(file)))

    def stop(*_: object) -> None:
        consumer.stopped = True

    signal.signal(signal.SIGTERM, stop)
    consumer.run()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
