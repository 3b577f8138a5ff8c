from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.sending.backoff import Backoff

backoffs = st.builds(Backoff, base=st.integers(1, 10**7), cap=st.integers(1, 10**9))


@given(backoffs, st.integers(1, 10_000))
def test_a_delay_lies_in_the_upper_half_of_the_doubled_base_and_never_beyond_the_cap(
    backoff: Backoff, failed: int
) -> None:
    full = min(backoff.cap, backoff.base * 2 ** (failed - 1))
    delay = backoff.delay(failed)
    assert delay >= 1
    assert full // 2 <= delay <= max(1, full)


@given(backoffs)
def test_what_failed_together_does_not_come_back_together(backoff: Backoff) -> None:
    if min(backoff.base, backoff.cap) >= 10_000:
        assert len({backoff.delay(1) for _ in range(20)}) > 1


def test_the_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(base=100, cap=1_000)
    highest = [max(backoff.delay(failed) for _ in range(500)) for failed in range(1, 7)]
    for seen, bound in zip(highest, (100, 200, 400, 800, 1_000, 1_000), strict=True):
        assert bound * 0.9 < seen <= bound
