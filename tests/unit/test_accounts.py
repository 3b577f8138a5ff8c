"""What the audit says of figures that are handed in."""

from __future__ import annotations

import msgspec

from delayq.care.accounts import Accounts
from delayq.store.commands import COUNTERS, QueueStats
from tests.unit.test_findings_and_alerts import stats_of


def figures(born: str | None = "1", pool: int = 0, **counters: int) -> QueueStats:
    return stats_of(counters=dict.fromkeys(COUNTERS, 0) | counters, pool=pool, born=born)


def numbered(*figures: QueueStats) -> list[QueueStats]:
    return [msgspec.structs.replace(one, queue=queue) for queue, one in enumerate(figures)]


def test_what_agrees_is_not_worth_a_word() -> None:
    audit = Accounts()
    for one in (
        figures(None),
        figures(scheduled=9, pool=9),
        figures(scheduled=9, pool=2, delivered=3, cancelled=1, removedInFlight=1, discarded=1, writtenOff=1),
        figures(scheduled=9, pool=0, delivered=10, writtenOff=-1),
    ):
        found = audit.look(numbered(one))
        assert (found.missing, found.lost) == (0, {})


def test_messages_that_are_missing_are_told_at_every_look() -> None:
    audit = Accounts()
    for _ in range(2):
        found = audit.look(numbered(figures(), figures(scheduled=9, pool=5, delivered=1), figures(scheduled=2, pool=1)))
        assert found.missing == 4
        assert list(found.lost) == ["missing 1", "missing 2"]
        assert found.lost["missing 1"].startswith("3 messages are missing from queue 1")


def test_more_messages_than_were_scheduled_are_told_and_do_not_make_up_for_missing_ones() -> None:
    found = Accounts().look(numbered(figures(scheduled=3), figures(pool=3)))
    assert found.missing == 3
    assert "3 messages more than were scheduled" in found.lost["missing 1"]


def test_a_queue_that_was_deleted_is_told_until_its_data_are_back() -> None:
    audit = Accounts()
    before = figures("1", scheduled=9, pool=9)
    for emptied in (figures(None), figures("2"), figures("2", scheduled=50, pool=50)):
        assert audit.look(numbered(before)).lost == {}
        for _ in range(2):
            assert (
                audit.look(numbered(emptied))
                .lost["gone"]
                .startswith("queue 0 is not what this process has seen before")
            )
    assert audit.look(numbered(before)).lost == {}
    # All that were deleted are told in one sentence. A queue that is claimed for the first time is no other one.
    audit = Accounts()
    assert audit.look(numbered(figures(None, scheduled=1, pool=1), figures("1"), figures("1"))).lost == {}
    assert audit.look(numbered(figures("1", scheduled=1, pool=1), figures("1"), figures("1"))).lost == {}
    found = audit.look(numbered(figures("1", scheduled=1, pool=1), figures(None), figures("3")))
    assert found.lost["gone"].startswith("2 queues (1 and others) are not what")
