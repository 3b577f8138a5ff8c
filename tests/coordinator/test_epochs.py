"""Epochs are texts that Redis compares as texts: their order is that of (era, number, owner)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.epoch import draw_owner, epoch_text, next_epoch

ERAS = st.integers(0, 10**9)
NUMBERS = st.integers(0, 2**64 - 2)
OWNERS = st.integers(0, 10**10 - 1)
EPOCHS = st.tuples(ERAS, NUMBERS, OWNERS)


@given(EPOCHS, EPOCHS)
def test_the_order_of_the_texts_is_that_of_era_number_and_owner(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    first, second = epoch_text(*one), epoch_text(*other)
    assert len(first) == len(second)
    assert (first < second) == (one < other)
    assert (first == second) == (one == other)


@given(EPOCHS, ERAS, OWNERS)
def test_the_next_epoch_is_above_the_stored_one_in_whatever_era(
    stored_is: tuple[int, int, int], era: int, owner: int
) -> None:
    stored = epoch_text(*stored_is)
    assert next_epoch(stored, era, owner) > stored
    assert next_epoch(stored, era, owner) >= epoch_text(era, 1, owner) or era < stored_is[0]


def test_in_its_own_era_the_number_grows_by_one_and_in_a_new_one_it_begins_anew() -> None:
    assert next_epoch(None, 4, 7) == epoch_text(4, 1, 7)
    assert next_epoch(epoch_text(4, 9, 7), 4, 5) == epoch_text(4, 10, 5)
    assert next_epoch(epoch_text(4, 9, 7), 5, 5) == epoch_text(5, 1, 5)
    assert next_epoch(epoch_text(5, 9, 7), 4, 5) == epoch_text(5, 10, 5)
    two = {next_epoch(epoch_text(4, 9, 7), 4, draw_owner()) for _ in range(2)}
    assert len(two) == 2, "two nodes reckon different ones from the same"
