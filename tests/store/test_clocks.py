"""Clocks that were far ahead: what they made the scripts remember or forget is put right when they are."""

from __future__ import annotations

from importlib.resources import files

import pytest

from delayq.store.commands import Retention
from tests.support.queues import Queue, ids, row
from tests.support.servers import ServerUnderTest

NOW = 1_800_000_000_000
HOUR = 3_600_000
YEARS = 10**11
WINDOW = Retention().window


# -- what it says ---------------------------------------------------------------------------------------------------------


def test_a_time_is_13_digits_and_the_micros_within_its_last(server: ServerUnderTest) -> None:
    clock = (files("delayq.store") / "lua" / "include" / "clock.lua").read_text()
    told = "local at, within = clock('')\nreturn { digits(at), digits(at + 1), digits(within) }"
    for micros, milli, micro in (("0", "000", 0), ("7", "000", 7), ("12345", "012", 345), ("999999", "999", 999)):
        time = f"local redis = {{ call = function() return {{ '1800000000', '{micros}' }} end }}\n"
        found = [int(one) for one in server.admin.eval(f"{time}{clock}{told}", 0)]
        assert found == [int("1800000000" + milli), int("1800000000" + milli) + 1, micro]


# -- what is remembered --------------------------------------------------------------------------------------------------


@pytest.fixture
def ended(q: Queue) -> Queue:
    """A message that was forwarded, one that was cancelled, and one whose id may be used again in a minute."""
    q.given(row("old", at=NOW, given=True), now=NOW - WINDOW + 60_000)
    q.cancel("old")
    q.given(row("a", at=NOW, given=True), row("b", at=NOW + HOUR))
    q.ack(q.take_one(now=NOW))
    assert q.cancel("b") == ["cancelled"]
    return q


def known(q: Queue, now: int) -> list[str | None]:
    """How the ids ended, by what callers ask."""
    again = q.schedule(row("a", at=NOW, given=True), row("b", at=NOW + HOUR), now=now).others
    told = [q.state_of(id, now=now) for id in ("a", "b", "old")]
    assert q.cancel("a", "b", now=now) == ["delivered", "cancelled"]
    assert q.reschedule("a", f"a{now + HOUR}")[0] == "delivered"
    assert [status for status, _ in again.values()] == ["delivered", "cancelled"]
    return told


def test_a_clock_of_redis_that_jumps_ahead_forgets_nothing(ended: Queue) -> None:
    """G7: Once the next pull has seen it, callers are answered by the earlier clock, and nothing is forgotten before
    its window is over."""
    q = ended
    assert q.cancel("nobody", now=NOW + 24 * HOUR) == ["notFound"]  # before any pull has seen the jump
    q.pull(now=NOW + 24 * HOUR, node_now=NOW + 1_000)
    assert known(q, NOW + 24 * HOUR) == ["delivered", "cancelled", "cancelled"]
    q.pull(now=NOW + 2_000, node_now=NOW + 2_000)  # it is right again
    assert known(q, NOW + 2_000) == ["delivered", "cancelled", "cancelled"]


def test_while_it_is_ahead_ids_are_forgotten_at_the_end_of_their_window_all_the_same(ended: Queue) -> None:
    """G7: Nothing is kept longer than its window either."""
    q = ended
    q.pull(now=NOW + 24 * HOUR, node_now=NOW)
    assert known(q, NOW + 24 * HOUR + 59_000) == ["delivered", "cancelled", "cancelled"]
    assert known(q, NOW + 24 * HOUR + 61_000) == ["delivered", "cancelled", None]
    q.pull(now=NOW + 24 * HOUR + 61_000, node_now=NOW + 61_000)
    assert set(q.state().final) == {"a", "b"}


def test_what_ends_while_it_is_ahead_is_remembered_for_no_longer_than_the_rest(q: Queue) -> None:
    q.pull(now=NOW + 24 * HOUR, node_now=NOW)
    q.given(row("a", after=HOUR, given=True))
    assert q.cancel("a") == ["cancelled"]
    q.pull(now=NOW + 1_000, node_now=NOW + 1_000)
    assert q.state_of("a", now=NOW + WINDOW) == "cancelled"
    assert q.state_of("a", now=NOW + WINDOW + 1) is None


