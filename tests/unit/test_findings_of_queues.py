"""Which queue has more messages than its share."""

from __future__ import annotations

import pytest

from delayq.client.findings.facts import LEAST_FULL, fullest
from delayq.client.findings.queues import is_chosen
from delayq.store.keys import Layout, new_id
from tests.unit.test_findings_and_alerts import stats_of


@pytest.mark.parametrize(
    ("pools", "full"),
    [
        ([LEAST_FULL, 0, 0, 0], 0),
        ([0, 0, 0, LEAST_FULL - 1], None),
        ([LEAST_FULL] * 4, None),
        ([10 * LEAST_FULL, LEAST_FULL, LEAST_FULL, LEAST_FULL], 0),
        ([5 * LEAST_FULL, LEAST_FULL, LEAST_FULL, LEAST_FULL], None),
        ([LEAST_FULL, 0], None),
        ([], None),
    ],
)
def test_a_queue_is_full_by_its_share_of_all_messages(pools: list[int], full: int | None) -> None:
    stats = [stats_of(queue=number, pool=pool) for number, pool in enumerate(pools)]
    found = fullest([Layout(len(pools))] if pools else [], stats)
    assert (None if found is None else found.queue) == full


def test_queues_of_former_layouts_do_not_count() -> None:
    stats = [stats_of(queue=number, pool=LEAST_FULL * (number == 0)) for number in range(8)]
    assert fullest([Layout(4), Layout(4, 4)], stats) is None


def test_an_id_that_a_caller_gave_is_told_from_a_generated_one_by_its_form() -> None:
    chosen = {"invoice-17.2026": True, "host-3.cafe": True, "a.b.0001": True, "invoice-17-2026": False, "a.2O26": False}
    assert {id: is_chosen(id) for id in chosen} == chosen
    assert not is_chosen(new_id() + Layout.random_suffix())
