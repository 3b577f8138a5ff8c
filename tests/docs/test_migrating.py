"""docs/migrating-from-rabbitmq-delayed.md, from a producer to a consumer."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from delayq.config import load_settings
from delayq.targets import register_target
from delayq.targets.rabbitmq.target import RabbitMQTarget
from testbed.rabbitmq import RabbitMQ
from tests.docs.blocks import ROOT, blocks_of
from tests.support.amqp import amqp
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]

PAGE = ROOT / "docs" / "migrating-from-rabbitmq-delayed.md"
DECLARE, ROUTES, BRIDGE, PRODUCER, DIRECT = (
    block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_migrating.py"
)


def test_a_producer_of_the_plugin_goes_on_as_before(
    rabbitmq: RabbitMQ, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    def here(text: str) -> str:
        return text.replace("127.0.0.1:5672", f"127.0.0.1:{rabbitmq.port}").replace(
            "redis://127.0.0.1:6389/0", valkey.url
        )

    def run(text: str) -> None:
        exec(compile(here(text), str(PAGE), "exec", dont_inherit=True), {})

    register_target("rabbitmq", RabbitMQTarget)
    run(DECLARE)
    _, *words = shlex.split(here(BRIDGE))
    given = {"redis_url": valkey.url, "redis_timeout": str(REDIS_TIMEOUT)}
    bridge = OneProcess("bridge", [sys.executable, "-m", "delayq.cli", *words], given, tmp_path / "log")
    settings = load_settings(redis_url=valkey.url, redis_timeout=REDIS_TIMEOUT, routes=here(ROUTES))
    bridge.start()
    try:
        with RunningNode(settings), amqp(rabbitmq) as broker:
            run(PRODUCER)
            run(DIRECT)
            found: dict[str, Any] = {}

            def both() -> bool:
                found.update((properties.message_id, (properties, body)) for properties, body in broker.take("shop", 0))
                return len(found) == 2

            eventually(both, "both arrive")
        assert bridge.stop() == 0
        assert bridge.said().splitlines()[-3:] == ["scheduled\t1", "repeated\t0", "refused\t0"]
    finally:
        bridge.kill()
    properties, body = found["unpaid-42"]
    assert json.loads(body) == {"order": 42} and properties.headers["shop"] == "north"
    assert (properties.content_type, properties.correlation_id) == ("application/json", "c-42")
    properties, body = found["unpaid-43"]
    assert json.loads(body) == {"order": 43} and properties.headers["delayq-keys"] == "order-43"
