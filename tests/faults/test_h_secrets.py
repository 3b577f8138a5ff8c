"""Canaries in every secret there is: none of them may ever be heard.

They stand in the URL of Redis, in a route's options and its target's URL, and in keys. All that API, workers and
command line write, answer and export is searched, while all goes well and while it does not.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from api.app import create_app
from api.routes import OPERATIONS
from api.routes.openapi import document
from delayq.base.errors import ConfigError, DelayqError
from delayq.cli import main
from delayq.config import load_settings
from delayq.domain.routes import Route
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.targets import open_target
from tests.faults.flow import batch, state_of
from tests.support.deliveries import delivery
from tests.support.keys import KeyFile
from tests.support.receiver import Answer, Receiver, Request
from tests.support.service import Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.node.node import Node

PASSWORD = "canary-password-5f1c"
SIGNING = "whsec_Y2FuYXJ5LXNpZ25pbmctc2VjcmV0LTEyMzQ1Ng=="
TOKEN = "canary-token-77aa"
PATH = "canary-path-31bd"


class Heard:
    """Everything that was said, and what of it must not have been."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = secrets
        self.said: dict[str, str] = {}

    def add(self, where: str, text: str) -> None:
        self.said[where] = self.said.get(where, "") + text

    def leaks(self) -> list[tuple[str, str]]:
        return [(where, secret) for where, text in self.said.items() for secret in self.secrets if secret in text]


@pytest.fixture
def guarded(own_valkey: EmbeddedServer) -> Iterator[tuple[EmbeddedServer, str]]:
    """A server with a user whose password is a canary, and the URL with it."""
    admin = redis.Redis.from_url(own_valkey.url)
    admin.execute_command("ACL", "SETUSER", "canary", "on", f">{PASSWORD}", "allkeys", "allchannels", "+@all")
    yield own_valkey, own_valkey.url.replace("redis://", f"redis://canary:{PASSWORD}@")
    admin.close()


