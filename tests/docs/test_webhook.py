"""The function that docs/targets-webhooks.md gives to receivers of webhooks, on requests as they arrive."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.domain.routes import Route
from delayq.targets.webhook.target import WebhookTarget
from delayq.testing import ManualClock
from tests.docs.blocks import ROOT, blocks_of
from tests.support.deliveries import delivery, outcomes
from tests.support.receiver import Receiver, Request
from tests.support.timeouts import SEND_SECONDS

PAGE = ROOT / "docs" / "targets-webhooks.md"
(CODE,) = (block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_webhook.py")
SECRET, OLD = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
NAMES: dict[str, Any] = {}
exec(compile(CODE, str(PAGE), "exec", dont_inherit=True), NAMES)
check: Callable[..., str] = NAMES["check"]

Requests = Callable[..., Request]


@pytest.fixture
def requests() -> Iterator[Requests]:
    """Sends a message that was signed `ago` seconds ago, and returns the request that arrived."""
    with Receiver() as receiver:

        def send(ago: int = 0, secret: Any = SECRET, attempts: int = 0) -> Request:
            route = Route(name="hook", target=receiver.url(), allow=("127.0.0.1",), options={"secret": secret})
            target = WebhookTarget(route.target, route, "", clock=ManualClock((int(time.time()) - ago) * 1000))
            batch = [delivery("order.42.1a2b", b"\0binary.\xff", attempts)]
            assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"]
            target.close()
            return receiver.requests[-1]

        yield send


def test_a_request_is_known_by_its_signature_and_by_both_while_the_secret_changes(requests: Requests) -> None:
    got = requests()
    assert check(got.headers, got.body, SECRET) == "order~42~1a2b"
    both = requests(secret=[SECRET, OLD])
    assert check(both.headers, both.body, SECRET) == check(both.headers, both.body, OLD) == "order~42~1a2b"


def test_a_request_that_was_changed_or_signed_by_somebody_else_is_refused(requests: Requests) -> None:
    got, foreign = requests(), requests(secret=OLD)
    signed, signature = got.headers["webhook-timestamp"], got.headers["webhook-signature"]
    for changes, body in (
        ({}, got.body + b" "),
        ({"webhook-id": "order~43~1a2b"}, got.body),
        ({"webhook-timestamp": str(int(signed) + 1)}, got.body),
        ({"webhook-signature": "v1,"}, got.body),
        ({"webhook-signature": signature[3:]}, got.body),
        ({"webhook-signature": "größe"}, got.body),
        ({"webhook-signature": foreign.headers["webhook-signature"]}, got.body),
        # The same bytes, divided in another way.
        ({"webhook-id": f"order~42~1a2b.{signed}", "webhook-timestamp": "\0binary"}, b"\xff"),
    ):
        with pytest.raises(ValueError, match=r"signature is wrong|invalid literal"):
            check(dict(got.headers) | changes, body, SECRET)
    with pytest.raises(ValueError, match="signature is wrong"):
        check(foreign.headers, foreign.body, SECRET)


def test_a_replay_is_refused_and_each_attempt_is_valid_at_its_own_time(requests: Requests) -> None:
    for ago in (400, -400, 86_400):
        got = requests(ago)
        with pytest.raises(ValueError, match="may be a replay"):
            check(got.headers, got.body, SECRET)
    late, now = requests(400), requests(0, attempts=1)
    assert check(late.headers, late.body, SECRET, 10**6) == check(now.headers, now.body, SECRET)
