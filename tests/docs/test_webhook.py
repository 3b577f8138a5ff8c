"""What docs/targets.md tells the receiver of webhooks to check, on requests as they arrive."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.routes import Route
from delayq.targets.webhook.target import WebhookTarget
from delayq.testing import ManualClock
from tests.docs.blocks import ROOT, blocks_of
from tests.support.deliveries import delivery, outcomes
from tests.support.receiver import Receiver, Request

PAGE = ROOT / "docs" / "targets.md"
(CODE,) = (block.text for block in blocks_of(PAGE) if block.note == "run by tests/docs/test_webhook.py")
SECRET, OLD = ("whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
ID = "order.42.1a2b"

Check = Callable[..., str]


@pytest.fixture
def check() -> Check:
    """The function of the page."""
    names: dict[str, Any] = {}
    exec(compile(CODE, str(PAGE), "exec", dont_inherit=True), names)
    found: Check = names["check"]
    return found


@pytest.fixture
def requests() -> Iterator[Callable[..., Request]]:
    """Sends a message, and gives the request that arrived; it is signed `ago` seconds ago."""
    with Receiver() as receiver:

        def send(ago: int = 0, secret: Any = SECRET, attempts: int = 0) -> Request:
            options = {"secret": secret}
            route = Route(name="hook", target=receiver.url(), allow=("127.0.0.1",), options=options)
            target = WebhookTarget(route.target, route, "", clock=ManualClock((int(time.time()) - ago) * 1000))
            assert outcomes(target.send([delivery(ID, b"\0binary.\xff", attempts)], 10.0)) == ["ok"]
            target.close()
            return receiver.requests[-1]

        yield send


def test_a_request_is_known_by_its_signature(check: Check, requests: Callable[..., Request]) -> None:
    got = requests()
    assert check(got.headers, got.body, SECRET) == "order~42~1a2b"


def test_while_the_secret_is_changed_the_old_one_and_the_new_one_are_good(
    check: Check, requests: Callable[..., Request]
) -> None:
    got = requests(secret=[SECRET, OLD])
    assert check(got.headers, got.body, SECRET) == check(got.headers, got.body, OLD)


@pytest.mark.parametrize(
    "change",
    [
        lambda headers, body: (headers, body + b" "),
        lambda headers, body: (headers | {"webhook-id": "order~43~1a2b"}, body),
        lambda headers, body: (headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}, body),
        lambda headers, body: (headers | {"webhook-signature": "v1,"}, body),
        lambda headers, body: (headers | {"webhook-signature": headers["webhook-signature"][3:]}, body),
        lambda headers, body: (headers | {"webhook-signature": "größe"}, body),
        # The same bytes, divided in another way.
        lambda headers, body: (
            headers | {"webhook-id": "order~42~1a2b." + headers["webhook-timestamp"], "webhook-timestamp": "\0binary"},
            b"\xff",
        ),
    ],
)
def test_what_was_changed_on_its_way_is_refused(
    check: Check, requests: Callable[..., Request], change: Callable[..., tuple[dict[str, str], bytes]]
) -> None:
    got = requests()
    headers, body = change(dict(got.headers), got.body)
    with pytest.raises(ValueError, match=r"signature is wrong|invalid literal"):
        check(headers, body, SECRET)


def test_what_somebody_else_signed_is_refused(check: Check, requests: Callable[..., Request]) -> None:
    got = requests(secret=OLD)
    with pytest.raises(ValueError, match="signature is wrong"):
        check(got.headers, got.body, SECRET)


@pytest.mark.parametrize("ago", [400, -400, 86_400])
def test_a_replay_is_refused(check: Check, requests: Callable[..., Request], ago: int) -> None:
    got = requests(ago)
    with pytest.raises(ValueError, match="may be a replay"):
        check(got.headers, got.body, SECRET)


def test_each_attempt_is_good_at_its_own_time_and_has_the_same_id(
    check: Check, requests: Callable[..., Request]
) -> None:
    late, now = requests(400), requests(0, attempts=1)
    assert check(late.headers, late.body, SECRET, 10**6) == check(now.headers, now.body, SECRET)
