"""A real Kafka that is killed, paused or slow, and what becomes of the messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delayq.routes import Route
from delayq.targets import OK
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.house.processes import needs_proc
from tests.support.deliveries import delivery, outcomes
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import KafkaAdapter
from tests.targets.conftest import Closing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kafka")]

SECONDS = 60.0
SHORT = 3.0  # a time-out that is to pass


Open = Callable[..., KafkaTarget]


@pytest.fixture
def open_target(kafka: Kafka, closing: Closing) -> Open:
    """Opens targets with a time-out that is to pass."""

    def open_one(seconds: float = SHORT, **options: object) -> KafkaTarget:
        route = Route(name="kafka", target=kafka.url, send_timeout=int(seconds * 1000), options=options)
        return closing(KafkaTarget(kafka.url, route, ""))

    return open_one


def ids(kafka: Kafka, topic: str, count: int) -> list[str]:
    """The ids of all records of the topic."""
    return [one.id for one in KafkaAdapter(kafka).read(topic, count, SECONDS)]


def send_until_ok(target: KafkaTarget, topic: str, id: str, seconds: float = SHORT, **fields: Any) -> list[str]:
    """Try a message until it is forwarded, as a worker does; the outcomes on the way."""
    told: list[str] = []
    deadline = time.monotonic() + SECONDS
    while not told or told[-1] != "ok":
        assert time.monotonic() < deadline, told
        told += outcomes(target.send([delivery(id, topic=topic, **fields)], seconds))
    return told


def test_a_broker_that_is_killed_and_back_loses_nothing(kafka: Kafka, open_target: Open, topic: str) -> None:
    target = open_target()
    before = [delivery(f"before-{number}", topic=topic) for number in range(100)]
    assert target.send(before, SECONDS) == [OK] * 100
    kafka.kill()
    try:
        told = outcomes(target.send([delivery("during", topic=topic)], SHORT))
    finally:
        kafka.start()
    told += send_until_ok(target, topic, "during")
    assert told[0] in ("unknown", "unavailable") and told[-1] == "ok"  # it depends on when its loss was noticed
    after = ids(kafka, topic, 101)
    assert after[:100] == [one.id for one in before]
    assert set(after[100:]) == {"during"}


def test_a_broker_that_is_killed_during_a_send_and_back_in_time_is_not_noticed(
    kafka: Kafka, open_target: Open, topic: str
) -> None:
    target = open_target(SECONDS)
    assert outcomes(target.send([delivery("first", topic=topic)], SECONDS)) == ["ok"]
    batch = [delivery(f"{number:03}", topic=topic, ordering_key=str(number)) for number in range(500)]
    told: list[str] = []
    kafka.kill()
    sending = threading.Thread(target=lambda: told.extend(outcomes(target.send(batch, SECONDS))))
    sending.start()
    kafka.start()
    sending.join(SECONDS)
    assert told == ["ok"] * 500
    assert ids(kafka, topic, 501) == ["first", *(one.id for one in batch)]


def test_while_a_broker_says_nothing_messages_are_unknown_and_none_overtakes_afterwards(
    kafka: Kafka, open_target: Open, topic: str
) -> None:
    target = open_target()
    send_until_ok(target, topic, "0", ordering_key="key")
    kafka.pause()
    try:
        told = outcomes(target.send([delivery("1", topic=topic, ordering_key="key")], SHORT))
    finally:
        kafka.resume()
    assert told == ["unknown"]
    for id in ("1", "2", "3"):
        send_until_ok(target, topic, id, ordering_key="key")
    arrived = ids(kafka, topic, 4)
    assert arrived == sorted(arrived)  # a second "1" may be there, but not behind "2"
    assert set(arrived) == {"0", "1", "2", "3"}


def test_what_never_left_the_producer_is_not_sent_once_it_was_told_of(
    kafka: Kafka, open_target: Open, topic: str
) -> None:
    target = open_target()
    kafka.pause()
    try:
        told = outcomes(target.send([delivery(f"late-{number}", topic=topic) for number in range(50)], SHORT))
    finally:
        kafka.resume()
    assert told == ["unknown"] * 50
    send_until_ok(target, topic, "last")
    assert set(ids(kafka, topic, 1)) == {"last"}  # the topic was not known yet: nothing was on its way


def test_when_the_queue_is_full_the_rest_was_not_sent(kafka: Kafka, open_target: Open, topic: str) -> None:
    target = open_target(**{"queue.buffering.max.messages": 10})
    send_until_ok(target, topic, "first")
    eventually(lambda: len(target._main._producer) == 0, "the first has left the producer's queue")
    kafka.pause()
    try:
        results = target.send([delivery(str(number), topic=topic) for number in range(20)], SHORT)
    finally:
        kafka.resume()
    assert outcomes(results) == ["unknown"] * 10 + ["unavailable"] * 10
    assert results[-1].reason == "the producer's queue is full"
    send_until_ok(target, topic, "last")
    assert not {str(number) for number in range(10, 20)} & set(ids(kafka, topic, 2))


def test_close_waits_for_what_is_under_way(
    kafka: Kafka, open_target: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.targets.kafka.target.CLOSE_MS", 60_000)  # however long a broker on a busy machine takes
    target = open_target(SECONDS)
    send_until_ok(target, topic, "first", SECONDS)
    told: list[str] = []
    batch = [delivery(str(number), topic=topic) for number in range(200)]
    sending = threading.Thread(target=lambda: told.extend(outcomes(target.send(batch, SECONDS))))
    closing = threading.Thread(target=target.close)
    kafka.pause()  # so that they are under way for certain
    try:
        sending.start()
        eventually(lambda: len(target._main._producer) >= 200, "they are with the producer")
        closing.start()
        eventually(lambda: target._closed, "it is being closed")
        assert told == []
    finally:
        kafka.resume()
    for thread in (closing, sending):
        thread.join(SECONDS)
    assert told == ["ok"] * 200
    assert len(ids(kafka, topic, 201)) == 201


@needs_proc
def test_no_thread_is_left_when_the_broker_says_nothing(kafka: Kafka, topic: str) -> None:
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    target = KafkaTarget(kafka.url, Route(name="kafka", target=kafka.url), "")
    assert outcomes(target.send([delivery("a", topic=topic)], SECONDS)) == ["ok"]
    kafka.pause()
    try:
        sending = threading.Thread(target=target.send, args=([delivery("b", topic=topic)], SECONDS))
        sending.start()
        target.close()
        sending.join(SECONDS)
        eventually(lambda: not set(tasks.iterdir()) - before, "all threads have ended")
    finally:
        kafka.resume()
