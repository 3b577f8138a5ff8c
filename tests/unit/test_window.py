"""A window spreads dues by ids: evenly, never early, the same id always the same."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any

import pytest
from msgspec.structs import replace

from delayq.base.errors import InvalidMessage
from delayq.client.known_routes import KnownRoutes
from delayq.client.plan import Context
from delayq.client.scheduling.encoding import asked_due
from delayq.domain.message import MAX_WINDOW, Limits, Message
from delayq.domain.routes import Route, Routes
from delayq.store.keys import Layout, Layouts, spread
from tests.support.messages import schedule_messages
from tests.unit.test_plans import NOW, SERVER_NOW, Server, replies

CONTEXT = Context(layouts=Layouts([Layout(16)]), routes=KnownRoutes(Routes([Route(name="all", target="log:")])))


def test_a_million_ids_are_spread_evenly() -> None:
    seconds = Counter(spread(f"order-{number}", 600_000) // 1000 for number in range(1_000_000))
    expected = 1_000_000 / 600
    chi_squared = sum((seconds[second] - expected) ** 2 / expected for second in range(600))
    assert chi_squared < 711.0  # of 599 degrees of freedom, at p = 0.001
    assert seconds.total() == 1_000_000 and set(seconds) == set(range(600))
    assert max(seconds.values()) < 1.2 * expected


def test_an_id_has_its_place_which_no_queue_changes() -> None:
    place = int.from_bytes(blake2b(b"order-42").digest()[:8], "big")
    assert [spread("order-42", window) for window in (600_000, 1, MAX_WINDOW)] == [
        place % 600_000,
        0,
        place % MAX_WINDOW,
    ]
    assert spread("order-42.1f2e", 600_000) == spread("order-42", 600_000) != spread("order-43", 600_000)


@pytest.mark.parametrize("due", [{"delay_time": 5_000}, {"expect_date": NOW + 5_000}, {"delay_level": 2}])
def test_the_due_that_is_sent_and_answered_is_later_by_the_ids_place(due: dict[str, Any]) -> None:
    for given in ({}, {"id": "a"}, {"ordering_key": "k"}, {"id": "a", "ordering_key": "k"}):
        check_place(due, given)


def check_place(due: dict[str, Any], given: dict[str, Any]) -> None:
    message = Message(topic="t", window=60_000, **due, **given)
    server = Server(lambda command: replies())
    outcomes = server.run(schedule_messages(CONTEXT, [message, replace(message, window=None, id="b")], NOW))
    later = outcomes[0].due - ((NOW if "expect_date" in due else SERVER_NOW) + 5_000)
    assert later == spread(outcomes[0].id, 60_000) and (outcomes[0].window, outcomes[1].window) == (60_000, None)
    sent = {id: int(body[:13]) for command in server.asked for id, body in bodies(command)}
    assert sent[outcomes[0].id] == later + (NOW + 5_000 if "expect_date" in due else 5_000)
    if "expect_date" in due and "id" in given:
        assert asked_due(message) == outcomes[0].due


def bodies(command: Any) -> list[tuple[str, bytes]]:
    words = command.args[6:]
    return [*zip(words[: len(words) // 2], words[len(words) // 2 :], strict=True)]


def test_a_window_is_a_number_of_ms_up_to_a_day() -> None:
    windows: list[Any] = [0, -1, MAX_WINDOW + 1, 1.5, True, "10"]
    for window in windows:
        with pytest.raises(InvalidMessage, match="window: "):
            Message(topic="t", delay_time=1, window=window).validate(Limits(), NOW)


@pytest.mark.parametrize("due", [{"delay_time": 900}, {"expect_date": NOW + 900}, {"delay_level": 1}])
def test_a_window_ends_before_the_horizon(due: dict[str, Any]) -> None:
    limits = Limits(horizon=1_000, delay_levels=(900,))
    Message(topic="t", window=100, **due).validate(limits, NOW)
    with pytest.raises(InvalidMessage, match="window: ends 1 ms later than the latest due time"):
        Message(topic="t", window=101, **due).validate(limits, NOW)
