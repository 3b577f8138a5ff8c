"""Epochs are texts that Redis compares as texts: their order is that of (era, number)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.epoch import epoch_text, next_epoch

ERAS = st.integers(0, 10**9)
NUMBERS = st.integers(0, 2**64 - 2)


@given(ERAS, NUMBERS, ERAS, NUMBERS)
def test_the_order_of_the_texts_is_that_of_era_and_number(a: int, m: int, b: int, n: int) -> None:
    first, second = epoch_text(a, m), epoch_text(b, n)
    assert len(first) == len(second)
    assert (first < second) == ((a, m) < (b, n))
    assert (first == second) == ((a, m) == (b, n))


@given(ERAS, NUMBERS, ERAS)
def test_the_next_epoch_is_above_the_stored_one_in_whatever_era(stored_era: int, number: int, era: int) -> None:
    stored = epoch_text(stored_era, number)
    assert next_epoch(stored, era) > stored
    assert next_epoch(stored, era) >= epoch_text(era, 1) or era < stored_era


def test_the_first_epoch_of_a_queue_is_number_one_of_its_era() -> None:
    assert next_epoch(None, 4) == epoch_text(4, 1)


def test_in_its_own_era_the_number_grows_by_one_and_in_a_new_one_it_begins_anew() -> None:
    assert next_epoch(epoch_text(4, 9), 4) == epoch_text(4, 10)
    assert next_epoch(epoch_text(4, 9), 5) == epoch_text(5, 1)
    assert next_epoch(epoch_text(5, 9), 4) == epoch_text(5, 10)
