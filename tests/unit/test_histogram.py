from __future__ import annotations

import random

import pytest

from delayq.spark.jobs.histogram import MOST, SHOWN, DueHistogram

DAY = 86_400_000


def filled(dues: list[int]) -> DueHistogram:
    made = DueHistogram()
    for due in dues:
        made.add(due)
    return made


@pytest.mark.parametrize("span", [1, 60_000, DAY, 400 * DAY, 115_000 * DAY])
def test_all_are_counted_in_a_bounded_number_of_steps(span: int) -> None:
    dues = [random.Random(n).randrange(span) for n in range(5_000)] + [0, span - 1]
    made = filled(dues)
    rows = made.rows()
    assert sum(count for _, count in rows) == len(dues)
    assert len(rows) <= SHOWN
    assert len(made.counts) <= MOST
    assert rows[0][0] <= 0 and rows[-1][0] <= span - 1
    for begin, count in rows[:1]:
        width = rows[1][0] - begin if len(rows) > 1 else made.width
        assert count == sum(begin <= due < begin + width for due in dues)


def test_dues_of_some_seconds_are_counted_by_the_second_and_two_put_together_are_as_one() -> None:
    assert filled([10_000, 10_999, 12_000]).rows() == [(10_000, 2), (11_000, 0), (12_000, 1)]
    assert DueHistogram().rows() == []
    fine, wide = [n * 1_000 for n in range(100)], [n * DAY for n in range(2_000)]
    for first, second in ((fine, wide), (wide, fine)):
        merged = filled(first)
        merged.merge(filled(second))
        assert merged.rows() == filled(first + second).rows()
