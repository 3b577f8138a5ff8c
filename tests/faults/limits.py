"""Topics that share a rate, whose messages are due in one ms, while a worker is killed."""

from __future__ import annotations

import time
from bisect import bisect_right

from delayq import Client, Message
from tests.faults.house import House
from tests.support.waiting import eventually


def keep_to(house: House, rate: int, count: int) -> None:
    """In no second more than the rate and one burst arrive, and all arrives, though a worker is killed in the middle."""
    topics = ("sink.l", "s.l")
    house.http.put("/v1/policies/slow", json={"match": "*.l", "rate": rate, "per": "policy"}).raise_for_status()
    due = int(time.time() * 1000) + 2_000 + count // 20
    with Client(house.server.url) as client:
        for start in range(0, count, 10_000):
            some = range(start, min(start + 10_000, count))
            messages = [Message(id=f"l-{count}-{n}", topic=topics[n % 2], expect_date=due) for n in some]
            client.schedule_many(messages)

    def done() -> int:
        return sum(int(house.server_of(topic).admin.xlen(topic)) for topic in topics)

    killed = house.workers[2]
    eventually(lambda: done() > rate, "it has begun")
    house.kill(killed)
    # No figure of speed: where trips take long, a limit is slower and never faster.
    eventually(lambda: done() >= count, "all have arrived")
    killed.start()
    ids = [id for topic in topics for id, _ in house.server_of(topic).admin.xrange(topic)]
    times = sorted(int(id.partition(b"-")[0]) for id in ids)
    assert times[0] >= due
    busiest = max(bisect_right(times, first + 1_000) - place for place, first in enumerate(times))
    assert busiest <= 2 * rate, "in a second there are no more than the rate and one burst"
    assert house.http.delete("/v1/policies/slow").status_code == 200
    house.wait_until_done()
    for topic in topics:
        house.server_of(topic).admin.delete(topic)
