"""What ./dev up --demo asks for: no server runs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from devtools.calls import Call
from devtools.demo import MOST_A_SECOND, Shop
from devtools.endpoint import Endpoint


def messages_of(calls: Iterable[Call]) -> list[dict[str, Any]]:
    return [message for call in calls if call.path == "/v1/messages:batch" for message in call.body["messages"]]


def hour_of(shop: Shop) -> list[list[Call]]:
    """What it asks for in each second of the first hour."""
    return [list(shop.opening()), *(list(shop.second(second)) for second in range(1, 3_600))]


def without_times(calls: Iterable[Call]) -> list[str]:
    """The calls, but for when the bursts are due, which goes by the clock."""
    for one in messages_of(found := list(calls)):
        one.pop("expectDate", None)
    return [repr(call) for call in found]


def test_the_same_seed_asks_for_the_same() -> None:
    first, second, other = (without_times(chain(*hour_of(Shop(seed))[:100])) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_traffic_is_bounded_and_no_id_comes_twice() -> None:
    shop = Shop()
    hour = hour_of(shop)
    campaigns = [second for second, calls in enumerate(hour) if len(messages_of(calls)) > MOST_A_SECOND]
    assert campaigns == [0, 900, 1_800, 2_700]
    ids = Counter(one["id"] for one in messages_of(chain(*hour)))
    assert max(ids.values()) == 1
    assert len(ids) == shop.scheduled


def test_an_invoice_is_refused_until_somebody_has_seen_to_it() -> None:
    with Endpoint() as endpoint:
        assert endpoint.answer("/office", "a", {"street": None})[0] == 422
        assert endpoint.answer("/office", "a", {"street": None})[0] == 204
        assert endpoint.answer("/bank", "b", {"card": "valid"})[0] == 503
