"""Webhooks that are to reach what they must not, and what is sent again by somebody else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
from typing import Any

import pytest

from delayq.errors import ConfigError
from delayq.routes import Route
from delayq.targets.webhook.target import WebhookTarget
from tests.support.deliveries import delivery
from tests.support.receiver import Answer, Receiver, Request
from tests.targets.test_egress import HOSTS

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


def hook(url: str, allow: tuple[str, ...] = (), **options: Any) -> WebhookTarget:
    return WebhookTarget(url, Route(name="hook", target=url, allow=allow, options=options), "")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_h4_no_notation_of_an_address_that_is_not_public_is_connected_to(scheme: str) -> None:
    for host in HOSTS:
        with pytest.raises(ConfigError):
            hook(f"{scheme}://{host}/hook")


@pytest.fixture
def receiver() -> Any:
    with Receiver() as running:
        yield running


def test_h4_a_name_that_turns_private_between_two_attempts_is_not_followed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for before each attempt, all its addresses are checked, and the checked one is connected to."""
    known = {"rebind.example.com": [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"]]}

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in known[host].pop(0)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    target = hook(f"http://rebind.example.com:{receiver.port}/hook")
    for _ in range(2):
        (outcome,) = target.send([delivery("a")], 1.0)
        assert outcome.outcome != "ok"
    target.close()
    assert receiver.requests == []


def test_h4_a_redirect_to_a_private_address_is_not_followed(receiver: Receiver) -> None:
    with Receiver() as inner:
        receiver.answer = lambda _: Answer(302, headers={"location": inner.url()})
        target = hook(receiver.url(), allow=("127.0.0.0/8",))
        (outcome,) = target.send([delivery("a")], 5.0)
        target.close()
        assert outcome.outcome != "ok"
        assert (len(receiver.requests), len(inner.requests)) == (1, 0)


def accepts(request: Request, now: int, seen: set[str]) -> bool:
    """What docs/targets.md tells a receiver to do."""
    id, sent = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    signed = f"{id}.{sent}.".encode() + request.body
    wanted = base64.b64encode(hmac.digest(b"s" * 32, signed, hashlib.sha256)).decode()
    given = [one.partition(",")[2] for one in request.headers["webhook-signature"].split()]
    if not any(hmac.compare_digest(one, wanted) for one in given) or abs(now - int(sent)) > 300 or id in seen:
        return False
    seen.add(id)
    return True


def test_h12_a_replayed_webhook_is_told_by_what_is_signed(receiver: Receiver) -> None:
    target = hook(receiver.url(), allow=("127.0.0.0/8",), secret=SECRET)
    target.send([delivery("a")], 5.0)
    target.close()
    (request,) = receiver.requests
    now = int(request.headers["webhook-timestamp"])
    seen: set[str] = set()
    assert accepts(request, now, seen)
    assert not accepts(request, now, seen)  # the very same again
    assert not accepts(request, now + 301, set())  # later
    for name in ("webhook-id", "webhook-timestamp"):
        forged = Request(request.method, request.path, {**request.headers, name: "1"}, request.body, request.connection)
        assert not accepts(forged, now, set())
