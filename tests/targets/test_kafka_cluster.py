"""Two brokers where topics are not made by themselves: refusals, a leader that goes, replicas that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from delayq.routes import Route
from delayq.targets.kafka.producer import Make
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import PASSWORD, USER, Kafka
from tests.support.deliveries import delivery, outcomes
from tests.support.kafka_producer import Telling
from tests.support.running import running
from tests.support.waiting import eventually
from tests.targets.adapters.kafka import KafkaAdapter, make_topic
from tests.targets.conftest import Closing

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kafka")]

SECONDS = 60.0
SHORT = 4.0  # a time-out that is to pass
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}


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
def admin(pair: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": pair.servers, "log_level": 2})


Open = Callable[..., KafkaTarget]


@pytest.fixture
def open_target(pair: Kafka, closing: Closing) -> Open:
    def open_one(
        url: str = pair.url, seconds: float = SECONDS, make: Make = Producer, **options: object
    ) -> KafkaTarget:
        route = Route(name="kafka", target=url, send_timeout=int(seconds * 1000), options=options)
        return closing(KafkaTarget(url, route, "", make=make))

    return open_one


def ids(server: Kafka, topic: str, count: int) -> list[str]:
    """The ids of all records of the topic."""
    return [one.id for one in KafkaAdapter(server).read(topic, count, SECONDS)]


def sent(target: KafkaTarget, id: str, topic: str) -> bool:
    """Whether it was forwarded."""
    return outcomes(target.send([delivery(id, topic=topic)], SECONDS)) == ["ok"]


# -- E8 ------------------------------------------------------------------------------------------------------------------


def test_e8_when_the_leader_goes_the_next_one_gets_each_message_once(
    pair: Kafka, open_target: Open, topic: str
) -> None:
    make_topic(pair.servers, topic, {}, replicas=(2, 1))
    target = open_target()
    assert sent(target, "first", topic)
    pair.kill(2)
    batch = [delivery(f"{number:03}", topic=topic, ordering_key=str(number)) for number in range(200)]
    assert outcomes(target.send(batch, SECONDS)) == ["ok"] * 200
    assert ids(pair, topic, 201) == ["first", *(one.id for one in batch)]


def test_e8_without_enough_replicas_nothing_counts_as_forwarded(pair: Kafka, open_target: Open, topic: str) -> None:
    make_topic(pair.servers, topic, {"min.insync.replicas": "2"}, replicas=(1, 2))
    target = open_target(seconds=SHORT)
    assert outcomes(target.send([delivery("first", topic=topic)], SECONDS)) == ["ok"]
    pair.kill(2)
    assert outcomes(target.send([delivery("a", topic=topic)], SHORT)) == ["unknown"]
    pair.start(2)
    assert outcomes(target.send([delivery("a", topic=topic)], SECONDS)) == ["ok"]
    assert set(ids(pair, topic, 2)) == {"first", "a"}


# -- E9 ------------------------------------------------------------------------------------------------------------------


def test_e9_one_that_is_too_large_is_rejected_and_its_neighbours_arrive(
    pair: Kafka, open_target: Open, topic: str
) -> None:
    make_topic(pair.servers, topic, {"max.message.bytes": "2000"})
    batch = [delivery(str(number), "x" * (5_000 if number == 20 else 300), topic=topic) for number in range(40)]
    results = open_target().send(batch, SECONDS)  # together far more than 2,000 bytes
    assert outcomes(results) == ["ok"] * 20 + ["rejected"] + ["ok"] * 19
    assert results[20].reason == "Broker: Message size too large (MSG_SIZE_TOO_LARGE)"
    assert sorted(map(int, ids(pair, topic, 39))) == [*range(20), *range(21, 40)]


def test_e9_larger_than_the_client_takes(pair: Kafka, open_target: Open, topic: str) -> None:
    make_topic(pair.servers, topic, {})
    target = open_target(**{"message.max.bytes": 10_000})
    results = target.send([delivery("a", topic=topic), delivery("b", "x" * 20_000, topic=topic)], SECONDS)
    assert outcomes(results) == ["ok", "rejected"]
    assert "Message size too large" in results[1].reason


def test_a_record_that_the_topic_does_not_take_is_rejected_and_its_neighbours_arrive(
    pair: Kafka, open_target: Open, topic: str
) -> None:
    make_topic(pair.servers, topic, {"cleanup.policy": "compact"})  # which takes none without a key
    batch = [
        delivery("a", topic=topic, keys=("a",)),
        delivery("b", topic=topic),
        delivery("c", topic=topic, keys=("c",)),
    ]
    results = open_target().send(batch, SECONDS)
    assert outcomes(results) == ["ok", "rejected", "ok"]
    assert results[1].reason == "Broker: Broker failed to validate record (INVALID_RECORD)"
    assert sorted(ids(pair, topic, 2)) == ["a", "c"]


# -- E11 -----------------------------------------------------------------------------------------------------------------


def test_e11_a_topic_that_is_missing_is_waited_for(pair: Kafka, open_target: Open, topic: str) -> None:
    target = open_target()
    for _ in range(2):
        (result,) = target.send([delivery("a", topic=topic)], SECONDS)
        assert result.outcome == "unavailable" and "nknown topic" in result.reason
    make_topic(pair.servers, topic, {})
    eventually(lambda: sent(target, "a", topic), "it is forwarded once the topic is there")
    assert ids(pair, topic, 1) == ["a"]


def test_e11_a_topic_that_was_deleted_is_no_fault_of_its_messages(
    pair: Kafka, admin: AdminClient, open_target: Open, topic: str
) -> None:
    make_topic(pair.servers, topic, {})
    target = open_target()
    assert sent(target, "first", topic)
    admin.delete_topics([topic])[topic].result(SECONDS)
    told = eventually(
        lambda: [one for one in target.send([delivery("a", topic=topic)], SECONDS) if one.outcome != "ok"],
        "the target has heard of it",
    )
    assert outcomes(told) == ["unavailable"]
    make_topic(pair.servers, topic, {})
    eventually(lambda: sent(target, "b", topic), "it is forwarded once the topic is there again")
    assert ids(pair, topic, 1)[-1] == "b"


def test_e11_a_right_that_was_revoked_is_no_fault_of_its_messages(
    pair: Kafka, admin: AdminClient, open_target: Open, topic: str
) -> None:
    make_topic(pair.servers, topic, {})
    target = open_target(f"kafka://{pair.login_servers}", **LOGIN, **{"sasl.password": PASSWORD})
    assert sent(target, "first", topic)
    rule = (
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.WRITE,
        AclPermissionType.DENY,
    )  # fmt: skip
    binding = AclBinding(*rule)
    admin.create_acls([binding])[binding].result(SECONDS)
    (refused,) = eventually(
        lambda: [one for one in target.send([delivery("a", topic=topic)], SECONDS) if one.outcome != "ok"],
        "the broker has heard of it",
    )
    assert (refused.outcome, refused.reason) == (
        "unavailable",
        "Broker: Topic authorization failed (TOPIC_AUTHORIZATION_FAILED)",
    )
    which = AclBindingFilter(*rule)
    admin.delete_acls([which])[which].result(SECONDS)
    eventually(lambda: sent(target, "b", topic), "it is forwarded again")


def test_e11_a_wrong_password_is_told_and_not_shown(pair: Kafka, open_target: Open, topic: str) -> None:
    make_topic(pair.servers, topic, {})
    made: list[Telling] = []

    def make(settings: Mapping[str, Any], **more: Any) -> Telling:
        made.append(Telling(settings, early=False, **more))
        return made[-1]

    url, options = f"kafka://{pair.login_servers}", {**LOGIN, "sasl.password": "canary"}
    target = open_target(url, SHORT, make, **options)
    assert made[0].found.wait(SECONDS)  # it tells so when the message is there
    (result,) = target.send([delivery("a", topic=topic)], SHORT)
    assert result.outcome == "unknown"  # it was not sent, but librdkafka does not say so
    assert "Authentication failed: Invalid username or password" in result.reason
    assert "canary" not in result.reason
