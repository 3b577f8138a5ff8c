"""The consumer reads the delivered messages from the streams of both servers, records them, and trims the streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis

from reliability.chaos.history import History
from reliability.waiting import GaveUp, join

PAGE = 2_000
PAUSE = 0.05
TRIM_EVERY = 40
SECONDS = 5.0  # for one reply: faults stop the server of the streams now and then


class Consumer:
    """Reads these streams of one server in a thread of its own."""

    def __init__(self, url: str, streams: Sequence[str], history: History) -> None:
        self._history = history
        self._last = dict.fromkeys(streams, "0")
        self._redis: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2, socket_timeout=SECONDS)
        self._over = threading.Event()
        self._until = 0.0
        self._round = 0
        self.read = 0
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="consumer")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Read to the end. A server that is away has so many seconds to come back."""
        self._until = time.monotonic() + seconds
        self._over.set()
        join([self._thread])
        self._redis.close()

    def _run(self) -> None:
        try:
            while True:
                over = self._over.is_set()
                found = self._look()
                if over and found == 0:
                    return
                if over and found is None and time.monotonic() >= self._until:
                    raise GaveUp(
                        "the server of the streams does not answer, so nobody knows which other messages were delivered"
                    )
                if not found:
                    (time.sleep if over else self._over.wait)(PAUSE)
        except BaseException as error:
            self.failed.append(error)

    def _look(self) -> int | None:
        """Read a page of each stream; in how many there may be more, or None if the server does not answer."""
        try:
            found = self._redis.xread(self._last, count=PAGE) or []
            self._round += 1
            if self._round % TRIM_EVERY == 0:
                self._trim()
        except redis.exceptions.RedisError:
            return None
        for stream, entries in found:
            self._last[stream] = entries[-1][0]
            self.read += len(entries)
            self._history.forwarded(
                stream,
                [
                    (int(id.partition("-")[0]), entry["id"], int(entry["due"]), int(entry["attempt"]))
                    for id, entry in entries
                ],
            )
        return len(found)

    def _trim(self) -> None:
        for stream, last in self._last.items():
            if last != "0":
                self._redis.xtrim(stream, minid=last)
