"""What is known of a server's clock, and the deadlines that follow from it."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from delayq.store.connect.peer import ASK_EVERY, Peer, late_by
from delayq.testing import ManualClock

THERE = 1_800_000_000_000


def asked(peer: Peer, clock: ManualClock, time: int, way: int = 0, back: int = 0) -> None:
    """Ask, and hear after `way` + `back` ms that it was `time` there after `way`."""
    question = peer.ask()
    clock.advance(way + back)
    question.read([str(time // 1000).encode(), str(time % 1000 * 1000).encode()])


def test_a_deadline_is_no_later_than_the_caller_waits() -> None:
    clock = ManualClock()
    peer = Peer(2, clock)
    assert (peer.stale, peer.deadline()) == (True, "")
    asked(peer, clock, THERE, way=30, back=10)
    assert not peer.stale
    assert peer.deadline() == THERE + 2_000 - 1
    clock.advance(ASK_EVERY - 41)
    assert not peer.stale
    clock.advance(1)
    assert peer.stale


def test_an_unanswered_question_makes_nothing_fresh_and_a_broken_connection_keeps_its_deadline() -> None:
    clock = ManualClock()
    peer = Peer(2, clock)
    asked(peer, clock, THERE)
    clock.advance(ASK_EVERY)
    peer.ask()
    assert peer.stale
    asked(peer, clock, THERE)
    peer.forget()
    assert (peer.stale, peer.deadline()) == (True, THERE + 2_000 - 1)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 2_000)), min_size=1))
def test_the_newest_answer_alone_counts(ways: list[tuple[int, int, int]]) -> None:
    clock = ManualClock()
    peer = Peer(2, clock)
    for way, back, pause in ways:
        asked(peer, clock, THERE + clock.monotonic() + way, way, back)
        assert peer.deadline() == THERE + clock.monotonic() + 2_000 - back - 1
        clock.advance(pause)


@pytest.mark.parametrize("step", [-3_600_000, -500, 500, 3_600_000])
def test_a_clock_that_steps_is_believed_at_the_next_answer(step: int) -> None:
    clock = ManualClock()
    peer = Peer(2, clock)
    asked(peer, clock, THERE, back=5)
    asked(peer, clock, THERE + 605 + step, way=600)  # so slow that a small step does not show
    assert peer.deadline() == THERE + 605 + step + 2_000 - 1


def test_a_refusal_tells_the_time() -> None:
    clock = ManualClock()
    peer = Peer(2, clock)
    asked(peer, clock, THERE)
    clock.advance(100)
    peer.learn(THERE + 40)  # its reply took 60 ms
    assert peer.deadline() == THERE + 40 + 2_000 - 1
    peer.learn(THERE + 3_600_000)
    assert peer.deadline() == THERE + 3_600_000 + 2_000 - 1


def test_only_a_refusal_for_lateness_is_one() -> None:
    assert late_by(redis.exceptions.ResponseError("EXPIRED 1800000000000")) == THERE
    assert late_by(redis.exceptions.ResponseError("ERR EXPIRED 1")) is None
    assert late_by(redis.exceptions.ConnectionError("EXPIRED 1")) is None
