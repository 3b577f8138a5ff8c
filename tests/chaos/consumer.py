"""The consumer: reads what was forwarded from the streams of both servers, records it, and trims what it has read."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import redis

from tests.chaos.history import History

__all__ = ["Consumer"]

PAGE = 2_000
PAUSE = 0.05
TRIM_EVERY = 40


class Consumer:
    """Reads these streams of one server in a thread of its own."""

    def __init__(self, url: str, streams: Sequence[str], history: History) -> None:
        self._history = history
        self._last = dict.fromkeys(streams, "0")
        self._redis: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2, socket_timeout=5)
        self._over = threading.Event()
        self._round = 0
        self.read = 0
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="consumer")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Read to the end."""
        self._over.set()
        self._thread.join(60)
        self._redis.close()

    def _run(self) -> None:
        try:
            while True:
                over = self._over.is_set()
                if not self._look():
                    if over:
                        return
                    self._over.wait(PAUSE)
        except BaseException as error:
            self.failed.append(error)

    def _look(self) -> bool:
        """Read a page of each stream; whether there may be more."""
        try:
            found = self._redis.xread(self._last, count=PAGE) or []
            self._round += 1
            if self._round % TRIM_EVERY == 0:
                self._trim()
        except redis.exceptions.RedisError:
            return False  # it is away
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
        return bool(found)

    def _trim(self) -> None:
        for stream, last in self._last.items():
            if last != "0":
                self._redis.xtrim(stream, minid=last)
