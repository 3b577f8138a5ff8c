"""Calls against delivery, within milliseconds of the due: every answer is true."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.faults.flow import GENERAL, LOCAL, arrivals, batch, drained, ids_of, now, wait_until
from tests.faults.linear import Call, explained
from tests.support.servers import ServerUnderTest
from tests.support.service import Service

pytestmark = pytest.mark.long

CALLERS = 4
SPREAD = 1_500  # ms over which the messages fall due
TURNS = 6  # at most, until enough answers of each kind have come: on a busy machine most calls are late
TOO_LATE = 30  # ms; a caller that is later than that leaves the message alone
Call_ = Callable[[httpx2.Client, str], httpx2.Response]


def scheduled_around(service: Service, topic: str, name: str, count: int, chance: random.Random) -> dict[str, int]:
    """Messages that fall due from a little later on, with their dues."""
    start = now() + 800
    dues = {f"{name}-{number}": start + chance.randrange(SPREAD) for number in range(count)}
    ids_of(batch(service, [{"topic": topic, "id": id, "expectDate": due} for id, due in dues.items()]))
    return dues


def call_around(service: Service, dues: Mapping[str, int], call: Call_) -> dict[str, httpx2.Response]:
    """Call for each id within 10 ms of its due, from several connections; the answers."""
    chance = random.Random(5)
    moments = sorted((due + chance.randrange(-10, 11), id) for id, due in dues.items())
    answers: dict[str, httpx2.Response] = {}

    def work(part: int) -> None:
        with httpx2.Client(base_url=service.url, timeout=10) as http:
            for moment, id in moments[part::CALLERS]:
                wait_until(moment)
                if now() - moment <= TOO_LATE:
                    answers[id] = call(http, id)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(work, range(CALLERS)))
    return answers


def cancel(http: httpx2.Client, id: str) -> httpx2.Response:
    return http.delete(f"/v1/messages/{id}")


def result_of(answer: httpx2.Response) -> str:
    """What a cancel or a move came to; a problem says the state that forbids it."""
    said: Any = answer.json()
    return str(said["result"] if "result" in said else said["state"])


@pytest.mark.parametrize("topic", [f"{GENERAL}.f1", f"{LOCAL}.f1"])
def test_f1_a_cancel_around_the_due_tells_the_truth(plain: Service, plain_server: ServerUnderTest, topic: str) -> None:
    dues: dict[str, int] = {}
    answers: dict[str, httpx2.Response] = {}
    counts: Counter[tuple[int, str]] = Counter()
    for turn in range(TURNS):
        some = scheduled_around(plain, topic, f"{topic}-{turn}", 800, random.Random(turn))
        dues |= some
        answers |= call_around(plain, some, cancel)
        results = {id: result_of(answer) for id, answer in answers.items()}
        counts = Counter((answers[id].status_code, result) for id, result in results.items())
        if counts[200, "cancelled"] >= 5 and counts[409, "delivered"] >= 5:
            break
    drained(plain)
    found = arrivals(plain_server.admin, topic)
    print(f"{topic}: {dict(counts)} of {len(dues)}")
    assert set(counts) <= {(200, "cancelled"), (202, "in_flight"), (409, "delivered")}
    assert counts[200, "cancelled"] and counts[409, "delivered"]  # else nothing was put to the test
    for id, due in dues.items():
        allowed = {"cancelled": {0}, "in_flight": {0, 1}}.get(results.get(id, ""), {1})
        assert len(found.get(id, ())) in allowed, (id, results.get(id))
        assert all(at >= due for at in found.get(id, ()))
    with httpx2.Client(base_url=plain.url) as http:  # and the same again gets the same
        assert all(result_of(cancel(http, id)) == results[id] for id in list(results)[:100])


@pytest.mark.parametrize("topic", [f"{GENERAL}.f2", f"{LOCAL}.f2"])
def test_f2_a_message_that_was_moved_around_its_due_comes_once_and_not_before(
    plain: Service, plain_server: ServerUnderTest, topic: str
) -> None:
    def move(http: httpx2.Client, id: str) -> httpx2.Response:
        return http.patch(f"/v1/messages/{id}", json={"delayTime": 5 + hash(id) % 300})

    dues: dict[str, int] = {}
    answers: dict[str, httpx2.Response] = {}
    for turn in range(TURNS):
        some = scheduled_around(plain, topic, f"{topic}-{turn}", 800, random.Random(turn))
        dues |= some
        answers |= call_around(plain, some, move)
        moved = {id: answer.json()["dueMs"] for id, answer in answers.items() if answer.status_code == 200}
        kept = Counter(
            (answer.status_code, answer.json().get("state")) for id, answer in answers.items() if id not in moved
        )
        if len(moved) >= 5 and kept.total() >= 5:
            break
    drained(plain)
    found = arrivals(plain_server.admin, topic)
    print(f"{topic}: {len(moved)} moved, {dict(kept)} not, of {len(dues)}")
    assert set(kept) <= {(409, "in_flight"), (409, "delivered")}
    assert moved and kept
    assert {id: len(times) for id, times in found.items()} == dict.fromkeys(dues, 1)
    assert [id for id in dues if found[id][0] < moved.get(id, dues[id])] == []


def histories(service: Service, dues: Mapping[str, int], chance: random.Random) -> dict[str, list[Call]]:
    """For each id: cancel, move and cancel at the same time, from three connections, around its due."""
    calls: dict[str, list[Call]] = {id: [] for id in dues}
    order = sorted(dues, key=lambda id: dues[id])
    moments = {id: dues[id] + chance.randrange(-8, 9) for id in dues}
    together = threading.Barrier(3)

    def work(kind: str) -> None:
        with httpx2.Client(base_url=service.url, timeout=10) as http:
            for id in order:
                together.wait(30)
                wait_until(min(moments[id], now() + 50))
                began = time.monotonic_ns()
                answer = (
                    cancel(http, id) if kind == "cancel" else http.patch(f"/v1/messages/{id}", json={"delayTime": "1h"})
                )
                calls[id].append(Call(kind, began, time.monotonic_ns(), result_of(answer)))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, ("cancel", "move", "cancel")))
    return calls


@pytest.mark.parametrize("topic", [f"{GENERAL}.f3", f"{LOCAL}.f3"])
def test_f3_cancel_and_move_at_once_can_be_put_in_an_order(
    plain: Service, plain_server: ServerUnderTest, topic: str
) -> None:
    chance = random.Random(3)
    dues = scheduled_around(plain, topic, topic, 150, chance)
    far = {f"{topic}-far-{number}": now() + 3_600_000 for number in range(50)}
    ids_of(batch(plain, [{"topic": topic, "id": id, "expectDate": due} for id, due in far.items()]))
    calls = histories(plain, dues | far, chance)
    drained(plain)
    found = arrivals(plain_server.admin, topic)
    print(Counter(tuple(sorted((one.kind, one.told) for one in three)) for three in calls.values()))
    for id, three in calls.items():
        assert len(three) == 3
        assert explained(three, len(found.get(id, ())), "far" if id in far else "pending"), (id, three, found.get(id))


@pytest.mark.parametrize(
    ("told", "arrived", "state"),
    [
        (("cancelled", "scheduled", "scheduled"), 0, "pending"),  # moved after it was cancelled
        (("cancelled", "cancelled", "in_flight"), 0, "pending"),  # two ends of one message
        (("cancelled", "cancelled", "cancelled"), 1, "pending"),  # forwarded after all
        (("in_flight", "in_flight", "in_flight"), 0, "far"),  # it lay an hour ahead
        (("delivered", "in_flight", "delivered"), 0, "pending"),  # lost
    ],
)
def test_an_order_that_cannot_be_is_seen(told: tuple[str, str, str], arrived: int, state: str) -> None:
    kinds = ("cancel", "move", "cancel")
    after = [
        Call(kind, 2 * place, 2 * place + 1, word) for place, (kind, word) in enumerate(zip(kinds, told, strict=True))
    ]
    assert not explained(after, arrived, state)
    assert explained([Call("cancel", 0, 9, "cancelled"), Call("move", 0, 9, "scheduled")], 0)
