"""What is known of a server's clock, and the deadlines that follow from it."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from delayq.store.connect.server_state import ASK_EVERY, ServerState, late_by
from delayq.testing import ManualClock

THERE = 1_800_000_000_000


def asked(state: ServerState, clock: ManualClock, time: int, way: int = 0, back: int = 0) -> None:
    """Ask, and hear after `way` + `back` ms that it was `time` there after `way`."""
    question = state.ask()
    clock.advance(way + back)
    question.read([str(time // 1000).encode(), str(time % 1000 * 1000).encode()])


def test_a_deadline_is_no_later_than_the_caller_waits() -> None:
    clock = ManualClock()
    state = ServerState(2, clock)
    assert (state.stale, state.deadline()) == (True, "")
    asked(state, clock, THERE, way=30, back=10)
    assert not state.stale
    assert state.deadline() == THERE + 2_000 - 1
    clock.advance(ASK_EVERY - 41)
    assert not state.stale
    clock.advance(1)
    assert state.stale


def test_an_unanswered_question_makes_nothing_fresh_and_a_broken_connection_keeps_its_deadline() -> None:
    clock = ManualClock()
    state = ServerState(2, clock)
    asked(state, clock, THERE)
    clock.advance(ASK_EVERY)
    state.ask()
    assert state.stale
    asked(state, clock, THERE)
    state.forget()
    assert (state.stale, state.deadline()) == (True, THERE + 2_000 - 1)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 2_000)), min_size=1))
def test_the_newest_answer_alone_counts(ways: list[tuple[int, int, int]]) -> None:
    clock = ManualClock()
    state = ServerState(2, clock)
    for way, back, pause in ways:
        asked(state, clock, THERE + clock.monotonic() + way, way, back)
        assert state.deadline() == THERE + clock.monotonic() + 2_000 - back - 1
        clock.advance(pause)


@pytest.mark.parametrize("step", [-3_600_000, -500, 500, 3_600_000])
def test_a_clock_that_steps_is_believed_at_the_next_answer(step: int) -> None:
    clock = ManualClock()
    state = ServerState(2, clock)
    asked(state, clock, THERE, back=5)
    asked(state, clock, THERE + 605 + step, way=600)  # so slow that a small step does not show
    assert state.deadline() == THERE + 605 + step + 2_000 - 1


def test_a_refusal_tells_the_time() -> None:
    clock = ManualClock()
    state = ServerState(2, clock)
    asked(state, clock, THERE)
    clock.advance(100)
    state.learn(THERE + 40)  # its reply took 60 ms
    assert state.deadline() == THERE + 40 + 2_000 - 1
    state.learn(THERE + 3_600_000)
    assert state.deadline() == THERE + 3_600_000 + 2_000 - 1


def test_only_a_refusal_for_lateness_is_one() -> None:
    assert late_by(redis.exceptions.ResponseError("EXPIRED 1800000000000")) == THERE
    assert late_by(redis.exceptions.ResponseError("ERR EXPIRED 1")) is None
    assert late_by(redis.exceptions.ConnectionError("EXPIRED 1")) is None
