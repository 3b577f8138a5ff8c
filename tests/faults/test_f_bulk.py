"""A burst, a batch that fits only in part, entries that were damaged by hand; and all is accounted for meanwhile."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from delayq import Client, Message
from delayq.client.operations import Scheduled
from delayq.config import load_settings
from delayq.store.keys import queue_keys
from testbed.process import standing_still
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, ids_of, left, now, wait_until
from tests.support.clusters import id_in
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

BURST, GENERAL_BURST = 150_000, 15_000
SETTLED = 250  # ms before the end of the burst: what fell due earlier had its time
MORE_MEMORY = 200 * 1024 * 1024


@pytest.fixture
def client(plain_server: ServerUnderTest) -> Iterator[Client]:
    with Client(settings=load_settings(redis_url=plain_server.url, routes=ROUTES)) as made:
        yield made


def peak(process: OneProcess) -> int:
    """The most bytes that a process ever had in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def test_f8_a_burst_in_one_millisecond_is_drained_and_starves_nobody(
    plain: Service, plain_server: ServerUnderTest, client: Client
) -> None:
    topics, admin = (f"{LOCAL}.f8", f"{GENERAL}.f8", f"{LOCAL}.f8late"), plain_server.admin
    before, due = peak(plain.workers[0]), now() + 12_000

    def messages() -> Iterator[Message]:
        for number in range(BURST):
            yield Message(topic=topics[0], id=f"f8-{number}", body="x" * 50, expect_date=due)
            if number % (BURST // GENERAL_BURST) == 0:
                yield Message(topic=topics[1], id=f"f8g-{number}", body="x" * 50, expect_date=due)

    assert all(isinstance(one, Scheduled) for one in client.schedule_many(messages()))
    dues = {f"f8l-{number}": due + 10 * number for number in range(150)}
    ids_of(batch(plain, [{"topic": topics[2], "id": id, "expectDate": at} for id, at in dues.items()]))
    in_time = now() < due
    drained(plain, 100)
    if not in_time:
        pytest.skip(f"this machine is too busy to schedule {BURST} messages within 12 s: try again when it is not")
    assert (admin.xlen(topics[0]), admin.xlen(topics[1])) == (BURST, GENERAL_BURST)
    assert plain.http.get("/v1/stats").json()["dead"] == 0
    ends = [int(admin.xrevrange(topic, count=1)[0][0].split(b"-")[0]) for topic in topics[:2]]
    late = {id: times[0] for id, times in arrivals(admin, topics[2]).items()}
    assert late.keys() == dues.keys()
    print(f"drained {max(ends) - due} ms after the due; the others {max(late[id] - dues[id] for id in late)} ms late")
    assert [id for id in late if dues[id] < max(ends) - SETTLED and late[id] > max(ends)] == []
    starts = [int(admin.xrange(topic, count=1)[0][0].split(b"-")[0]) for topic in topics[:2]]
    assert due <= min(starts) and max(starts) <= min(ends)  # both targets at the same time
    assert peak(plain.workers[0]) - before < MORE_MEMORY


def test_f9_a_batch_that_is_wrong_or_too_much_in_part_is_answered_one_by_one(
    plain: Service, plain_server: ServerUnderTest
) -> None:
    topic, admin = f"{LOCAL}.f9", plain_server.admin
    mixed = [{"topic": topic, "id": f"f9-{number}", "delayTime": -1 if number % 3 else 10} for number in range(30)]
    assert [one["status"] for one in batch(plain, mixed)] == [400 if number % 3 else 201 for number in range(30)]
    drained(plain)
    assert set(arrivals(admin, topic)) == {f"f9-{number}" for number in range(0, 30, 3)}

    large = [{"topic": topic, "id": f"f9l-{number}", "body": "x" * 8_000, "delayTime": "1h"} for number in range(800)]
    try:
        admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 3_000_000)
        first = {one["id"]: one["status"] for one in batch(plain, large, 800)}
    finally:
        admin.config_set("maxmemory", 0)
    assert Counter(first.values()).keys() == {201, 507}
    assert left(plain) == Counter(first.values())[201]
    again = {one["id"]: one["status"] for one in batch(plain, large, 800)}
    assert again == {id: 200 if status == 201 else 201 for id, status in first.items()}
    assert left(plain) == len(large)
    cancelled = plain.http.post("/v1/messages:cancel", json={"ids": list(again)}).json()["results"]
    assert {one["result"] for one in cancelled} == {"cancelled"}


