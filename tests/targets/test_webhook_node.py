"""A real worker node that forwards to a real endpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delayq import Client, ConfigError, Message, Settings
from delayq.config import load_settings
from tests.support.nodes import RunningNode
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT, SEND_TIMEOUT
from tests.support.waiting import eventually

SECRET = "whsec_" + "A" * 44


def settings_for(server: ServerUnderTest, target: str, **given: Any) -> Settings:
    options = {"secret": SECRET, "headers": {"authorization": "Bearer canary-token"}}
    routes = [{"name": "hook", "match": "*", "target": target, "options": options}]
    values = {
        "queues": 2,
        "redis_timeout": REDIS_TIMEOUT,
        "send_timeout": SEND_TIMEOUT,
        "retry_base": 20,
        "retry_cap": 100,
        "egress_allow": "127.0.0.0/8",
    }
    return load_settings(redis_url=server.url, routes=json.dumps(routes), **(values | given))


def test_messages_are_forwarded_retried_and_buried_and_no_secret_is_told(
    valkey: ServerUnderTest, receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = settings_for(valkey, receiver.url(path="/canary-path?canary-query"))

    def answer(request: Request) -> Answer:
        if request.headers["ce-id"] == "poisoned":
            return Answer(422, body=b"no such order for " + request.headers["authorization"].encode())
        if request.headers["ce-id"] == "later" and request.headers["ce-attempt"] == "1":
            return Answer(503)
        return Answer(200)

    receiver.answer = answer
    with RunningNode(settings), Client(settings=settings) as client:
        for id in ("fine", "poisoned", "later"):
            client.schedule(Message(topic="orders.unpaid", body={"order": 42}, id=id, delay_time=50))
        eventually(lambda: sorted(receiver.ids) == ["fine", "later", "later", "poisoned"], "all were sent")
        (letter,) = eventually(lambda: client.dead_letters().letters, "one is a dead letter")
        eventually(
            lambda: [found and found.state for found in client.get_many(["fine", "later"])] == ["delivered"] * 2,
            "the others are forwarded",
        )
    assert letter.id == "poisoned"
    assert letter.reason == f"127.0.0.1:{receiver.port} answered 422: no such order for ***"
    assert all("webhook-signature" in request.headers for request in receiver.requests)
    told = "".join(capfd.readouterr()) + repr(settings) + repr(settings.route_table().table)
    assert "canary" not in told and SECRET not in told


def test_a_worker_does_not_start_with_an_address_that_is_not_allowed(
    valkey: ServerUnderTest, receiver: Receiver
) -> None:
    node = RunningNode(settings_for(valkey, receiver.url(), egress_allow="10.0.0.0/8, *.internal"), wait=False)
    with pytest.raises(ConfigError, match=r"route hook: .*127\.0\.0\.1 is not public"), node:
        node.wait_for_the_end()
