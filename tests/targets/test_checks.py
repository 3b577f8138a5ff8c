"""What a target can never take is refused by whoever schedules, without the target."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from delayq import Client, ConfigError, InvalidMessage, Message
from delayq.base.errors import MissingExtra
from delayq.client.known_routes import KnownRoutes
from delayq.config import load_settings
from delayq.domain.routes import Route, Routes
from delayq.targets import Target, open_target, register_target
from delayq.testing import MemoryTarget
from tests.support.deliveries import delivery, outcomes
from tests.support.nodes import RunningNode
from tests.support.receiver import Receiver
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT, SEND_SECONDS, SEND_TIMEOUT
from tests.support.waiting import eventually
from tests.targets.conftest import Webhooks

KAFKA = {"target": "kafka://k:9092"}
ROCKET = {"target": "rocketmq://r:8081"}
RABBIT = {"target": "rabbitmq://user:canary@r"}
HOOK = {"target": "https://hooks.example/canary/{topic}"}

#: The route, the message, the field that is wrong, and why.
REFUSED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str, str]] = {
    "a topic that Kafka has no name for": (KAFKA, {"topic": "a:b"}, "topic", "'a:b' is not a Kafka topic"),
    "a topic that is too long for Kafka": (KAFKA, {"topic": "a" * 250}, "topic", "1 to 249 characters"),
    "a topic that is a dot": (KAFKA, {"topic": "."}, "topic", "not '.' or '..'"),
    "a topic that is two dots": (KAFKA, {"topic": ".."}, "topic", "name another topic in the route's URL"),
    "a topic within another name": ({"target": "kafka://k/x.{topic}"}, {"topic": "a:b"}, "topic", "'x.a:b' is not a Kafka topic"),
    "no text for RocketMQ": (ROCKET, {"body": ""}, "body", "is empty, and RocketMQ has no messages without a body"),
    "no bytes for RocketMQ": (ROCKET, {"body": b""}, "body", "is empty"),
    "two tags": (ROCKET, {"tags": "a||b"}, "tags", "RocketMQ takes one tag, without a '|'"),
    "a tag of blanks": (ROCKET, {"tags": "  "}, "tags", "white space"),
    "a property of delayq's": (ROCKET, {"properties": {"delayq_id": "x"}}, "properties", "give it another name"),
    "a property of RocketMQ's": (ROCKET, {"properties": {"KEYS": "x"}}, "properties", "a name of RocketMQ's own"),
    "a topic that is too long for RocketMQ": (ROCKET, {"topic": "a" * 128}, "topic", "at most 127 characters"),
    "a header that is RabbitMQ's": (RABBIT, {"properties": {"CC": "x"}}, "properties", "'CC' cannot be a header"),
    "a header that is delayq's": (RABBIT, {"properties": {"delayq-due": "x"}}, "properties", "another propertyPrefix"),
    "a priority that is no number": (RABBIT, {"properties": {"amqp-priority": "x"}}, "properties", "must be a number"),
    "an exchange that is too long": (
        RABBIT | {"options": {"exchange": "shop.{topic}"}}, {"topic": "a" * 251}, "topic", "longer than 255 bytes"
    ),
    "a step up in a webhook's path": (HOOK, {"topic": ".."}, "topic", "lead out of the path"),
    "a step up that the path helps to": (
        {"target": "https://h.example/.{topic}"}, {"topic": "."}, "topic", "'..' would lead out"
    ),
}  # fmt: skip
#: What looks alike and is taken.
TAKEN: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "a fixed name in Kafka": ({"target": "kafka://k/orders"}, {"topic": "a:b"}),
    "the longest name in Kafka": (KAFKA, {"topic": "a" * 249}),
    "an empty JSON text for RocketMQ": (ROCKET, {"body": []}),
    "a topic that becomes a name of RocketMQ": (ROCKET, {"topic": "a.b:c"}),
    "a fixed topic in RocketMQ": (ROCKET | {"options": {"topic": "orders"}}, {"topic": "a" * 255}),
    "a header with a prefix": (RABBIT | {"options": {"propertyPrefix": "x-"}}, {"properties": {"CC": "x"}}),
    "a fixed exchange": (RABBIT | {"options": {"exchange": "e", "routingKey": "k"}}, {"topic": "a" * 255}),
    "dots among others": (HOOK, {"topic": "a..b"}),
    "dots in a fixed path": ({"target": "https://hooks.example/in"}, {"topic": ".."}),
    "dots in a query": ({"target": "https://hooks.example/in?topic={topic}"}, {"topic": ".."}),
    "anything for a stream": ({"target": "redis+stream:"}, {"body": "", "tags": "a||b", "topic": ".."}),
    "anything for a log": ({"target": "log:"}, {"body": "", "tags": "a||b", "topic": ".."}),
    "an option that the worker refuses": (ROCKET | {"options": {"topic": 5}}, {}),
}


def routes(given: Mapping[str, Any]) -> Routes:
    return Routes([Route(**{"name": "r", **given})])


def message(given: Mapping[str, Any]) -> Message:
    return Message(**{"topic": "orders", "body": "x", **given})


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_target_can_never_take_is_refused_with_its_field_and_how_to_mend_it(name: str) -> None:
    """F16: Such as a topic that Kafka refuses, no body or two tags for RocketMQ, a header of RabbitMQ's, `..` in a
    webhook's path.

    Everybody with the routes can refuse it; no package of the target is needed.
    """
    route, fields, field, why = REFUSED[name]
    with pytest.raises(InvalidMessage) as caught:
        KnownRoutes(routes(route)).check(message(fields))
    assert caught.value.field == field
    assert why in caught.value.reason
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", TAKEN)
def test_what_it_may_take_is_not(name: str) -> None:
    route, fields = TAKEN[name]
    KnownRoutes(routes(route)).check(message(fields))


def test_another_process_refuses_the_same_and_learns_no_secrets() -> None:
    for route, fields, *_ in REFUSED.values():
        secret = dict(route) | {"options": {**route.get("options", {}), "secretKey": "canary", "secret": "canary"}}
        text = pickle.dumps(routes(secret).bare())
        assert b"canary" not in text.replace(b"/canary/{topic}", b"")
        with pytest.raises(InvalidMessage):
            KnownRoutes(pickle.loads(text)).check(message(fields))


#: The cases as text, for a process that has none of these packages.
_CASES = (
    "from delayq.client.known_routes import KnownRoutes\n"
    "from delayq.domain.routes import Route, Routes\n"
    "from delayq.domain.message import Message\n"
    f"REFUSED = {REFUSED!r}\n"
    "def routes(given): return Routes([Route(**{'name': 'r'} | given)])\n"
    "def message(given): return Message(**{'topic': 'orders', 'body': 'x'} | given)\n"
)


def test_it_needs_no_package_of_a_target() -> None:
    program = (
        "import sys\n"
        "for name in ('confluent_kafka', 'grpc', 'rocketmq', 'pika', 'httpcore2'): sys.modules[name] = None\n"
        f"{_CASES}"
        "from delayq import InvalidMessage\n"
        "for route, fields, *_ in REFUSED.values():\n"
        "    try: KnownRoutes(routes(route)).check(message(fields))\n"
        "    except InvalidMessage: continue\n"
        "    sys.exit(f'{route} {fields}')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("kafka://h:1", "confluent_kafka", "kafka"),
        ("rocketmq://h:1", "grpc", "rocketmq"),
        ("rabbitmq://h", "pika", "rabbitmq"),
        ("https://h.example/", "httpcore2", "webhook"),
    ],
)
def test_a_target_without_its_package_names_the_extra(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith(f"delayq.targets.{extra}.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'delayq\[{extra}\]'"):
        open_target(Route(name="r", target=url), "")


def test_a_target_of_one_s_own_brings_its_check() -> None:
    class Check:
        def __init__(self, route: Route) -> None:
            self._name = route.name

        def __call__(self, message: Message) -> None:
            if b"\n" in message.body:
                raise InvalidMessage("body", f"{self._name} takes no line breaks")

    def open_lines(url: str, route: Route, redis_url: str) -> Target:
        return MemoryTarget()

    register_target("checked-lines", open_lines, Check)
    table = KnownRoutes(routes({"target": "checked-lines:/x"}))
    table.check(message({"body": b"one line"}))
    assert table.reads_body("orders")  # as it does not say that it does not
    with pytest.raises(InvalidMessage, match="r takes no line breaks"):
        table.check(message({"body": b"two\nlines"}))


def test_what_was_scheduled_before_and_cannot_be_taken_becomes_a_dead_letter(
    valkey: ServerUnderTest, receiver: Receiver
) -> None:
    route = {"name": "hook", "target": receiver.url(path="/hooks/{topic}"), "allow": ["127.0.0.0/8"]}
    settings = load_settings(
        redis_url=valkey.url,
        queues=2,
        routes=json.dumps([route]),
        redis_timeout=REDIS_TIMEOUT,
        send_timeout=SEND_TIMEOUT,
    )
    before = load_settings(redis_url=valkey.url, queues=2)
    with Client(settings=before) as client:
        client.schedule(Message(topic="..", id="a", delay_time=0))
    with Client(settings=settings) as client, pytest.raises(InvalidMessage):
        client.schedule(Message(topic="..", id="b", delay_time=0))
    with RunningNode(settings), Client(settings=settings) as client:
        (letter,) = eventually(lambda: client.dead_letters().letters, "it is a dead letter")
    assert (letter.id, letter.attempts) == ("a", 1)
    assert "lead out of the path" in (letter.reason or "")
    assert receiver.requests == []


# -- {topic} in a webhook's URL ------------------------------------------------------------------------------------------


def test_the_topic_stands_in_a_webhook_s_path_and_query_as_a_part_of_a_url(
    receiver: Receiver, webhooks: Webhooks
) -> None:
    hook = webhooks(receiver.url(path="/in/{topic}/x-{topic}?t={topic}"))
    assert (
        outcomes(hook.send([delivery("a", topic="orders.un_paid"), delivery("b", topic="a:b-c")], SEND_SECONDS))
        == ["ok"] * 2
    )
    assert [request.path for request in receiver.requests] == [
        "/in/orders.un_paid/x-orders.un_paid?t=orders.un_paid",
        "/in/a%3Ab-c/x-a%3Ab-c?t=a%3Ab-c",
    ]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://{topic}.example/in", "is for the path and the query of its URL, never for the host"),
        ("https://hooks.example:{topic}/in", "never for the host"),
        ("https://hooks.example/{topics}", "'{topics}' in its URL: {topic} is all that stands for something"),
        ("https://hooks.example/{/in", "'{' in its URL"),
        ("https://hooks.example/in?{tag}", "'{tag}' in its URL"),
    ],
)
def test_braces_that_stand_for_nothing_or_in_the_host_end_a_worker_at_its_start(
    webhooks: Webhooks, url: str, why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        webhooks(url)
    assert why in str(caught.value)