def test_f10_damaged_entries_are_put_right_or_buried_and_hold_up_nobody(
    plain: Service, plain_server: ServerUnderTest, tmp_path: Path
) -> None:
    topic, admin, queue = f"{GENERAL}.f10", plain_server.admin, 5
    keys, elsewhere = queue_keys(queue), queue_keys(9)
    with standing_still(plain.workers[0].pid):  # until all is damaged, nothing is delivered
        due = now() + 2_500
        names = [id_in(queue, f"f10-{number}") for number in range(20)]
        ids_of(batch(plain, [{"topic": topic, "id": id, "body": "b", "expectDate": due} for id in names]))
        tickets = {ticket[:-8].decode(): ticket for ticket in admin.zrange(keys.queue, 0, -1)}
        orphans = plain.http.get("/v1/stats").json()["counters"]["orphans"]
        admin.hdel(keys.pool, names[0])  # a ticket without its record
        admin.zrem(keys.queue, tickets[names[1]])  # a record without its ticket
        for number, size in ((2, 40), (3, 25)):  # cut off within its texts, within its header
            admin.hset(keys.pool, names[number], admin.hget(keys.pool, names[number])[:size])
        admin.hset(keys.attempts, names[4], "many")  # attempts that are no number
        admin.set(f"{LOCAL}.f10", "no stream")
        assert plain.schedule(f"{LOCAL}.f10", id="f10-stream", delayTime=10).status_code == 201
        other = id_in(9, "f10-other")
        admin.set(elsewhere.queue, "no sorted set")  # a whole queue that cannot be read
    try:
        wait_until(due)
        whole = {*names[4:]}
        eventually(lambda: whole <= set(arrivals(admin, topic)), "what is whole is delivered")
    finally:
        admin.delete(elsewhere.queue)  # healed by hand, while all goes on
    assert plain.schedule(topic, id=other, delayTime=10).status_code == 201
    eventually(lambda: other in arrivals(admin, topic), "the other queue goes on by itself")
    print(doctor(plain, tmp_path, "--repair"))
    eventually(lambda: names[1] in arrivals(admin, topic), "a record that lost its ticket is delivered")
    drained(plain)
    assert {id: len(times) for id, times in arrivals(admin, topic).items()} == dict.fromkeys(
        [*names[4:], names[1], other], 1
    )
    letters = plain.http.get("/v1/dead-letters").json()["deadLetters"]
    reasons = {one["id"]: one["reason"] for one in letters}
    assert reasons.keys() == {names[2], names[3], "f10-stream"}
    assert "corrupt" in reasons[names[2]] and "corrupt" in reasons[names[3]]
    assert "is not a stream" in reasons["f10-stream"]
    assert plain.http.get("/v1/stats").json()["counters"]["orphans"] == orphans + 1
    for id in reasons:
        assert plain.http.delete(f"/v1/dead-letters/{id}").status_code == 200
    admin.delete(f"{LOCAL}.f10")


def difference(service: Service) -> int:
    """How many messages are there beyond those that were accepted and have not ended, by what the API says at once."""
    stats = service.http.get("/v1/stats").json()
    counters = stats["counters"]
    ended = sum(
        counters[name] for name in ("forwarded", "cancelled", "cancelled_in_flight", "discarded", "written_off")
    )
    return int(stats["depth"] + stats["parked"] + stats["dead"] - (counters["scheduled"] - ended))


def doctor(service: Service, folder: Path, *options: str) -> str:
    """What `delayq doctor` says."""
    words = [sys.executable, "-m", "delayq.cli", "doctor", *options]
    one = OneProcess("doctor", words, service.settings, folder / f"doctor-{time.monotonic_ns()}")
    one.start()
    eventually(lambda: not one.alive, "delayq doctor has ended")
    return one.said()


def audit(service: Service, folder: Path, *options: str) -> list[str]:
    """What it says of the messages that are accounted for or not: 'ok', 'warn' or 'fail'."""
    lines = [line.split() for line in doctor(service, folder, *options).splitlines()]
    return [words[0] for words in lines if "accounts" in words[:2]]


def test_f15_the_books_balance_at_every_moment_of_live_traffic(
    plain: Service, plain_server: ServerUnderTest, tmp_path: Path
) -> None:
    stopped, made, keys = threading.Event(), [0] * 3, queue_keys(2)
    before = difference(plain)

    def work(part: int) -> None:
        chance = random.Random(part)
        with httpx2.Client(base_url=plain.url, timeout=20) as http:
            while not stopped.is_set():
                path, delay = chance.choice([GENERAL, LOCAL]), chance.choice([0, 0, 20, 200, 500])
                said = http.post("/v1/messages", json={"topic": f"{path}.f15", "delayTime": delay, "body": "b"})
                made[part] += said.status_code == 201
                if chance.random() < 0.3:
                    http.delete(f"/v1/messages/{said.json()['id']}")
                elif chance.random() < 0.3:
                    http.patch(f"/v1/messages/{said.json()['id']}", json={"delayTime": 50})

    def looks() -> bool:
        assert difference(plain) == before
        return sum(made) > 600

    threads = [threading.Thread(target=work, args=(part,)) for part in range(len(made))]
    for thread in threads:
        thread.start()
    try:
        eventually(looks, "there is traffic")
        assert audit(plain, tmp_path) == ["ok"]
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
    drained(plain)
    assert difference(plain) == before
    lost = id_in(2, "f15-lost")
    assert plain.schedule(LOCAL, id=lost, delayTime="1h").status_code == 201
    plain_server.admin.hdel(keys.pool, lost)  # what delayq never does
    assert audit(plain, tmp_path) == ["fail"]
    assert audit(plain, tmp_path, "--repair") == ["warn"]
    assert audit(plain, tmp_path) == ["ok"]
    plain_server.admin.zrem(keys.queue, *plain_server.admin.zrange(keys.queue, 0, -1))
