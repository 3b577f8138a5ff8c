"""The route and the consumer of docs/targets-kafka.md, on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from delayq.domain.routes import Route, load_routes
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("kafka")]

PAGE = ROOT / "docs" / "targets-kafka.md"
(ROUTES, CONSUMER) = (block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_kafka.py")


class Enough(Exception):
    """Every message has arrived."""


def test_the_route_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "canary")
    (route,) = load_routes(ROUTES).table
    # No broker listens where the page says: the target should not look for one.
    route = msgspec.structs.replace(route, target="kafka://127.0.0.1:1/delayed.{topic}")
    KafkaTarget(route.target, route, "").close()


def test_the_consumer_gets_each_message_once(kafka: Kafka) -> None:
    names: dict[str, Any] = {}
    exec(compile(CONSUMER, str(PAGE), "exec", dont_inherit=True), names)
    topic = f"orders.{uuid.uuid4().hex}"
    target = KafkaTarget(kafka.url, Route(name="kafka", target=kafka.url), "")
    assert outcomes(target.send([delivery(id, topic=topic) for id in ("a", "b", "a", "c")], SEND_SECONDS)) == ["ok"] * 4
    target.close()
    got: list[tuple[str, bytes]] = []

    def work(id: str, value: bytes) -> None:
        got.append((id, value))
        if id == "c":
            raise Enough

    with pytest.raises(Enough):
        names["listen"](kafka.servers, topic, work)
    assert got == [("a", b"x"), ("b", b"x"), ("c", b"x")]
