"""Calls against delivery, within milliseconds of the due: every answer is true.

A call that is late, because its caller got no processor, is left out. How many were in time is printed and no verdict.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.faults.flow import batch, ids_of, now, wait_until
from tests.faults.house import House
from tests.support.service import Service
from tests.support.timeouts import HTTP_TIMEOUT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

CALLERS = 4
COUNT = 800
SPREAD = 1_500  # ms over which the messages fall due
TOO_LATE = 30  # ms; a caller that is later than that leaves the message alone
TOPICS = pytest.mark.parametrize("topic", ["sink.{}", "{}"], ids=["general", "stream"])
Call = Callable[[httpx2.Client, str], httpx2.Response]


def answers_around(service: Service, topic: str, call: Call) -> tuple[dict[str, int], dict[str, httpx2.Response]]:
    """The dues of messages, and the answers to calls within 10 ms of them, from several connections."""
    chance, start = random.Random(5), now() + 1_000
    dues = {f"{topic}-{number}": start + chance.randrange(SPREAD) for number in range(COUNT)}
    ids_of(batch(service, [{"topic": topic, "id": id, "expectDate": due} for id, due in dues.items()]))
    moments = sorted((due + chance.randrange(-10, 11), id) for id, due in dues.items())
    answers: dict[str, httpx2.Response] = {}

    def work(part: int) -> None:
        with httpx2.Client(base_url=service.url, timeout=HTTP_TIMEOUT) as http:
            for moment, id in moments[part::CALLERS]:
                wait_until(moment)
                if now() - moment <= TOO_LATE:
                    answers[id] = call(http, id)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(work, range(CALLERS)))
    return dues, answers


def results_of(answers: Mapping[str, httpx2.Response]) -> dict[str, tuple[int, str]]:
    """The status of each answer, and the result; a problem tells the state that forbids it."""
    told: dict[str, Any] = {id: answer.json() for id, answer in answers.items()}
    return {id: (answers[id].status_code, one.get("result", one.get("state"))) for id, one in told.items()}


@TOPICS
def test_f1_a_cancel_around_the_due_tells_the_truth(house: House, topic: str) -> None:
    """F1 (cancel and delivery at due ± 10 ms): The answer is true.

    Later answers are `removedInFlight` for messages that may have been delivered.

    F1: `cancelled`: the message was not delivered and never will be. `inFlight`: it may have been delivered.
    `delivered`: it was, once.
    """

    def cancel(http: httpx2.Client, id: str) -> httpx2.Response:
        return http.delete(f"/v1/messages/{id}")

    topic = topic.format("f1")
    dues, answers = answers_around(house.service, topic, cancel)
    house.wait_until_done()
    found, results = house.arrived(topic), results_of(answers)
    print(f"{topic}: {Counter(results.values())} of {len(dues)}")
    assert set(results.values()) <= {(200, "cancelled"), (202, "inFlight"), (409, "delivered")}
    for id, due in dues.items():
        _, result = results.get(id, (0, ""))
        allowed = {"cancelled": {0}, "inFlight": {0, 1}}.get(result, {1})
        assert len(found.get(id, ())) in allowed, (id, result)
        assert all(at >= due for at in found.get(id, ()))
    some = list(results)[:50]  # the same again gets the same
    again = results_of({id: cancel(house.http, id) for id in some})
    assert {id: result for id, (_, result) in again.items()} == {id: results[id][1] for id in some}


@TOPICS
def test_f2_a_message_that_was_moved_around_its_due_comes_once_and_not_before(house: House, topic: str) -> None:
    """F2 (reschedule and delivery): A moved message arrives once, not before its new due time; an unmoved one once at
    its old one."""

    def move(http: httpx2.Client, id: str) -> httpx2.Response:
        return http.patch(f"/v1/messages/{id}", json={"delayTime": 5 + hash(id) % 300})

    topic = topic.format("f2")
    dues, answers = answers_around(house.service, topic, move)
    house.wait_until_done()
    found, results = house.arrived(topic), results_of(answers)
    moved = {id: answers[id].json()["dueMs"] for id, (status, _) in results.items() if status == 200}
    kept = Counter(result for id, result in results.items() if id not in moved)
    print(f"{topic}: {len(moved)} moved, {dict(kept)} not, of {len(dues)}")
    assert set(kept) <= {(409, "inFlight"), (409, "parked"), (409, "delivered")}  # parked: it waits for room
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(dues, 1)
    assert [id for id in dues if found[id][0] < moved.get(id, dues[id])] == []
