"""Receives the wakes that schedule, reschedule and redrive publish when a queue has an earlier head.

A lost wake costs at most a second, because each job pulls at least once a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import structlog

from delayq.base.errors import StoreError
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes

RECEIVE = 1.0
PAUSE = 0.2
log = structlog.get_logger()


class WakeListener:
    """One thread with one subscription for all queues. It calls `wake(queue, due)` for each wake, with None after a gap.

    On a development server it also calls `moved(advanced)` for each move of time.
    """

    def __init__(
        self,
        store: Store,
        queues: Iterable[int],
        wake: Callable[[int, int | None], None],
        moved: Callable[[int], None] | None = None,
    ) -> None:
        self._keys = store.keys
        self._wakes = Wakes(store.connect)
        self._moved = moved
        self._channels: dict[str, int] = {}
        self.listen(queues)
        self._wake = wake
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def listen(self, queues: Iterable[int]) -> None:
        """Replace the queues, within a second; from any thread."""
        self._channels = {self._keys.queue(queue).wake: queue for queue in queues}

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="wakes", daemon=True)
            self._thread.start()

    def run(self) -> None:
        """Receive until stopped. Survives every exception."""
        known = ""
        while not self._stopped.is_set():
            try:
                channels = self._channels
                self._wakes.connect([*channels, *([self._keys.advanced] if self._moved is not None else ())])
                for queue in channels.values():
                    self._wake(queue, None)  # wakes published before the subscription are lost
                while channels is self._channels and not self._stopped.is_set():
                    if (message := self._wakes.receive(RECEIVE)) is not None:
                        known = ""
                        self._pass(*message)
            except StoreError as error:
                if str(error) != known:  # logged once: a refused subscription is repeated five times a second
                    known = str(error)
                    log.warning("wakes_lost", error=known)
                self._stopped.wait(PAUSE)
            except Exception:
                log.exception("wakes_failed")
                self._stopped.wait(PAUSE)
        self._wakes.close()

    def _pass(self, channel: str, text: bytes) -> None:
        number = int(text) if text.isdigit() else None
        queue = self._channels.get(channel)
        if queue is not None:
            self._wake(queue, number)
        elif self._moved is not None and channel == self._keys.advanced and number is not None:
            self._moved(number)

    def stop(self) -> None:
        """End the thread within a second. A second call does nothing."""
        self._stopped.set()

    def join(self, timeout_ms: int) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
