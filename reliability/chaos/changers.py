"""Changers: threads that cancel and move messages at the times that were drawn, and repeat what got no answer."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from reliability.chaos.calls import Calls, Reply
from reliability.chaos.drawing import Change, Planned
from reliability.chaos.history import History, now
from reliability.waiting import join

THREADS = 6
AGAIN = 700
MOST_AT_ONCE = 100


class _Due(NamedTuple):
    """A change to make at `at` (Unix ms); `to` is the due time of a move that was requested before."""

    at: int
    turn: int
    n: int
    id: str
    key: str
    change: Change
    rest: tuple[Change, ...]
    to: int | None = None


class Changers:
    """Start it, give it messages, stop it; `waiting` is how many changes are to be made."""

    def __init__(self, urls: Sequence[str], history: History) -> None:
        self._urls = urls
        self._history = history
        self._turns = itertools.count()
        self._heap: list[_Due] = []
        self._busy = 0
        self._condition = threading.Condition()
        self._over = False
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(one,), name=f"changer-{one}") for one in range(THREADS)
        ]

    @property
    def waiting(self) -> int:
        """Changes that are not done."""
        with self._condition:
            return len(self._heap) + self._busy

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def accepted(self, one: Planned, id: str, scheduled: int, due: int) -> None:
        """A message is there, and may be changed."""
        if one.changes:
            self._plan(one.n, id, one.key, one.changes, scheduled, due)

    def _plan(self, n: int, id: str, key: str, changes: tuple[Change, ...], since: int, due: int) -> None:
        self._push(_Due(changes[0].at(since, due), next(self._turns), n, id, key, changes[0], changes[1:]))

    def _push(self, due: _Due) -> None:
        with self._condition:
            heapq.heappush(self._heap, due)
            if self._heap[0] is due:
                self._condition.notify()

    def stop(self, seconds: float) -> None:
        """Make what is left for so long, then no more."""
        deadline = time.monotonic() + seconds
        while self.waiting and time.monotonic() < deadline and not self.failed:
            time.sleep(0.05)
        with self._condition:
            self._over = True
            self._condition.notify_all()
        join(self._threads)

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _run(self, place: int) -> None:
        calls = Calls(self._urls, place, self._history)
        try:
            while batch := self._take():
                try:
                    self._make(calls, batch)
                finally:
                    with self._condition:
                        self._busy -= len(batch)
        except BaseException as error:
            self.failed.append(error)
        finally:
            calls.close()

    def _take(self) -> list[_Due]:
        """The next change, and the cancels behind it that are late already; nothing when it is over."""
        with self._condition:
            while not self._over:
                at = now()
                if self._heap and self._heap[0].at <= at:
                    batch = [heapq.heappop(self._heap)]
                    while batch[0].change.cancel and self._heap and len(batch) < MOST_AT_ONCE:
                        if self._heap[0].at > at or not self._heap[0].change.cancel:
                            break
                        batch.append(heapq.heappop(self._heap))
                    self._busy += len(batch)
                    if self._heap:
                        self._condition.notify()
                    return batch
                self._condition.wait((self._heap[0].at - at) / 1000 if self._heap else None)
        return []

    def _make(self, calls: Calls, batch: list[_Due]) -> None:
        if not batch[0].change.cancel:
            self._move(calls, batch[0])
        elif len(batch) > 1:
            self._cancel_many(calls, batch)
        elif batch[0].key:
            self._cancel_by_key(calls, batch[0])
        else:
            self._cancel(calls, batch[0])

    def _again(self, due: _Due) -> None:
        self._push(due._replace(at=now() + AGAIN, turn=next(self._turns)))

    # -- cancels -------------------------------------------------------------------------------------------------------

    def _ended(self, due: _Due, result: str) -> None:
        self._history.say("ended", [(due.n, result)])
        if result == "unknown":
            self._again(due)

    def _cancel(self, calls: Calls, due: _Due) -> None:
        reply = calls("DELETE", f"/v1/messages/{due.id}")
        self._ended(due, "unknown" if reply.unknown else _result(reply))

    def _cancel_many(self, calls: Calls, batch: list[_Due]) -> None:
        reply = calls("POST", "/v1/messages:cancel", {"ids": [due.id for due in batch]})
        items = reply.body["results"] if reply.status == 200 else [{"status": reply.status}] * len(batch)
        for due, item in zip(batch, items, strict=True):
            unknown = not item["status"] or item["status"] >= 500
            self._ended(due, "unknown" if unknown else item.get("result", str(item)))

    def _cancel_by_key(self, calls: Calls, due: _Due) -> None:
        """Use the key that only this message has; if that finds nothing, use its id."""
        reply = calls("POST", "/v1/messages:cancel", {"keys": [due.key]})
        item: Any = reply.body["results"][0] if reply.status == 200 else {"status": reply.status}
        if not item["status"] or item["status"] >= 500:
            self._ended(due, "unknown")
        elif found := item["messages"]:
            self._ended(due, found[0]["result"])
        else:
            self._cancel(calls, due)

    # -- moves ---------------------------------------------------------------------------------------------------------

    def _move(self, calls: Calls, due: _Due) -> None:
        to = due.to if due.to is not None else now() + due.change.to
        if due.to is None:
            self._history.say("move", [(due.n, to)])
        # A repeated call has the same name, and so gets the first answer, also if the message has gone since.
        reply = calls("PATCH", f"/v1/messages/{due.id}", {"expectDate": to, "call": f"move-{to}"})
        if reply.unknown:
            self._history.say("doubt", [(due.n, to)])
            self._again(due._replace(to=to))
        elif reply.status == 200:
            self._history.say("moved", [(due.n, reply.body["dueMs"])])
            if due.rest:
                self._plan(due.n, due.id, due.key, due.rest, now(), reply.body["dueMs"])
        elif reply.status == 409:
            self._history.say("unmoved", [(due.n, to)])
        else:
            self._history.say("odd", [(due.n, reply.status, reply.body)])


def _result(reply: Reply) -> str:
    if reply.status in (200, 202):
        return str(reply.body["result"])
    return str(reply.body.get("state") or f"{reply.status} {reply.body.get('detail')}")
