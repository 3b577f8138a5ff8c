"""Kafka by TLS, as a user with a password."""

from __future__ import annotations

import uuid
from pathlib import Path

from delayq.routes import Route
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import PASSWORD, USER, Kafka
from tests.support.certificates import Authority
from tests.support.deliveries import delivery, outcomes
from tests.targets.adapters.kafka import KafkaAdapter

SECONDS = 60.0
SHORT = 4.0  # a time-out that is to pass
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": USER}


def target_of(kafka: Kafka, seconds: float, **options: str) -> KafkaTarget:
    url = f"kafka://{kafka.secure_servers}"
    return KafkaTarget(url, Route(name="r", target=url, send_timeout=int(seconds * 1000), options=options), "")


def test_with_a_trusted_certificate_and_the_password_of_a_file_messages_get_through(
    kafka: Kafka, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD + "\n")
    topic = f"orders.{uuid.uuid4().hex}"
    target = target_of(
        kafka,
        SECONDS,
        **LOGIN,
        **{"ssl.ca.location": str(authority.file), "sasl.password": f"file:{tmp_path}/password"},
    )
    try:
        assert outcomes(target.send([delivery("a", topic=topic)], SECONDS)) == ["ok"]
    finally:
        target.close()
    assert [record.id for record in KafkaAdapter(kafka).read(topic, 1, SECONDS)] == ["a"]


def test_a_certificate_of_nobody_who_is_trusted_is_told_and_no_password_is_shown(kafka: Kafka, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    target = target_of(kafka, SHORT, **LOGIN, **{"ssl.ca.location": str(stranger.file), "sasl.password": PASSWORD})
    try:
        (result,) = target.send([delivery("a", topic="orders")], SHORT)
    finally:
        target.close()
    assert result.outcome == "unknown"  # it was not sent, but librdkafka does not say so
    assert "certificate verify failed" in result.reason
    assert PASSWORD not in result.reason
