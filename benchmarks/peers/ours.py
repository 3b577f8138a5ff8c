"""delayq's program among those of its peers, with the same arguments and outputs; see go/main.go.

One caller uses `Client`; several callers are tasks of one event loop with an `AsyncClient`. A consumer receives up to 1,000
messages with each call, which acknowledges those of the call before.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.harness import now
from benchmarks.load.backlog import schedule_all, sleep_until
from benchmarks.load.messages import DAY
from benchmarks.results import percentile
from delayq import AsyncClient, Client, Message

if TYPE_CHECKING:
    from delayq.client.consuming.entries import Leased

TOPIC: Final = "bench"
GROUP: Final = "consumers"
#: The most messages of one call, and ms that it waits for the first one.
MOST: Final = 1_000
WAIT_MS: Final = 1_000
#: The body of the peers' messages.
BODY: Final = ("order customer courier restaurant address payment " * 4)[:200]
PRODUCERS: Final = 16


def _message(delay: float) -> Message:
    return Message(topic=TOPIC, body=BODY, delay_time=int(delay))


def schedule(url: str, count: int, callers: int) -> dict[str, float]:
    """Schedule each message with its own call."""
    if callers > 1:
        return asyncio.run(_at_once(url, count, callers))
    with Client(url) as client:
        client.context()
        began = time.perf_counter()
        for _ in range(count):
            client.schedule(_message(DAY))
        return {"rate": count / (time.perf_counter() - began)}


async def _at_once(url: str, count: int, callers: int) -> dict[str, float]:
    left = iter(range(count))

    async def caller(client: AsyncClient) -> None:
        for _ in left:
            await client.schedule(_message(DAY))

    async with AsyncClient(url) as client:
        await client.context()
        began = time.perf_counter()
        await asyncio.gather(*(caller(client) for _ in range(callers)))
        return {"rate": count / (time.perf_counter() - began)}


def backlog(url: str, count: int, moment: int) -> dict[str, float]:
    """Schedule messages that are due together."""
    with Client(url) as client:
        schedule_all(client, (Message(topic=TOPIC, body=BODY, expect_date=moment) for _ in range(count)))
    return {}


def produce(url: str, count: int, rate: int) -> dict[str, float]:
    """Schedule messages in an open loop."""
    return asyncio.run(_produce(url, count, rate))


async def _produce(url: str, count: int, rate: int) -> dict[str, float]:
    late = 0.0
    sent: asyncio.Queue[int] = asyncio.Queue()

    async def producer(client: AsyncClient) -> None:
        while await sent.get() < count:
            await client.schedule(_message(1_000 * random.randint(1, 3)))

    async with AsyncClient(url) as client, asyncio.TaskGroup() as producers:
        await client.context()
        for _ in range(PRODUCERS):
            producers.create_task(producer(client))
        start = time.perf_counter()
        for number in range(count):
            wait = start + number / rate - time.perf_counter()
            await asyncio.sleep(max(0.0, wait))
            late = max(late, -wait)
            sent.put_nowait(number)
        for _ in range(PRODUCERS):
            sent.put_nowait(count)
    return {"late": 1_000 * late}


def consume(url: str, count: int, moment: int) -> dict[str, float]:
    """Consume from a moment on, as the only consumer of a group."""
    late: list[float] = []
    with Client(url) as client:
        client.context()
        sleep_until(moment)
        messages: list[Leased] = []
        while len(late) < count:
            messages = client.receive(TOPIC, group=GROUP, max=MOST, wait=WAIT_MS, ack=messages)
            arrived = now()
            late += [arrived - one.due for one in messages]
        client.ack(*messages)
    seconds = (now() - moment) / 1_000
    late.sort()
    return {
        "seconds": seconds,
        "early": sum(one < 0 for one in late),
        "p50": percentile(late, 50),
        "p99": percentile(late, 99),
    }


ACTIONS: Final = {"schedule": schedule, "backlog": backlog, "produce": produce, "consume": consume}


def main() -> None:
    """Run the action of the arguments; print the result."""
    action, address, count, number = sys.argv[1:]
    found = ACTIONS[action](f"redis://{address}", int(count), int(number))
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
