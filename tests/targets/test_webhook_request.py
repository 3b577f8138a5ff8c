"""What a webhook sends: the headers, the signature, the body."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from functools import cache
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote

import h11
import pytest
from hypothesis import given, settings

from delayq.base.errors import ConfigError
from delayq.domain.message import Message
from delayq.domain.routes import Route
from delayq.targets import Delivery
from delayq.targets.webhook.target import WebhookTarget
from delayq.testing import ManualClock
from tests.support.amounts import amount
from tests.support.deliveries import delivery, outcomes
from tests.support.messages import messages
from tests.support.receiver import Receiver
from tests.support.timeouts import SEND_SECONDS
from tests.targets.conftest import Webhooks

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "whsec_" + base64.b64encode(KEY[::-1]).decode()
NOW = 1_796_121_000_000


def target(**options: Any) -> WebhookTarget:
    """One that nothing is sent by."""
    route = Route(name="hook", target="https://hooks.example/in", options=options)
    return WebhookTarget(route.target, route, "", clock=ManualClock(NOW))


# -- what arrives ----------------------------------------------------------------------------------------------------------


def test_a_message_is_a_post_with_the_headers_of_cloud_events(receiver: Receiver, webhooks: Webhooks) -> None:
    hook = webhooks(receiver.url(path="/in?key=1"), headers={"Authorization": "Bearer token-1"}, source="/shop/eu")
    one = delivery(
        "unpaid-42",
        {"order": 42},
        2,
        tags="größe 1%",
        keys=("order-42", "user-7"),
        ordering_key='the "key"',
        properties={"Region": "eu", "name": "größe\u2603"},
        topic="orders.unpaid",
    )
    assert outcomes(hook.send([one], SEND_SECONDS)) == ["ok"]
    (got,) = receiver.requests
    assert (got.method, got.path, got.body) == ("POST", "/in?key=1", b'{"order":42}')
    agent = got.headers["user-agent"]
    assert re.fullmatch(r"delayq/[0-9.]+", agent)
    assert got.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": agent,
        "content-length": "12",
        "content-type": "application/json",
        "idempotency-key": "unpaid-42",
        "authorization": "Bearer token-1",
        "ce-specversion": "1.0",
        "ce-id": "unpaid-42",
        "ce-source": "/shop/eu",
        "ce-type": "orders.unpaid",
        "ce-time": "1970-01-01T00:00:20.000Z",
        "ce-attempt": "3",
        "ce-tags": "gr%C3%B6%C3%9Fe%201%25",
        "ce-keys": "order-42%20user-7",
        "ce-partitionkey": "the%20%22key%22",
        "delayq-properties": '{"Region":"eu","name":"gr\\u00f6\\u00dfe\\u2603"}',
    }


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"\0\xff", "application/octet-stream"), ("text", "text/plain; charset=utf-8"), ([1], "application/json")],
)
def test_the_content_type_is_that_of_the_body_unless_the_route_has_one(body: Any, kind: str) -> None:
    one = delivery("a", body)
    assert dict(target().headers(one))[b"content-type"] == kind.encode()
    assert dict(target(contentType="application/xml").headers(one))[b"content-type"] == b"application/xml"


# -- the signature ---------------------------------------------------------------------------------------------------------


def test_each_secret_signs_the_id_the_moment_and_the_body() -> None:
    """H12 (replayed signed webhook): Id, time and body are signed: a receiver that checks time and id takes nothing
    twice."""
    one = delivery("order.42.1a2b", b"\0binary\xff")
    headers = {name.decode(): value.decode() for name, value in target(secret=[SECRET, OTHER]).headers(one)}
    assert headers["ce-id"] == headers["idempotency-key"] == "order.42.1a2b"
    assert headers["webhook-id"] == "order~42~1a2b"  # with dots, the signed text could be read in two ways
    assert headers["webhook-timestamp"] == "1796121000"
    wanted = [
        "v1,"
        + base64.b64encode(hmac.new(key, b"order~42~1a2b.1796121000.\0binary\xff", hashlib.sha256).digest()).decode()
        for key in (KEY, KEY[::-1])
    ]
    assert headers["webhook-signature"].split(" ") == wanted


def test_another_attempt_is_signed_with_its_own_time_and_the_same_id() -> None:
    clock = ManualClock(NOW)
    route = Route(name="hook", target="https://hooks.example/in", options={"secret": SECRET})
    hook = WebhookTarget(route.target, route, "", clock=clock)
    first = dict(hook.headers(delivery("a")))
    clock.advance(60_000)
    second = dict(hook.headers(delivery("a", attempts=1)))
    assert first[b"webhook-id"] == second[b"webhook-id"]
    assert int(second[b"webhook-timestamp"]) - int(first[b"webhook-timestamp"]) == 60
    assert first[b"webhook-signature"] != second[b"webhook-signature"]


def test_without_a_secret_nothing_is_signed() -> None:
    assert not [name for name, _ in target().headers(delivery("a")) if name.startswith(b"webhook-")]


# -- header safety ---------------------------------------------------------------------------------------------------------


@cache
def signing() -> WebhookTarget:
    """One for all examples: it loads the certificates of the system, which takes a while."""
    return target(secret=SECRET, headers={"authorization": "Bearer x"})


@settings(max_examples=amount(25, 200))
@given(messages())
def test_no_message_can_add_or_change_a_header(message: Message) -> None:
    """A strict parser reads exactly the headers that are meant, and the message's own words are in them."""
    fields = {name: getattr(message, name) for name in ("topic", "tags", "keys", "properties", "ordering_key")}
    one = delivery(message.id or "an-id", message.body, **fields)
    hook = signing()
    wire = b"POST /in HTTP/1.1\r\n"
    for name, value in hook.headers(one):
        wire += name + b": " + value + b"\r\n"
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    server.receive_data(wire + b"\r\n" + one.payload)
    request = server.next_event()
    assert isinstance(request, h11.Request)
    got = [(name.decode(), value.decode()) for name, value in request.headers]
    headers = dict(got)
    always = {
        "host", "user-agent", "content-type", "content-length", "idempotency-key", "authorization", "ce-specversion",
        "ce-id", "ce-source", "ce-type", "ce-time", "ce-attempt", "webhook-id", "webhook-timestamp", "webhook-signature",
    }  # fmt: skip
    sometimes = {"ce-tags": one.tags, "ce-keys": " ".join(one.keys), "ce-partitionkey": one.ordering_key}
    present = {name for name, value in sometimes.items() if value} | (
        {"delayq-properties"} if one.properties else set()
    )
    assert len(got) == len(headers) and set(headers) == always | present
    assert (headers["host"], headers["authorization"]) == ("hooks.example", "Bearer x")
    assert (unquote(headers["ce-id"]), unquote(headers["ce-type"])) == (one.id, one.topic)
    assert {name: unquote(headers.get(name, "")) for name in sometimes} == sometimes
    assert json.loads(headers.get("delayq-properties", "{}")) == one.properties


