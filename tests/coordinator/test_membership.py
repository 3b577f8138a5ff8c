"""Who takes part, by what the nodes say of themselves."""

from __future__ import annotations

from coordinator import REDIS_AWAY
from coordinator.zookeeper.crash_loop import count_start, forget_starts
from coordinator.zookeeper.membership import HOLD, SPAN, Entry, Flaps, Link, decode, encode, taking_part
from delayq.testing import ManualClock

FINE, TROUBLE, LOST = Entry(), Entry(redis="trouble"), Entry(redis="lost")
LATE, A_LITTLE_LATE = Entry(clock="lost"), Entry(clock="trouble")
FLAPS = Entry(hold_until=1_000)


#: Entries, and the nodes that take part.
TAKING_PART: list[tuple[dict[str, Entry], str]] = [
    ({"a": FINE, "b": FINE}, "ab"),
    ({"a": FINE, "b": LOST}, "a"),
    ({"a": FINE, "b": TROUBLE}, "ab"),
    ({"a": TROUBLE, "b": LOST}, "ab"),  # nobody is known to reach Redis: it is not b's own fault
    ({"a": LOST, "b": LOST}, "ab"),
    ({"a": FINE, "b": FLAPS}, "a"),
    ({"a": FLAPS, "b": FLAPS}, "ab"),
    ({"a": FLAPS, "b": LOST}, "a"),  # better one that flaps than one that cannot work
    ({"a": FLAPS}, "a"),
    ({"a": FINE, "b": LATE}, "a"),
    ({"a": FINE, "b": A_LITTLE_LATE}, "ab"),
    ({"a": A_LITTLE_LATE, "b": LATE}, "ab"),  # it may be the clock of Redis that is wrong
    ({"a": LATE, "b": LATE}, "ab"),
    ({"a": LOST, "b": LATE}, "b"),  # better late than never
    ({}, ""),
]


def test_a_node_that_does_worse_than_others_is_left_out() -> None:
    for entries, expected in TAKING_PART:
        assert taking_part(entries) == set(expected), entries


def test_an_entry_is_read_as_it_was_written_and_one_that_cannot_be_read_is_that_of_a_healthy_node() -> None:
    entry = Entry(address="10.0.0.1:1", version="1", since=5, redis="trouble", hold_until=7)
    assert decode(encode(entry)) == entry
    for data in (b"", b"plain text", b'{"redis": "in a way of a later version"}', b"\xff"):
        assert decode(data) == Entry()
    assert decode(b'{"address": "here", "colour": "red"}') == Entry(address="here")


#: How long a link has to be well until it is so again; whether it is well, after how many ms it tells so, and its state.
LINKS: list[tuple[int, list[tuple[bool, int, str]]]] = [
    (
        0,  # it is lost only when it was out of reach all the time
        [
            (False, 0, "trouble"),
            (False, REDIS_AWAY - 1, "trouble"),
            (True, 0, "ok"),
            (False, REDIS_AWAY, "trouble"),
            (False, REDIS_AWAY, "lost"),
            (True, 0, "ok"),
        ],
    ),
    (
        30_000,
        [
            (False, 0, "trouble"),
            (True, 1, "ok"),  # it was never lost
            (False, 0, "trouble"),
            (False, REDIS_AWAY, "lost"),
            (True, 1, "lost"),
            (True, 29_999, "lost"),
            (False, 1, "lost"),
            (True, 1, "lost"),
            (True, 29_999, "lost"),
            (True, 1, "ok"),
        ],
    ),
]


def test_a_link_is_lost_and_right_again_when_it_has_been_so_for_a_while() -> None:
    for steady, steps in LINKS:
        clock = ManualClock()
        link = Link(clock, steady=steady)
        assert link.state == "ok"
        for good, after, state in steps:
            clock.advance(after)
            link.record(good)
            assert link.state == state


def test_a_round_that_takes_long_is_no_proof_that_redis_is_lost() -> None:
    """As one that claims many queues of a slow Redis, after a first question that had no answer."""
    clock = ManualClock()
    link = Link(clock)
    link.record(False)
    clock.advance(10 * REDIS_AWAY)
    assert link.state == "trouble", "nobody has looked since"


def test_three_lost_sessions_within_a_minute_are_a_flap() -> None:
    clock = ManualClock()
    flaps = Flaps(clock)
    flaps.lost()
    clock.advance(SPAN - 1)
    flaps.lost()
    assert flaps.hold_until == 0
    clock.advance(2)
    flaps.lost()  # the first one is too long ago
    assert flaps.hold_until == 0
    clock.advance(SPAN - 3)
    flaps.lost()
    assert flaps.hold_until == clock.now() + HOLD
    clock.advance(HOLD - 1)
    clock.set_now(clock.now() + HOLD)
    assert flaps.hold_until, "a clock that steps does not end it"
    clock.set_now(clock.now() - 2 * HOLD)
    clock.advance(1)
    assert flaps.hold_until == 0, "or make it longer"


def test_a_node_that_was_started_a_fourth_time_within_a_minute_is_left_out_for_a_minute() -> None:
    data, now = b"", 1_800_000_000_000
    for start in (0, 15_000, 30_000):
        data, hold_until = count_start(data, "one", now + start)
        assert hold_until == 0
    again, hold_until = count_start(data, "one", now + 60_000)
    assert hold_until == now + 120_000
    assert count_start(again, "one", now + 60_000) == (again, hold_until)  # the same start, told again
    assert count_start(again, "other", now + 60_000)[1] == 0
    assert count_start(data, "one", now + 60_001)[1] == 0  # the first one is too long ago


def test_a_node_that_stops_in_order_forgets_its_starts_and_nobody_elses() -> None:
    data, now = b"", 1_800_000_000_000
    for name in ("one", "other"):
        for start in range(3):
            data, _ = count_start(data, name, now + start)
    data = forget_starts(data, "one", now)
    assert count_start(data, "one", now + 9)[1] == 0
    assert count_start(data, "other", now + 9)[1] > 0
    assert count_start(b"{", "one", 7) == (b'{"one":[7]}', 0), "what cannot be read counts as none"
    assert forget_starts(b"", "one", 7) == b"{}"
