"""The timers of a node: each duty in its own time, and none that fails keeps the others from theirs."""

from __future__ import annotations

import pytest

from delayq.base.errors import StoreRefused, StoreUnavailable
from delayq.testing import ManualClock
from workers.node.duties.timers import Timer, run_timers


def test_a_duty_is_done_at_once_then_once_in_its_time_and_sooner_if_there_is_a_reason(clock: ManualClock) -> None:
    done: list[int] = []
    news: list[str] = []
    began = clock.monotonic()
    duty = Timer(clock, 1_000, lambda: done.append(clock.monotonic() - began), sooner=lambda: bool(news))
    late = Timer(clock, 1_000, lambda: done.append(-1), first=5_000)
    for wait in (0, 999, 1, 300, 999, 1):
        clock.advance(wait)
        duty.run()
        late.run()
        if clock.monotonic() - began == 1_000:
            news.append("a circuit opened")
        elif news:
            news.pop()
    assert done == [0, 1_000, 1_300, 2_300]
    clock.advance(60_000)  # the process stood still: it is not made up for
    duty.run()
    late.run()
    duty.run()
    late.run()
    assert done[4:] == [62_300, -1]


def test_a_duty_that_fails_waits_for_its_next_time(clock: ManualClock) -> None:
    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        raise StoreRefused("no")

    duty = Timer(clock, 1_000, fail)
    with pytest.raises(StoreRefused):
        duty.run()
    duty.run()
    clock.advance(1_000)
    with pytest.raises(StoreRefused):
        duty.run()
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("error", "others"),
    [(StoreRefused("it may not"), True), (ValueError("a bug"), True), (StoreUnavailable("it is away"), False)],
)
def test_a_duty_that_fails_keeps_none_from_its_time_unless_redis_is_away(
    clock: ManualClock, error: Exception, others: bool
) -> None:
    done: list[str] = []

    def fail() -> None:
        raise error

    run_timers([Timer(clock, 0, fail), Timer(clock, 0, lambda: done.append("the line"))])
    assert (done == ["the line"]) == others
