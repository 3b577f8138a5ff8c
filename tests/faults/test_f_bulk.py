"""A burst of messages that are due in one millisecond; and all is accounted for under live traffic."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from delayq import Client, Message
from delayq.client.scheduling.schedule import Scheduled
from delayq.config import load_settings
from delayq.store.keys import KEYS
from tests.faults.flow import batch, delayq, ids_of, now
from tests.faults.house import QUEUES, House
from tests.support.clusters import id_in
from tests.support.service import OneProcess
from tests.support.timeouts import HTTP_TIMEOUT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

BURST, GENERAL_BURST = 40_000, 8_000
MORE_MEMORY = 200 * 1024 * 1024


def peak(process: OneProcess) -> int:
    """The most bytes that a process ever had in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def test_f8_a_burst_in_one_millisecond_is_drained_and_starves_nobody(house: House) -> None:
    """F8 (bulk: 1 M messages due in the same ms): All drain at the full rate in bounded memory; later messages do not
    wait.

    F8: The burst goes into all targets at the same time. Messages that fall due meanwhile do not wait for its end.
    """
    topics, admin, sink = ("f8", "sink.f8", "f8.late"), house.admin, house.sink.server.admin
    before, due = [peak(worker) for worker in house.workers], now() + 10_000

    def messages() -> Iterator[Message]:
        for number in range(BURST):
            yield Message(topic=topics[0], id=f"f8-{number}", body="x" * 50, expect_date=due)
            if number % (BURST // GENERAL_BURST) == 0:
                yield Message(topic=topics[1], id=f"f8g-{number}", body="x" * 50, expect_date=due)

    settings = load_settings(redis_url=house.redis.url, queues=QUEUES, routes=house.service.settings["routes"])
    with Client(settings=settings) as client:
        assert all(isinstance(one, Scheduled) for one in client.schedule_many(messages()))
    dues = {f"f8l-{number}": due + 10 * number for number in range(150)}
    ids_of(batch(house.service, [{"topic": topics[2], "id": id, "expectDate": at} for id, at in dues.items()]))
    house.wait_until_done()
    assert (admin.xlen(topics[0]), sink.xlen(topics[1]), admin.xlen(topics[2])) == (BURST, GENERAL_BURST, len(dues))
    assert house.http.get("/v1/queues").json()["total"]["dead"] == 0
    of_bursts = [house.arrived(topic) for topic in topics[:2]]
    starts = [min(times[0] for times in found.values()) for found in of_bursts]
    ends = [max(times[0] for times in found.values()) for found in of_bursts]
    late = {id: times[0] for id, times in house.arrived(topics[2]).items()}
    print(f"began {[at - due for at in starts]} and ended {[at - due for at in ends]} ms after the due")
    assert due <= min(starts)
    meanwhile = [id for id in late if dues[id] < (due + max(ends)) // 2]
    assert not meanwhile or any(late[id] < max(ends) for id in meanwhile), "all of them waited for the end of the burst"
    assert all(peak(one) - was < MORE_MEMORY for one, was in zip(house.workers, before, strict=True))
    for topic in topics:
        house.server_of(topic).admin.delete(topic)


def difference(house: House) -> int:
    """How many messages are there beyond those that were accepted and have not ended, by one answer of the API."""
    stats = house.http.get("/v1/queues").json()["total"]
    counters = stats["counters"]
    names = ("delivered", "cancelled", "removedInFlight", "discarded", "writtenOff")
    ended = sum(counters[name] for name in names)
    return int(stats["depth"] + stats["parked"] + stats["dead"] - (counters["scheduled"] - ended))


def accounts(house: House, *options: str) -> list[str]:
    """The verdict of `delayq doctor` on the messages that are accounted for: 'ok', 'warn' or 'fail'."""
    lines = [line.split() for line in delayq(house.redis.url, "doctor", *options)[1].splitlines()]
    return [words[0] for words in lines if "accounts" in words[:2]]


def test_f15_the_books_balance_at_every_moment_of_live_traffic(house: House) -> None:
    """F15 (conservation of messages under live traffic): scheduled = delivered + cancelled + discarded + dead +
    remaining.

    Workers and `delayq doctor` report a difference.

    F15: The sum holds at every moment. `delayq doctor` and the workers compare it and report the missing number.
    """
    stopped, made, before = threading.Event(), [0] * 3, difference(house)

    def work(part: int) -> None:
        chance = random.Random(part)
        with httpx2.Client(base_url=house.service.url, timeout=HTTP_TIMEOUT) as http:
            while not stopped.is_set():
                topic, delay = chance.choice(["sink.f15", "f15"]), chance.choice([0, 0, 20, 200, 500])
                answer = http.post("/v1/messages", json={"topic": topic, "delayTime": delay, "body": "b"})
                made[part] += answer.status_code == 201
                if chance.random() < 0.3:
                    http.delete(f"/v1/messages/{answer.json()['id']}")
                elif chance.random() < 0.3:
                    http.patch(f"/v1/messages/{answer.json()['id']}", json={"delayTime": 50})

    threads = [threading.Thread(target=work, args=(part,)) for part in range(len(made))]
    for thread in threads:
        thread.start()
    try:
        while sum(made) <= 400:
            assert difference(house) == before
        assert accounts(house) == ["ok"]
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    house.wait_until_done()
    assert difference(house) == before
    lost, keys = id_in(2, "f15-lost"), KEYS.queue(2)
    assert house.service.schedule("f15", id=lost, delayTime="1h").status_code == 201
    house.admin.hdel(keys.pool, lost)  # what delayq never does
    assert accounts(house) == ["fail"]
    assert accounts(house, "--repair") == ["warn"]
    assert accounts(house) == ["ok"]
    house.admin.zrem(keys.queue, *house.admin.zrange(keys.queue, 0, -1))
    house.wait_until_done()
