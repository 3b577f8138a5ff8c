from __future__ import annotations

from delayq.store.commands import Parked, Retention
from tests.support.final import FORWARDED, ended
from tests.support.queues import NEW_EPOCH, Queue, State, row


def test_a_message_that_was_never_pulled_and_is_not_due_is_cancelled_for_certain(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k1", "k2")), row("b", at=20_000, keys=("k1",)))
    assert q.cancel("a", now=19_999) == ["cancelled"]
    assert q.state() == State(queue={"b": 20_000}, keys={"k1": ["b"]}, final={"a": ("cancelled", 19_999)})
    assert q.take(now=30_000)[0].id == "b"


def test_a_due_message_may_be_in_flight(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.cancel("a", now=20_000) == ["in_flight"]
    assert q.state() == State(final={"a": ("cancelled in flight", 20_000)})


def test_what_was_pulled_may_be_in_flight_even_if_the_clock_steps_back(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.pull(now=20_000)
    assert q.cancel("a", now=15_000) == ["in_flight"]


def test_what_lies_below_the_watermark_counts_as_in_flight_and_what_lies_above_does_not(q: Queue) -> None:
    q.given(row("pulled", at=20_000))
    q.pull(now=20_000)
    q.given(row("at", at=20_000), row("above", at=20_001), now=15_000)
    assert q.cancel("at", "above") == ["in_flight", "cancelled"]


def test_a_retrying_message_was_in_flight_before(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    q.retry((q.take_one(now=20_000), 90_000))
    assert q.cancel("a", now=20_001) == ["in_flight"]
    assert q.state() == State(final={"a": ("cancelled in flight", 20_001)})


def test_a_parked_message_is_removed_and_may_have_been_in_flight(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    q.park("t:kafka", q.take_one(now=20_000))
    assert q.cancel("a") == ["in_flight"]
    assert q.state() == State(orphans={"a"}, final={"a": ("cancelled in flight", 20_000)})


def test_a_redriven_message_is_exposed_though_it_has_no_attempts(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.bury(q.take_one(now=20_000))
    q.redrive("a", now=30_000)
    assert q.record("a").asked == 30_000
    assert q.cancel("a", now=29_000) == ["in_flight"]


def test_a_dead_letter_stays_dead(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.bury(q.take_one(now=20_000))
    before = q.state()
    assert q.cancel("a") == ["dead"]
    assert q.state() == before


def test_a_delivered_message_says_so_within_the_window(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000, given=True))
    q.ack(q.take_one(now=20_000))
    assert q.cancel("a", now=21_000) == ["delivered"]
    assert q.cancel("a", now=21_001) == ["not_found"]


def test_the_same_again_gives_the_same_within_the_window(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("hard", at=90_000), row("soft", at=20_000))
    assert q.cancel("hard", "soft", now=20_000) == ["cancelled", "in_flight"]
    before = q.state()
    assert q.cancel("hard", "soft", now=21_000) == ["cancelled", "in_flight"]
    assert q.state() == before
    assert q.cancel("hard", "soft", now=21_001) == ["not_found", "not_found"]


def test_unknown_ids_are_not_found(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.cancel("b", "a", "c") == ["not_found", "cancelled", "not_found"]


def test_an_id_twice_in_one_call_gets_the_same_answer_twice(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.cancel("a", "a") == ["cancelled", "cancelled"]
    assert q.field("cancelled") == "1"


def test_a_message_cancelled_in_flight_cannot_be_settled_any_more(q: Queue) -> None:
    q.given(row("a", at=20_000, given=True, keys=("k",)))
    one = q.take_one(now=20_000)
    q.cancel("a")
    cancelled = State(final={"a": ("cancelled in flight", 20_000)})
    assert q.retry((one, 30_000)) == ["gone"]
    assert q.bury(one) == ["gone"]
    assert q.park("t:kafka", one) == Parked("", None)
    assert q.ack(one) == (True, 0)
    assert q.ack(one, epoch=NEW_EPOCH) == (True, 0)
    assert q.state() == cancelled  # an ack never overwrites a cancel


def test_the_oldest_endings_are_forgotten_beyond_the_most_that_is_kept(q: Queue) -> None:
    q.retention = Retention(most=3)
    for number in range(5):
        q.given(row(f"m{number}", at=90_000), now=10_000 + number)
        q.cancel(f"m{number}")
    assert list(q.state().final) == ["m2", "m3", "m4"]


def test_endings_older_than_the_window_are_trimmed(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=90_000), row("b", at=90_000))
    q.cancel("a", now=10_000)
    q.cancel("b", now=11_001)
    assert len(q.state().final) == 2  # a caller goes by one clock alone
    q.pull()
    assert q.state().final == {"b": ("cancelled", 11_001)}


def test_trimming_is_bounded(q: Queue) -> None:
    q.admin.zadd(q.keys.final, {f"old{number}": ended(number, FORWARDED) for number in range(5_000)})
    q.pull(now=10_000_000)
    assert q.admin.zcard(q.keys.final) == 3_000
