"""What ./dev up --demo asks for: no server runs here."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from devtools.demo import MOST_A_SECOND, Shop


def test_traffic_is_bounded_and_no_id_comes_twice() -> None:
    shop = Shop()
    seconds = [list(shop.opening()), *(list(shop.second(second)) for second in range(1, 1_000))]
    scheduled = [
        [message for call in calls if call.path == "/v1/messages:batch" for message in call.body["messages"]]
        for calls in seconds
    ]
    campaigns = [second for second, messages in enumerate(scheduled) if len(messages) > MOST_A_SECOND]
    assert campaigns == [0, 900]
    ids = Counter(message["id"] for message in chain(*scheduled))
    assert max(ids.values()) == 1
    assert len(ids) == shop.scheduled
