"""A target of which a send costs more than a message: while one is under way, messages wait a little for company."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq.testing import MemoryTarget
from tests.support.waiting import eventually
from tests.workers.test_threads import Desk

GATHER = 10


class Gathering(MemoryTarget):
    """Takes four messages at once."""

    gather = GATHER


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Three threads, of which one hangs in a send."""
    desk = Desk(threads=3, target=Gathering(max_batch=4))
    desk.forwarder.start()
    desk.target.answer("hang", id="h")
    desk.submit("h")
    desk.target.wait_for_hanging(1)
    yield desk
    desk.close()


def test_what_comes_while_something_is_sent_goes_together_as_soon_as_that_ends(desk: Desk) -> None:
    for id in ("a", "b", "c"):
        desk.submit(id)
    desk.clock.wait_for_waiters(2)
    assert desk.target.batches == [1]
    desk.target.release()
    assert desk.wait_for_reports(4)["c"] == ["ok"]
    assert desk.target.batches == [1, 3]


def test_it_waits_no_longer_than_the_target_says(desk: Desk) -> None:
    desk.submit("a")
    desk.clock.advance(1)
    desk.submit("b")
    desk.clock.advance(GATHER - 2)
    desk.clock.wait_for_waiters(2)
    assert desk.target.batches == [1]
    desk.clock.advance(1)
    assert desk.wait_for_reports(2) == {"a": ["ok"], "b": ["ok"]}
    assert desk.target.batches == [1, 2]


def test_as_many_as_a_send_takes_do_not_wait_and_what_is_left_gathers_anew(desk: Desk) -> None:
    for id in ("a", "b", "c", "d"):
        desk.submit(id)
    assert set(desk.wait_for_reports(4)) == {"a", "b", "c", "d"}
    desk.submit("e")
    desk.clock.wait_for_waiters(2)
    assert desk.target.batches == [1, 4]
    desk.clock.advance(GATHER)
    assert desk.wait_for_reports(5)["e"] == ["ok"]


def test_what_comes_while_nothing_is_sent_goes_at_once(desk: Desk) -> None:
    desk.submit("a")
    desk.target.release()
    eventually(lambda: not desk.forwarder.busy, "nothing is under way")
    desk.submit("b")  # one thread may still keep the time for what went with the first send's end
    assert desk.wait_for_reports(3)["b"] == ["ok"]


def test_what_gathers_is_sent_when_the_forwarder_stops(desk: Desk) -> None:
    desk.submit("a")
    desk.forwarder.stop()
    assert desk.wait_for_reports(1) == {"a": ["ok"]}


def test_by_default_nothing_waits() -> None:
    desk = Desk(threads=2, max_batch=4)
    desk.forwarder.start()
    desk.target.answer("hang", id="h")
    desk.submit("h")
    desk.target.wait_for_hanging(1)
    desk.submit("a")
    assert desk.wait_for_reports(1) == {"a": ["ok"]}
    desk.close()
