"""`python -m reliability.consuming.consumer http|redis URL GROUP SEED FILE`: a consumer of the run, until SIGTERM.

It receives from a stream of one topic, a stream of two topics, a stream for each queue, and a topic of its group's own. It
acknowledges most messages at once. It hands some back, to the same topic or to the topic of its group. It extends some leases,
forgets some messages, and acknowledges some only after their lease has ended. It hands back each message of `POISONED` every
time, so these become dead letters.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from delayq import Client, http
from delayq.base.errors import DelayqError, StoreError
from delayq.config import load_settings
from delayq.received import Received
from reliability.consuming.records import Records, now

#: A topic with a stream, two topics that share one, and a topic with a stream for each queue.
ONE: Final = "chaos.consumed"
SHARED: Final = ("chaos.shared.a", "chaos.shared.b")
QUEUES: Final = "chaos.queues"
LEASE: Final = 2_000  # ms
REDIS_TIMEOUT: Final = 2_000
MIN_REPLICAS: Final = 1
POISONED: Final = 50  # one of so many messages
PAUSE = 0.2
#: This group begins at the end of its streams, before the first message is scheduled: later streams it receives from their first.
START: Final = {"audit": "end"}
_NUMBER: Final = re.compile(r"m-(\d+)")


def own_topic(group: str) -> str:
    """The topic to which a group hands back what only it is to receive again."""
    return f"chaos.back.{group}"


def _is_poisoned(id: str) -> bool:
    found = _NUMBER.match(id)
    return found is not None and int(found[1]) % POISONED == 0


class Consumer:
    """Receives and settles messages by a client of Redis or of the API."""

    def __init__(self, client: Any, group: str, dice: random.Random, records: Records) -> None:
        self._client = client
        self._group = group
        self._topics = [ONE, dice.choice(SHARED), QUEUES, own_topic(group)]
        self._dice = dice
        self._records = records
        self.stopped = False

    def run(self) -> None:
        """Consume until it is stopped."""
        while not self.stopped:
            sent = now()
            try:
                messages = self._client.receive(
                    self._topics,
                    group=self._group,
                    max=5,
                    wait=500,
                    lease=LEASE,
                    start=START.get(self._group, "beginning"),
                )
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
        is_moved = one.topic == own_topic(self._group)
        if _is_poisoned(one.id) or chance < 0.05:
            self._records.write("returns", one.id, one.lease)
            self._settle(one, lambda: self._client.hand_back(one, reason="no stock", delay_time=200))
            return
        if chance < 0.09 and not is_moved:
            self._move(one)
            return
        if chance < 0.10:
            return  # its lease ends
        if chance < 0.105:
            time.sleep(LEASE / 1000 + PAUSE)
        elif chance < 0.16:
            sent = now()
            try:
                result = self._client.extend(one, LEASE)
            except StoreError as error:
                self._failed(error)
            else:
                if getattr(result, "result", "") == "extended":
                    self._records.write("extended", one.id, one.lease, sent + LEASE)
        self._records.write("handled", one.id, one.lease, "moved" if is_moved else None)
        self._settle(one, lambda: self._client.ack(one)[0])

    def _move(self, one: Any) -> None:
        """Hand the message back to the topic of the group, as a consumer of another target does, then acknowledge it."""
        handed_back = Received(
            id=one.id,
            topic=own_topic(self._group),
            due=one.due,
            keys=one.keys,
            ordering_key=one.ordering_key,
            properties=one.properties,
            body=one.body,
        )
        while not self.stopped:
            try:
                self._client.hand_back(handed_back, reason="no stock", delay_time=200)
            except DelayqError as error:
                self._failed(error)
                continue
            self._records.write("moved", one.id, one.lease)
            self._records.write("handled", one.id, one.lease)
            self._settle(one, lambda: self._client.ack(one)[0])
            return

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
