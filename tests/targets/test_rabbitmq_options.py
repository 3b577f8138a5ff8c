"""What a RabbitMQ route may say; no broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.base.errors import ConfigError
from delayq.domain.routes import Route
from delayq.targets.rabbitmq.address import parameters_of
from delayq.targets.rabbitmq.target import RabbitMQTarget
from tests.support.certificates import Authority


def opened(url: str = "rabbitmq://h", **options: Any) -> RabbitMQTarget:
    return RabbitMQTarget(url, Route(name="r", target=url, options=options), "")


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("rabbitmq://h", [("h", 5672, "/", "guest", "guest")]),
        ("rabbitmq://h/", [("h", 5672, "/", "guest", "guest")]),
        ("rabbitmq://h/%2F", [("h", 5672, "/", "guest", "guest")]),
        ("rabbitmq://u:p%40ss@h:1/v%2Fw", [("h", 1, "v/w", "u", "p@ss")]),
        (
            "rabbitmq://u:p@a:1,b,[::1]:3/v",
            [("a", 1, "v", "u", "p"), ("b", 5672, "v", "u", "p"), ("::1", 3, "v", "u", "p")],
        ),
        ("rabbitmqs://h", [("h", 5671, "/", "guest", "guest")]),
        ("rabbitmqs://[fe80::1%25eth0]:1", [("fe80::1%eth0", 1, "/", "guest", "guest")]),
    ],
)
def test_a_url_names_hosts_user_and_virtual_host(url: str, found: list[tuple[object, ...]]) -> None:
    ways = parameters_of(url)
    assert [
        (way.host, way.port, way.virtual_host, way.credentials.username, way.credentials.password) for way in ways
    ] == found
    assert all((way.ssl_options is not None) == url.startswith("rabbitmqs") for way in ways)
    for way in ways:
        if way.ssl_options is not None:
            assert way.ssl_options.server_hostname == way.host
            assert way.ssl_options.context.check_hostname


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("rabbitmq:", {}, r"the URL must be rabbitmq\[s\]://"),
        ("rabbitmq:///v", {}, r"the URL must be rabbitmq\[s\]://"),
        ("rabbitmq://h/v?heartbeat=1", {}, r"the URL must be rabbitmq\[s\]://"),
        ("rabbitmq://h,,g", {}, "a host is missing"),
        ("rabbitmq://h:5672, g:5672", {}, "the host ' g:5672' has a blank"),
        ("rabbitmq://h:port", {}, "port"),
        ("rabbitmq://h:0,g", {}, "a port must be from 1 to 65535"),
        ("rabbitmq://h", {"exchnge": "x"}, "exchnge"),
        ("rabbitmq://h", {"exchange": "x" * 256}, "exchange is longer than 255 bytes"),
        ("rabbitmq://h", {"routingKey": "ü" * 128}, "routingKey is longer than 255 bytes"),
        ("rabbitmq://h", {"exchange": "x.{topc}"}, "exchange has '{topc}'; {topic} is all that stands for something"),
        ("rabbitmq://h", {"routingKey": "{topic"}, "routingKey has '{'; {topic} is all that stands for something"),
        ("rabbitmq://h", {"heartbeat": 5}, "heartbeat at least 1000"),
        ("rabbitmq://h", {"connectTimeout": 0}, "connectTimeout is at least 1"),
        ("rabbitmq://h", {"password": "env:NOT_THERE"}, "password: the variable NOT_THERE is not set"),
        ("rabbitmq://h", {"password": "file:/not/there"}, "password: cannot read /not/there"),
        ("rabbitmqs://h", {"ca": "/not/there"}, "No such file"),
    ],
)
def test_what_makes_no_sense_ends_the_worker_at_its_start(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"route r: RabbitMQ cannot be used: .*{words}"):
        opened(url, **options)


def test_the_password_is_in_no_error_and_in_no_picture_of_the_target(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-word\n")
    target = opened("rabbitmq://u:canary-word@h", password=f"file:{secret}")
    assert "canary" not in repr(target) + repr(vars(target)) + repr(vars(target._link))
    with pytest.raises(ConfigError) as caught:
        opened("rabbitmq://u:canary-word@h:port")
    assert "canary" not in str(caught.value)


def test_the_key_of_a_certificate_may_have_a_password_and_nobody_is_asked_for_it(
    authority: Authority, tmp_path: Path
) -> None:
    shown = authority.issue("rabbit-worker", password="canary-word")
    (tmp_path / "password").write_text("canary-word\n")
    given = {"certificate": str(shown.certificate), "key": str(shown.key)}
    opened("rabbitmqs://h", **given, keyPassword=f"file:{tmp_path}/password")
    for wrong in ({}, {"keyPassword": "canary-wrong"}):
        with pytest.raises(ConfigError, match="route r: RabbitMQ cannot be used") as caught:
            opened("rabbitmqs://h", **given, **wrong)
        assert "canary" not in str(caught.value)
