"""Two brokers of Kafka where topics are not made by themselves: a leader that goes, replicas and topics that are missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.domain.routes import Route
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.support.deliveries import delivery, outcomes
from tests.support.running import running
from tests.support.timeouts import SEND_SECONDS, SEND_TIMEOUT
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import KafkaAdapter, make_topic
from tests.targets.conftest import Closing

pytestmark = [pytest.mark.release, pytest.mark.xdist_group("kafka")]

SHORT = 4.0  # a time-out that is to pass


@pytest.fixture(scope="module")
def brokers() -> Iterator[Kafka]:
    """Two of them; the first is the controller."""
    with running(Kafka(brokers=2, settings={"auto.create.topics.enable": "false"})) as server:
        yield server


@pytest.fixture
def pair(brokers: Kafka) -> Kafka:
    """Both run."""
    brokers.start()
    return brokers


@pytest.fixture
def target(pair: Kafka, closing: Closing) -> KafkaTarget:
    return closing(KafkaTarget(pair.url, Route(name="kafka", target=pair.url, send_timeout=SEND_TIMEOUT), ""))


def sent(target: KafkaTarget, id: str, topic: str) -> bool:
    """Whether one attempt delivers the message."""
    return outcomes(target.send([delivery(id, topic=topic)], SEND_SECONDS)) == ["ok"]


def test_without_enough_replicas_nothing_counts_as_delivered(pair: Kafka, target: KafkaTarget, topic: str) -> None:
    make_topic(pair.servers, topic, {"min.insync.replicas": "2"}, replicas=(1, 2))
    assert sent(target, "first", topic)
    pair.kill(2)
    assert outcomes(target.send([delivery("a", topic=topic)], SHORT)) == ["unknown"]
    pair.start(2)
    eventually(lambda: sent(target, "a", topic), "both replicas are there again")
    assert {one.id for one in KafkaAdapter(pair).read(topic, 2)} == {"first", "a"}


def test_when_the_leader_goes_the_next_one_gets_each_message_once(pair: Kafka, target: KafkaTarget, topic: str) -> None:
    make_topic(pair.servers, topic, {}, replicas=(2, 1))
    assert sent(target, "first", topic)
    pair.kill(2)
    batch = [delivery(f"{number:03}", topic=topic, ordering_key=str(number)) for number in range(200)]
    assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"] * 200
    assert [one.id for one in KafkaAdapter(pair).read(topic, 201)] == ["first", *(one.id for one in batch)]
