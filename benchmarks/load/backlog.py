"""Backlogs that a worker drains: messages scheduled before they are due, and a look at how they leave."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec

from benchmarks import BenchmarkError, TooLate
from benchmarks.harness import now, wait_for
from benchmarks.load.messages import DAY, QUEUES, TOPICS, make, spread
from benchmarks.running.processes import connect, server
from delayq import Client, Message, Scheduled
from delayq.client.scheduling.encoding import encode_all
from delayq.client.scheduling.schedule import schedule_encoded
from delayq.store.commands import Retention
from delayq.store.keys import KEYS

_PACE: Final = 20_000


def schedule_all(client: Client, messages: Iterable[Message]) -> int:
    """Schedule the messages that a benchmark prepares, and return their number."""
    return accepted(client.schedule_many(messages))


def accepted(outcomes: list[Any]) -> int:
    """Return the number of outcomes; raise BenchmarkError if a message was not scheduled."""
    refused = [outcome for outcome in outcomes if not (isinstance(outcome, Scheduled) and outcome.created)]
    if refused:
        raise BenchmarkError(f"{len(refused)} messages were not scheduled, such as {refused[0]!r}")
    return len(outcomes)


@cache
def _pace() -> float:
    """The messages a second that this process creates and schedules."""
    with server() as running, Client(running.url) as client:
        began = time.perf_counter()
        schedule_all(client, make(_PACE, spread(int(now()) + DAY, DAY), keys=1))
        return _PACE / (time.perf_counter() - began)


def lead(count: int, spare: int = 1500, pace: float = 0) -> int:
    """How many ms before their due time to begin scheduling `count` messages, with `spare` ms to spare.

    `pace` is the recent rate in messages/s. Without it the rate is measured once, on an empty server.
    """
    return int(1000 * count / ((pace or _pace()) * 0.5)) + spare


def in_time(count: int, spare: int = 1500, pace: float = 0) -> int:
    """The earliest due time (Unix ms) for `count` messages if scheduling begins now."""
    ahead = lead(count, spare, pace)  # before now(), because it may take a measurement
    return int(now()) + ahead


def span_of(count: int) -> int:
    """The ms over which a backlog becomes due: 2,000 messages in a ms, far faster than any drain."""
    return max(1, count // 2000)


def schedule_ahead(client: Client, messages: Iterable[Message], moment: int) -> int:
    """Schedule messages that are due at `moment`, and return their number; raise TooLate if it took too long.

    Their ids are forgotten on delivery, like those of real messages with delays of 30 s or more.
    """
    context = msgspec.structs.replace(client.context(), retention=Retention(short=0))
    plan = schedule_encoded(context, encode_all(messages, context.limits, context.routes, int(now())))
    count = 0
    try:
        plan.send(client.store.run_many(next(plan)))
    except StopIteration as end:
        count = accepted(end.value)
    if now() > moment - 200:
        raise TooLate("scheduling took longer than expected; is the machine busy?")
    return count


def sleep_until(moment: float) -> None:
    """Sleep until a time in Unix ms."""
    time.sleep(max(0.0, (moment - now()) / 1000))


class Watch:
    """Watches how a backlog becomes empty."""

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
        """The number of messages in the topics' streams."""
        return sum(self._all("XLEN", self._topics))

    def pending(self) -> int:
        """The number of messages in the pool: in a queue, in flight or parked."""
        return sum(self._all("HLEN", (KEYS.queue(queue).pool for queue in range(QUEUES))))

    def queued(self) -> int:
        """The number of messages in the queues, which have those in flight, too."""
        return sum(self._all("ZCARD", (KEYS.queue(queue).queue for queue in range(QUEUES))))

    def parked(self, name: str) -> int:
        """The number of messages in the parked sets of a name."""
        return sum(self._all("ZCARD", (KEYS.queue(queue).parked(name) for queue in range(QUEUES))))

    def streams_filled(self, count: int, moment: int) -> float:
        """Wait until `count` messages are in the streams; return the seconds from `moment` to the last entry."""
        self._wait(lambda: self.appended() >= count, count)
        last = [entries[0][0] for entries in self._last_entries() if entries]
        if (there := self.appended()) != count:
            raise BenchmarkError(f"the streams have {there} messages instead of {count}")
        return (max(int(id.split(b"-")[0]) for id in last) + 1 - moment) / 1000

    def _last_entries(self) -> list[Any]:
        return [self._connection.execute_command("XREVRANGE", topic, "+", "-", "COUNT", 1) for topic in self._topics]

    def pool_emptied(self, count: int, moment: int) -> float:
        """Wait until the pool is empty; return the seconds from `moment` until then."""
        self._wait(lambda: self.pending() == 0, count)
        return (now() - moment) / 1000

    def _wait(self, ready: Any, count: int) -> None:
        wait_for(f"end of a drain of {count:,} messages", ready, seconds=30 + count / 5_000, pause=0.02)

    def delete_streams(self) -> None:
        """Delete the topics' streams."""
        self._connection.delete(*self._topics)
