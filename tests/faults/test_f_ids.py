"""The same call again, from anywhere, at any time: one id is one message."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from delayq import Client, Message
from delayq.client.operations import Scheduled
from delayq.config import load_settings
from tests.faults.flow import GENERAL, LOCAL, ROUTES, arrivals, batch, drained, entries
from tests.support.bent_clock import BentClock
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT, Service

pytestmark = pytest.mark.long

TOPICS = pytest.mark.parametrize("path", [GENERAL, LOCAL])
COPIES = 20
HOUR = 3_600_000


@TOPICS
def test_f4_twenty_copies_of_a_call_at_once_make_one_message(
    plain: Service, plain_server: ServerUnderTest, path: str
) -> None:
    topic, together = f"{path}.f4", threading.Barrier(COPIES)
    ids = [f"{topic}-{number}" for number in range(20)]

    def work(_: int) -> list[int]:
        with httpx2.Client(base_url=plain.url, timeout=20) as http:
            answers = []
            for id in ids:
                together.wait(60)
                said = http.post("/v1/messages", json={"topic": topic, "id": id, "body": id, "delayTime": 300})
                answers.append(said.status_code)
            return answers

    with ThreadPoolExecutor(COPIES) as pool:
        told = list(pool.map(work, range(COPIES)))
    for of_one in zip(*told, strict=True):
        assert Counter(of_one) == {201: 1, 200: COPIES - 1}
    drained(plain)
    assert {id: len(times) for id, times in arrivals(plain_server.admin, topic).items()} == dict.fromkeys(ids, 1)


@TOPICS
def test_f5_a_call_that_is_repeated_after_the_delivery_says_so_and_sends_nothing(
    plain: Service, plain_server: ServerUnderTest, path: str
) -> None:
    topic = f"{path}.f5"
    calls = [{"topic": topic, "id": f"{topic}-{number}", "body": number, "delayTime": 10} for number in range(50)]
    assert {one["status"] for one in batch(plain, calls)} == {201}
    drained(plain)
    again = batch(plain, calls) + [plain.schedule(**call).json() | {"status": 200} for call in calls[:10]]  # type: ignore[arg-type]  # the rows of a batch
    assert Counter((one["status"], one["state"]) for one in again) == {(200, "delivered"): 60}
    drained(plain)
    assert [len(times) for times in arrivals(plain_server.admin, topic).values()] == [1] * 50


@TOPICS
def test_f6_another_message_with_a_taken_id_is_refused_and_the_first_one_stays(
    plain: Service, plain_server: ServerUnderTest, path: str
) -> None:
    topic = f"{path}.f6"
    first = {"topic": topic, "id": f"{topic}-1", "body": "the first", "delayTime": 600}
    assert plain.schedule(**first).status_code == 201  # type: ignore[arg-type]  # the body of a call
    for other in ({"body": "another"}, {"topic": f"{topic}x"}, {"keys": ["k"]}, {"properties": {"a": "b"}}):
        refused = plain.schedule(**(first | other))  # type: ignore[arg-type]  # the body of a call
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:delayq:problem:conflict")
    drained(plain)
    assert [entry["body"] for entry in entries(plain_server.admin, topic)] == [b"the first"]
    assert plain_server.admin.exists(f"{topic}x") == 0


@TOPICS
def test_f7_a_partition_that_is_written_again_or_twice_at_once_makes_no_duplicates(
    plain: Service, plain_server: ServerUnderTest, path: str
) -> None:
    topic, rows = f"{path}.f7", 3_000

    def messages(upto: int) -> Iterator[Message]:
        for row in range(upto):
            yield Message(topic=topic, id=f"{topic}-{row}", body=f"row {row}", delay_time=100 + row % 500)

    def task(upto: int = rows) -> Counter[bool]:
        with Client(settings=load_settings(redis_url=plain_server.url, routes=ROUTES)) as client:
            written = client.schedule_many(messages(upto))
        assert all(isinstance(one, Scheduled) for one in written)
        return Counter(one.created for one in written if isinstance(one, Scheduled))

    assert task(rows // 2) == {True: rows // 2}  # a task that dies after half of its rows
    with ThreadPoolExecutor(2) as pool:  # its retry, and a speculative copy of that
        copies = list(pool.map(task, (rows, rows)))
    assert sum(copies, Counter())[True] == rows // 2
    drained(plain)
    assert task() == {False: rows}  # and once more, when all was delivered
    drained(plain)
    found = arrivals(plain_server.admin, topic)
    assert len(found) == rows
    assert {len(times) for times in found.values()} == {1}


SCHEDULE = """
import sys
from delayq import Client, Message
with Client(sys.argv[1]) as client:
    for number in range(20):
        message = Message(topic=sys.argv[2], id=f"{sys.argv[2]}-{sys.argv[3]}-{number}", delay_time=int(sys.argv[4]))
        print(client.schedule(message).due)
"""


def test_f14_producers_with_wrong_clocks_get_the_dues_that_they_asked_for(
    plain: Service, plain_server: ServerUnderTest, tmp_path: Path
) -> None:
    def redis_now() -> int:
        seconds, micro = plain_server.admin.time()
        return int(seconds * 1000 + micro // 1000)

    topic, delay = f"{LOCAL}.f14", 700
    for name, wrong in (("ahead", HOUR), ("behind", -HOUR)):
        clock = BentClock(tmp_path, name)
        clock.set(wrong)
        producer = [sys.executable, "-c", SCHEDULE, plain_server.url, topic, name, str(delay)]
        before = redis_now()
        ran = subprocess.run(
            producer,
            env={"PYTHONPATH": str(ROOT), **clock.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        after = redis_now()
        assert ran.returncode == 0, ran.stderr
        dues = [int(line) for line in ran.stdout.split()]
        assert len(dues) == 20
        assert all(before + delay <= due <= after + delay for due in dues)
    drained(plain)
    for entry in entries(plain_server.admin, topic):
        assert int(entry["at"]) >= int(entry["due"])
    assert len(arrivals(plain_server.admin, topic)) == 40
