"""What docs/targets-kafka.md shows, before a real Kafka."""

from __future__ import annotations

import re
import uuid
from typing import Any

import msgspec
import pytest

from delayq.routes import Route, load_routes
from delayq.targets.kafka.settings import DEFAULTS, OPTIONS
from delayq.targets.kafka.target import KafkaTarget
from testbed.kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.support.deliveries import delivery, outcomes

PAGE = ROOT / "docs" / "targets-kafka.md"
(ROUTES, CONSUMER) = (block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_kafka.py")


class Enough(Exception):
    """All that was sent has arrived."""


def test_the_route_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "canary")
    (route,) = load_routes(ROUTES).table
    # The brokers of the page are nowhere: nothing is to be asked for in vain.
    route = msgspec.structs.replace(route, target="kafka://127.0.0.1:1/delayed.{topic}")
    KafkaTarget(route.target, route, "").close()


def test_all_options_are_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Options")[2]
    named = set(re.findall(r"`([a-z.]+\.[a-z.]+|partitioner)`", text))
    assert named == OPTIONS
    for name in DEFAULTS.keys() & OPTIONS - {"message.max.bytes"}:
        assert re.search(rf"`{re.escape(name)}` \(`?{DEFAULTS[name]}`?\)", text), name


def test_the_consumer_gets_each_message_once(kafka: Kafka) -> None:
    names: dict[str, Any] = {}
    exec(compile(CONSUMER, str(PAGE), "exec", dont_inherit=True), names)
    topic = f"orders.{uuid.uuid4().hex}"
    target = KafkaTarget(kafka.url, Route(name="kafka", target=kafka.url), "")
    batch = [delivery(id, topic=topic) for id in ("a", "b", "a", "c")]
    assert outcomes(target.send(batch, 60.0)) == ["ok"] * 4
    target.close()
    got: list[tuple[str, bytes]] = []

    def work(id: str, value: bytes) -> None:
        got.append((id, value))
        if id == "c":
            raise Enough

    with pytest.raises(Enough):
        names["listen"](kafka.servers, topic, work)
    assert got == [("a", b"x"), ("b", b"x"), ("c", b"x")]