@pytest.mark.long
def test_h7_no_secret_is_ever_said(
    guarded: tuple[EmbeddedServer, str],
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """H7 (secrets in logs, errors, metrics, labels): No output of API, workers or command line has a password, secret
    or key.

    H7: This holds while all is well, while Redis is away, when a setting is wrong, and when a broker or ZooKeeper
    refuses a secret of a route.
    """
    server, url = guarded
    keys = KeyFile(tmp_path / "keys.yaml")
    headers = keys.add("canary")
    keys.add("small", {"orders.*": ["schedule"]})
    key = keys.texts["canary"]
    heard = Heard(PASSWORD, SIGNING, SIGNING[6:], TOKEN, PATH, key, key[20:], keys.keys[0].hash[7:])
    options = {"secret": SIGNING, "headers": {"authorization": f"Bearer {TOKEN}"}}
    hook = receiver.url(path=f"/{PATH}?token={TOKEN}")
    routes = json.dumps([{"name": "hook", "match": "hooks.*", "target": hook, "options": options}, {"name": "rest"}])

    def answer(request: Request) -> Answer:
        if request.headers["ce-id"] == "refused":
            return Answer(422, body=f"no: {request.headers['authorization']} {request.headers}".encode())
        return Answer(503, body=TOKEN.encode()) if request.headers["ce-attempt"] == "1" else Answer(200)

    receiver.answer = answer
    settings = {
        "routes": routes, "api_keys": str(keys.path), "egress_allow": "127.0.0.0/8", "retry_base": "50",
        "redis_timeout": str(REDIS_TIMEOUT), "log_level": "debug",
    }  # fmt: skip
    service = Service(tmp_path, url, workers=1, **settings)
    worker_port = free_port()
    service.workers[0].settings["worker_port"] = str(worker_port)
    service.http.headers.update(headers)
    for name, value in service.settings.items():
        if value:
            monkeypatch.setenv(f"DELAYQ_{name.upper()}", value)

    def look(when: str) -> None:
        """Ask for everything."""
        for path in (
            "/metrics", "/readyz", "/v1/overview", "/v1/nodes", "/v1/queues", "/openapi.json", "/docs",
            "/v1/dead-letters", "/v1/messages/refused", "/v1/messages/a%20b",
        ):  # fmt: skip
            reply = service.http.get(path)
            heard.add(f"{when}: GET {path}", f"{reply.headers} {reply.text}")
        for bad in (f"Bearer {key}x", f"Basic {key}", key):
            reply = service.http.get("/v1/queues", headers={"authorization": bad})
            heard.add(f"{when}: a wrong key", f"{reply.status_code} {reply.headers} {reply.text}")
        for path in ("/metrics", "/readyz", "/livez"):
            heard.add(f"{when}: worker {path}", httpx2.get(f"http://{LOCALHOST}:{worker_port}{path}").text)
        for command in (
            ("overview",), ("queues",), ("nodes",), ("doctor",), ("doctor", "--json"), ("dead-letters", "list"),
            ("get", "refused"), ("era", "show"), ("api-keys", "list"), ("api-keys", "list", "--json"),
            ("schedule", "nowhere", "x", "--delay", "x"),
        ):  # fmt: skip
            main(command)
            heard.add(f"{when}: delayq {command[0]}", "".join(capfd.readouterr()))

    try:
        service.start()
        messages = [{"id": id, "topic": "hooks.a", "delayTime": 10} for id in ("refused", "fine")]
        batch(service, messages)
        eventually(
            lambda: state_of(service, "refused") == "dead" and state_of(service, "fine") == "delivered",
            "one is a dead letter, the other delivered",
        )
        look("well")
        server.kill()
        heard.add("away", service.schedule("hooks.a", delayTime=1).text)
        look("away")
    finally:
        service.stop()
    for one in service.processes:
        assert one.said()
        heard.add(f"log of {one.name}", one.said())
    assert heard.leaks() == []


#: A setting, and what is wrong with it.
WRONG = [
    ("redis_url", f"redis://canary:{PASSWORD}@127.0.0.1:port/0"),
    ("redis_url", f"http://canary:{PASSWORD}@127.0.0.1:6379/0"),
    ("redis_url", f"redis+cluster://canary:{PASSWORD}@127.0.0.1:6379/7"),
    ("redis_url", f"redis+sentinel://canary:{PASSWORD}@127.0.0.1:26379"),
    ("redis_url", f"redis://canary:{PASSWORD}@127.0.0.1:6379/0?nonsense=1"),
    ("redis_url", f"rediss://canary:{PASSWORD}@127.0.0.1:1/0?ssl_password={TOKEN}"),
    ("redis_url", f"redis://canary:{PASSWORD}@[::1:6379/0"),
    ("redis_password", PASSWORD),
    ("routes", json.dumps([{"name": "hook", "target": f"https://{TOKEN}@example.com/{PATH}"}])),
    (
        "routes",
        json.dumps([{"name": "hook", "target": f"https://10.0.0.1/{PATH}", "options": {"secret": SIGNING}}]),
    ),
    ("routes", json.dumps([{"name": "hook", "target": "https://example.com", "options": {"secret": TOKEN}}])),
    ("routes", json.dumps([{"name": "hook", "target": "https://example.com", "options": {"nonsense": TOKEN}}])),
    ("routes", json.dumps([{"name": "hook", "options": TOKEN}])),
    ("routes", '[{"name": "hook", "options": {"secret": "' + TOKEN),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_h7_a_wrong_setting_is_told_without_what_is_secret_in_it(
    name: str,
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the command line, and by what an API and a worker begin with."""
    heard = Heard(PASSWORD, SIGNING, SIGNING[6:], TOKEN, PATH)
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv(f"DELAYQ_{name.upper()}", value)
    for command in (("queues",), ("doctor", "--json"), ("schedule", "a", "b", "--delay", "1s")):
        main(command)
        heard.add(f"delayq {command[0]}", "".join(capfd.readouterr()))
    for part, begin in (("api", create_app), ("worker", Node)):
        try:
            begin(load_settings())
        except DelayqError as error:
            heard.add(part, "".join(traceback.format_exception(error)))
    heard.add("log", "".join(capfd.readouterr()) + caplog.text)
    assert heard.said["delayq queues"]
    assert heard.leaks() == []


BROKERS: list[tuple[str, dict[str, Any]]] = [
    ("kafka://127.0.0.1:1", {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "canary", "sasl.password": "env:CANARY",
    }),
    ("kafka://127.0.0.1:1", {"security.protocol": "SSL", "ssl.key.pem": "env:CANARY", "ssl.key.password": PASSWORD}),
    ("rabbitmq://127.0.0.1:1/", {"user": "canary", "password": "env:CANARY"}),
    (f"rabbitmqs://canary:{PASSWORD}@127.0.0.1:1/", {}),
    ("rabbitmqs://127.0.0.1:1/", {"certificate": "FILE", "key": "FILE", "keyPassword": PASSWORD}),
    ("rocketmq://127.0.0.1:1", {"accessKey": "file:FILE", "secretKey": "env:CANARY"}),
    (f"redis+stream://canary:{PASSWORD}@127.0.0.1:1/0", {}),
]  # fmt: skip


@pytest.mark.parametrize(("url", "options"), BROKERS)
def test_h7_a_target_that_cannot_be_reached_is_told_without_its_secrets(
    url: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Opened, sent to and shown, with every logger at debug."""
    file = tmp_path / "secret"
    file.write_text(TOKEN)
    monkeypatch.setenv("CANARY", PASSWORD)
    heard = Heard(PASSWORD, TOKEN)
    caplog.set_level("DEBUG")
    options = {name: value.replace("FILE", str(file)) for name, value in options.items()}
    route = Route(name="r", target=url, send_timeout=3_000, options=options)
    try:
        target = open_target(route, "redis://127.0.0.1:1/0")
    except ConfigError as error:
        heard.add("refused", "".join(traceback.format_exception(error)) + repr(route.name))
    else:
        try:
            heard.add("result", repr(target.send([delivery("a")], 3.0)))
            heard.add("shown", repr(target))
        finally:
            target.close()
    heard.add("log", caplog.text)
    assert any(heard.said.values())
    assert heard.leaks() == []


def test_h7_examples_in_the_documentation_have_no_secrets() -> None:
    text = json.dumps(document(OPERATIONS))
    assert "dq_<id>_<secret>" in text
    assert "password" not in text
