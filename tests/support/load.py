"""A producer over HTTP that knows what was accepted and what was cancelled for certain."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Self

import httpx2

from tests.support.timeouts import HTTP_TIMEOUT
from tests.support.waiting import eventually


class Load:
    """Schedules `batch` messages of each topic every `pause` seconds, and cancels a few; repeats calls with an unknown
    outcome.

    Use it as a context manager; afterwards no outcome is unknown.
    """

    def __init__(
        self,
        url: str,
        *topics: str,
        batch: int = 10,
        pause: float = 0.05,
        latest: int = 1_500,
        seed: int = 7,
        ordering_keys: int = 0,
    ) -> None:
        self.accepted: dict[str, list[str]] = {topic: [] for topic in topics}
        self.cancelled: set[str] = set()
        self.in_flight: set[str] = set()  # cancelled too late to know whether they were delivered
        self.statuses: set[int] = set()  # of all answers
        self.queues: dict[str, int] = {}  # of each accepted id
        self.results: set[str] = set()  # of all cancels
        self._url = url
        self._batch = batch
        self._pause = pause
        self._latest = latest
        self._ordering_keys = ordering_keys
        self._chance = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._failed: BaseException | None = None

    def _run(self) -> None:
        try:
            with httpx2.Client(base_url=self._url, timeout=HTTP_TIMEOUT) as http:
                turn = 0
                while not self._stopped.wait(self._pause):
                    turn += 1
                    for topic in self.accepted:
                        self._one_turn(http, topic, turn)
        except BaseException as error:
            self._failed = error

    def _one_turn(self, http: httpx2.Client, topic: str, turn: int) -> None:
        delays = [self._chance.randrange(self._latest) for _ in range(self._batch)]
        messages: list[dict[str, Any]] = [
            {"topic": topic, "id": f"{topic}-{turn}-{number}", "delayTime": delay}
            for number, delay in enumerate(delays)
        ]
        for number, message in enumerate(messages if self._ordering_keys else ()):
            message["orderingKey"] = f"key-{number % self._ordering_keys}"
        ids = self._schedule(http, messages)
        self.accepted[topic] += ids
        if turn % 3 == 0:
            id = ids[delays.index(max(delays))]
            result = self._cancel(http, id)
            self.results.add(result)
            if result == "cancelled":
                self.cancelled.add(id)
            elif result == "inFlight":
                self.in_flight.add(id)

    def _schedule(self, http: httpx2.Client, messages: list[dict[str, Any]]) -> list[str]:
        while messages:
            answer = self._ask(http, "/v1/messages:batch", {"messages": messages})
            if answer is None:
                continue
            results = answer["results"]
            assert {result["status"] for result in results} <= {200, 201, 503}, results
            if all(result["status"] != 503 for result in results):
                self.queues.update((result["id"], result["queue"]) for result in results)
                return [result["id"] for result in results]
        return []

    def _cancel(self, http: httpx2.Client, id: str) -> str:
        """What became of it. The answer to a repeated call is that to the first one."""
        while True:
            answer = self._ask(http, "/v1/messages:cancel", {"ids": [id]})
            if answer is not None and answer["results"][0]["status"] != 503:
                return str(answer["results"][0].get("result", ""))

    def _ask(self, http: httpx2.Client, path: str, body: dict[str, Any]) -> Any:
        """The answer; None, after a short while, if there is none or the outcome is unknown."""
        try:
            answer = http.post(path, json=body)
        except httpx2.TransportError:
            time.sleep(0.05)
            return None
        self.statuses.add(answer.status_code)
        assert answer.status_code in (200, 503), answer.text
        if answer.status_code == 503:
            time.sleep(0.05)
            return None
        return answer.json()

    @property
    def count(self) -> int:
        """How many messages were accepted."""
        return sum(map(len, self.accepted.values()))

    def wait_for(self, more: int) -> None:
        """Wait until this many more were accepted."""
        goal = self.count + more
        eventually(lambda: self.count >= goal or self._failed, f"{more} more are accepted")
        self._check()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the load does not end"
        if error[0] is None:
            self._check()
