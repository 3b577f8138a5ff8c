"""Backlogs for a worker to drain: scheduled ahead of the moment at which they fall due, and watched."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from benchmarks.errors import BenchmarkError, TooLate
from benchmarks.harness import now, wait_for
from benchmarks.load.messages import DAY, QUEUES, TOPICS, make, spread
from benchmarks.measures.schedule import accepted, schedule_all
from benchmarks.running.processes import connect, server
from delayq import Client, Message
from delayq.client.scheduling.schedule import encode_all, schedule_encoded
from delayq.store.commands import Retention
from delayq.store.keys import queue_keys

__all__ = ["Watch", "in_time", "lead", "schedule_ahead", "sleep_until", "span_of"]

_PACE: Final = 20_000


@cache
def _pace() -> float:
    """Messages a second that this process makes and schedules."""
    with server() as running, Client(running.url) as client:
        began = time.perf_counter()
        schedule_all(client, make(_PACE, spread(int(now()) + DAY, DAY), keys=1))
        return _PACE / (time.perf_counter() - began)


def lead(count: int, spare: int = 1500, pace: float = 0) -> int:
    """How many ms ahead of their due `count` messages are begun to be scheduled, with ms to spare.

    `pace` is how many a second it was lately; if that is not known it is measured, once, on an empty server.
    """
    return int(1000 * count / ((pace or _pace()) * 0.5)) + spare


def in_time(count: int, spare: int = 1500, pace: float = 0) -> int:
    """The moment (Unix ms) at which `count` messages may fall due that are begun to be scheduled now."""
    ahead = lead(count, spare, pace)  # it may take its time, to measure
    return int(now()) + ahead


def span_of(count: int) -> int:
    """The ms over which a backlog falls due: at 2,000 messages a ms, far faster than anything drains."""
    return max(1, count // 2000)


def schedule_ahead(client: Client, messages: Iterable[Message], moment: int) -> int:
    """Schedule messages that fall due at `moment`, and not too late for it; how many.

    Their ids are not remembered when they are forwarded: they stand for messages of half a minute and more.
    """
    context = msgspec.structs.replace(client.context(), retention=Retention(short=0))
    plan = schedule_encoded(context, encode_all(messages, context.limits, context.routes, int(now())))
    count = 0
    try:
        plan.send(client.store.run_many(next(plan)))
    except StopIteration as end:
        count = accepted(end.value)
    if now() > moment - 200:
        raise TooLate("scheduling took longer than expected; is the machine busy with other things?")
    return count


def sleep_until(moment: float) -> None:
    """Wait until a time in Unix ms."""
    time.sleep(max(0.0, (moment - now()) / 1000))


class Watch:
    """Watches a backlog become empty."""

    def __init__(self, url: str, topics: tuple[str, ...] = TOPICS) -> None:
        self._topics = topics
        self._connection: Any = connect(url)

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def _all(self, command: str, keys: Iterable[str], *arguments: Any) -> list[Any]:
        pipeline = self._connection.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command(command, key, *arguments)
        replies: list[Any] = pipeline.execute()
        return replies

    def appended(self) -> int:
        """How many messages the topics' streams hold."""
        return sum(self._all("XLEN", self._topics))

    def pending(self) -> int:
        """How many messages there are in the pool: in a queue, in flight or parked."""
        return sum(self._all("HLEN", (queue_keys(queue).pool for queue in range(QUEUES))))

    def parked(self, name: str) -> int:
        """How many messages are parked under a name."""
        return sum(self._all("ZCARD", (queue_keys(queue).parked(name) for queue in range(QUEUES))))

    def streams_filled(self, count: int, moment: int) -> float:
        """Wait until `count` messages are in the streams; seconds from `moment` to the last entry."""
        self._wait(lambda: self.appended() >= count, count)
        last = [entries[0][0] for entries in self._last_entries() if entries]
        if (there := self.appended()) != count:
            raise BenchmarkError(f"the streams hold {there} messages instead of {count}")
        return (max(int(id.split(b"-")[0]) for id in last) + 1 - moment) / 1000

    def _last_entries(self) -> list[Any]:
        return [self._connection.execute_command("XREVRANGE", topic, "+", "-", "COUNT", 1) for topic in self._topics]

    def pool_emptied(self, count: int, moment: int) -> float:
        """Wait until nothing is left in the pool; seconds from `moment` to then."""
        self._wait(lambda: self.pending() == 0, count)
        return (now() - moment) / 1000

    def _wait(self, ready: Any, count: int) -> None:
        wait_for(f"a worker to drain {count:,} messages", ready, seconds=30 + count / 5_000, pause=0.02)

    def delete_streams(self) -> None:
        """Delete the topics' streams."""
        self._connection.delete(*self._topics)
