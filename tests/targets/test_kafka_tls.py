"""Kafka by TLS, as a user with a password."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from delayq.routes import Route
from delayq.targets.kafka.producer import Make
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import PASSWORD, USER, Kafka
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.support.kafka_producer import Telling
from tests.targets.adapters.kafka import KafkaAdapter

SECONDS = 60.0
SHORT = 4.0  # a time-out that is to pass
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER}


def target_of(kafka: Kafka, seconds: float, options: Mapping[str, str], make: Make = Producer) -> KafkaTarget:
    url = f"kafka://{kafka.secure_servers}"
    route = Route(name="r", target=url, send_timeout=int(seconds * 1000), options=options)
    return KafkaTarget(url, route, "", make=make)


def test_with_a_trusted_certificate_and_the_password_of_a_file_messages_get_through(
    kafka: Kafka, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    topic = f"orders.{uuid.uuid4().hex}"
    options = {**LOGIN, "ssl.ca.location": str(authority.file), "sasl.password": f"file:{tmp_path}/password"}
    target = target_of(kafka, SECONDS, options)
    try:
        assert outcomes(target.send([delivery("a", topic=topic)], SECONDS)) == ["ok"]
    finally:
        target.close()
    assert [record.id for record in KafkaAdapter(kafka).read(topic, 1, SECONDS)] == ["a"]


@pytest.mark.parametrize(
    ("early", "outcome"),
    [
        (True, "unavailable"),  # there was no broker all the time
        (False, "unknown"),  # it was not sent, but librdkafka does not say so
    ],
)
def test_a_certificate_of_nobody_who_is_trusted_is_told_and_no_password_is_shown(
    kafka: Kafka, tmp_path: Path, early: bool, outcome: str
) -> None:
    made: list[Telling] = []

    def make(settings: Mapping[str, Any], **more: Any) -> Telling:
        made.append(Telling(settings, early=early, **more))
        return made[-1]

    options = {**LOGIN, "ssl.ca.location": str(Authority(tmp_path).file), "sasl.password": PASSWORD}
    target = target_of(kafka, SHORT, options, make)
    try:
        assert (made[0].down if early else made[0].found).wait(SECONDS)
        (result,) = target.send([delivery("a", topic="orders")], SHORT)
    finally:
        target.close()
    assert result.outcome == outcome
    assert "certificate verify failed" in result.reason
    assert PASSWORD not in result.reason