def test_a_second_between_two_good_clocks_is_noted_nowhere(q: Queue) -> None:
    q.pull(now=NOW, node_now=NOW - 999)
    assert q.field("ahead") is None
    q.pull(now=NOW, node_now=NOW - 1_000)
    assert q.field("ahead") == "1000"
    q.pull(now=NOW, node_now=NOW + 5_000)
    assert q.field("ahead") == "0"


# -- the watermark -------------------------------------------------------------------------------------------------------


def test_a_watermark_of_two_clocks_that_were_years_ahead_comes_down_truthfully(q: Queue) -> None:
    """G8 (both clocks were years ahead): Messages possibly handed out are cancelled as `inFlight`, later ones
    certainly, once the watermark is lowered."""
    q.given(row("held", at=NOW + HOUR), row("parked", at=NOW + HOUR + 1), now=NOW)
    held, parked = q.take(now=NOW + YEARS)
    q.park("t:mail", parked)
    q.given(row("far", at=NOW + YEARS, topic="orders"), now=NOW + YEARS)
    assert ids(q.take(now=NOW + YEARS)) == ["held", "far"]
    assert q.field("watermark") == str(NOW + YEARS)

    q.given(row("between", at=NOW + HOUR), now=NOW)
    q.pull(now=NOW)
    assert q.field("watermark") == str(NOW)
    q.given(row("new", at=NOW + HOUR), row("moved", at=NOW + HOUR))
    assert ids(q.release_set("t:mail")) == [], "it is not due"
    assert q.reschedule("moved", f"a{NOW + 2 * HOUR}")[0] == "scheduled"
    assert q.cancel("new", "moved") == ["cancelled"] * 2
    assert q.reschedule("parked", f"a{NOW + 2 * HOUR}")[0] == "parked"
    assert q.cancel("parked") == ["inFlight"]
    for one in ("held", "far", "between"):  # they were handed out, or may have been
        assert q.reschedule(one, f"a{NOW + 2 * HOUR}")[0] == "inFlight"
        assert q.cancel(one) == ["inFlight"]
    assert q.ack(held, parked) == (True, 0)


@pytest.mark.parametrize("apart", [0, 1])
def test_it_comes_down_in_pages_also_among_equal_dues(q: Queue, apart: int) -> None:
    names = [f"m{number:04}" for number in range(5_000)]
    for first in range(0, 5_000, 500):
        q.given(
            *(row(id, at=NOW + HOUR + apart * n) for n, id in enumerate(names[first : first + 500], first)), now=NOW
        )
    q.admin.hset(q.keys.state, "watermark", NOW + YEARS)
    marked = []
    for _ in range(4):
        q.pull(now=NOW)
        marked.append(q.admin.hlen(q.keys.attempts))
        if len(marked) == 1:  # what is cancelled or scheduled between two pages is answered truly
            assert int(q.field("watermark") or 0) >= NOW + HOUR
            assert q.cancel(names[0], names[3_000], names[-1]) == ["inFlight"] * 3  # one is where the next page begins
            q.given(row("later", at=NOW + YEARS + 1), row("here", at=NOW + HOUR))
            assert q.cancel("later", "here") == ["cancelled", "inFlight"]
        q.pull(now=NOW + 1, fresh=True)
    # A page begins anew among equal dues if the message where it was to begin is gone.
    assert marked == ([2_000, 3_998, 4_997, 4_997] if apart else [2_000, 2_000, 4_000, 4_997])
    assert q.field("watermark") == str(NOW)
    assert q.field("lowered_to") is None
    assert q.cancel(names[1], names[600], names[-2]) == ["inFlight"] * 3


def test_a_watermark_a_little_ahead_of_the_clock_is_left_to_time(q: Queue) -> None:
    q.given(row("a", at=NOW))
    q.take(now=NOW)
    q.pull(now=NOW - 60_000)
    assert q.field("watermark") == str(NOW)
    assert q.state().attempts == {}
