"""A worker with something wrong inside: `python -m tests.faults.saboteur [fault …]` runs `python -m workers`.

Faults: `raise` (every 5th pull fails after Redis has answered it), `die` (a pull job's thread ends now and then).
Besides, it knows targets that misbehave, before they pass a batch on to the Redis Stream behind them:

- `slow:<ms>:<url>` waits that long before each send.
- `hang:<path>:<url>` never answers, whatever its time-out, while that file exists.
"""

from __future__ import annotations

import itertools
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from delayq.routes import Route
from delayq.targets import Delivery, Result, register_target
from delayq.targets.redis_stream.target import RedisStreamTarget
from workers.queue.pull import Pulling

EVERY_FIFTH, NOW_AND_THEN = 5, 40


class Behind:
    """A stream behind something that goes wrong first."""

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        kind, what, stream = url.split(":", 2)
        self._trouble: Callable[[], None] = self._hang if kind == "hang" else self._wait
        self._what = what
        self._stream = RedisStreamTarget(stream, route, redis_url)
        self.max_batch = self._stream.max_batch

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        self._trouble()
        return self._stream.send(batch, timeout)

    def _wait(self) -> None:
        time.sleep(int(self._what) / 1000)

    def _hang(self) -> None:
        while Path(self._what).exists():
            time.sleep(0.01)

    def close(self) -> None:
        self._stream.close()


def break_pulls(error: BaseException, every: int) -> None:
    """Let every so manieth pull raise, after Redis has answered it."""
    take, count = Pulling.take, itertools.count(1)

    def broken(self: Pulling, *args: Any) -> None:
        if next(count) % every == 0:
            raise error
        take(self, *args)

    setattr(Pulling, "take", broken)  # noqa: B010 - an assignment would have to keep the type


if __name__ == "__main__":
    for kind in ("slow", "hang"):
        register_target(kind, Behind)
    for fault in sys.argv[1:]:
        if fault == "raise":
            break_pulls(RuntimeError("broken on purpose"), EVERY_FIFTH)
        else:
            break_pulls(SystemExit("ended on purpose"), NOW_AND_THEN)
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