def test_words_that_no_message_should_have_do_no_harm_either() -> None:
    hook = target(secret=SECRET)
    for text in ("a\r\nHost: evil", "a\nb", "a\0b", "\r\n\r\nPOST / HTTP/1.1", "\x1b[31m", "a\u2028b", "a\x7fb"):
        odd = SimpleNamespace(
            **dict.fromkeys(("id", "topic", "tags", "ordering_key"), text),
            keys=(text,),
            properties={text: text},
            payload=b"",
            content_type="text/plain",
            due=0,
            attempt=1,
        )
        for name, value in hook.headers(cast(Delivery, odd)):
            assert re.fullmatch(rb"[a-z-]+", name)
            assert re.fullmatch(rb"[\x20-\x7e]+", value)


# -- options ---------------------------------------------------------------------------------------------------------------


NO_NAMES = (
    "Host", "content-length", "Transfer-Encoding", "Content-Type", "connection", "TE", "upgrade", "trailer", "Expect",
    "proxy-authorization", "ce-id", "CE-Type", "webhook-signature", "delayq-properties", "idempotency-key", "keep-alive",
    "a b", "a:b", "", "a\r\nb", "größe", "a\0",
)  # fmt: skip
NO_VALUES = ("", " a", "a ", "a\r\nHost: b", "a\nb", "a\0", "größe", "\x7f")


def test_a_route_cannot_give_headers_that_are_delayqs_own_or_no_headers() -> None:
    for name in NO_NAMES:
        with pytest.raises(ConfigError, match="headers: "):
            target(headers={name: "x"})
    for value in NO_VALUES:
        with pytest.raises(ConfigError, match="headers: x-a"):
            target(headers={"x-a": value})
        if value:
            with pytest.raises(ConfigError, match="contentType"):
                target(contentType=value)


def test_a_weak_or_wrong_secret_is_refused_and_not_repeated() -> None:
    for secret in ("canary", "whsec_", "whsec_canary", "whsec_Y2FuYXJ5", SECRET[6:], "whsec_" + "A" * 100):
        with pytest.raises(ConfigError, match="24 to 64 random bytes") as caught:
            target(secret=secret)
        assert secret.removeprefix("whsec_") not in str(caught.value) or secret == "whsec_"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"secrets": "x"}, "unknown field"),
        ({"headers": {"a": 1}}, "Expected `str`"),
        ({"headers": {"x-a": "1", "X-A": "2"}}, "twice"),
        ({"connectTimeout": 0}, "connectTimeout"),
        ({"finalStatuses": [500, 404], "retriedStatuses": [409, 404]}, "both contain 404"),
        ({"finalStatuses": [200]}, "finalStatuses: 200 .*2xx always means delivered"),
        ({"retriedStatuses": [600]}, "retriedStatuses: 600"),
        ({"retriedStatuses": ["404"]}, "Expected `int`"),
        ({"retriedStatuses": 404}, "Expected `array`"),
        ({"secret": "env:NOWHERE_TO_BE_FOUND"}, "the variable NOWHERE_TO_BE_FOUND is not set"),
        ({"secret": "file:/nowhere/secret"}, "cannot read /nowhere/secret"),
        ({"ca": "/nowhere/ca.pem"}, "No such file"),
    ],
)
def test_a_wrong_option_is_told_with_the_routes_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"route hook: .*{said}"):
        target(**options)


def test_secrets_come_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "Bearer canary")
    (tmp_path / "secret").write_text(SECRET + "\n")
    hook = target(secret=f"file:{tmp_path}/secret", headers={"authorization": "env:HOOK_TOKEN"})
    headers = dict(hook.headers(delivery("a")))
    assert headers[b"authorization"] == b"Bearer canary"
    assert headers[b"webhook-signature"] == dict(target(secret=SECRET).headers(delivery("a")))[b"webhook-signature"]


def test_secrets_are_not_in_what_is_shown_of_a_route_or_a_target() -> None:
    route = Route(
        name="hook", target="https://a.example/canary", options={"secret": SECRET, "headers": {"x": "canary"}}
    )
    shown = f"{route!r} {route} {WebhookTarget(route.target, route, '')!r}"
    assert "canary" not in shown and SECRET not in shown


def test_other_targets_have_no_options() -> None:
    with pytest.raises(ConfigError, match="no options"):
        Route(name="r", target="log:", options={"a": 1}).check()
