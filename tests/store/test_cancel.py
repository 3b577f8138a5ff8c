"""A cancel removes what has not ended, and says truly whether it may have been delivered: see also test_states."""

from __future__ import annotations

from delayq.store.commands import Parked, Retention
from tests.support.final import FORWARDED, ended
from tests.support.queues import NEW_EPOCH, Queue, State, row


def test_a_cancel_removes_only_its_messages_and_answers_in_order(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k1", "k2")), row("b", at=20_000, keys=("k1",)))
    assert q.cancel("x", "a", "a", "y", now=19_999) == ["notFound", "cancelled", "cancelled", "notFound"]
    assert q.state() == State(queue={"b": 20_000}, keys={"k1": ["b"]}, final={"a": ("cancelled", 19_999)})
    assert q.field("cancelled") == "1"
    assert q.take(now=30_000)[0].id == "b"


def test_what_lies_below_the_watermark_counts_as_in_flight_and_what_lies_above_does_not(q: Queue) -> None:
    q.given(row("pulled", at=20_000))
    q.pull(now=20_000)
    q.given(row("at", at=20_000), row("above", at=20_001), now=15_000)
    assert q.cancel("at", "above") == ["inFlight", "cancelled"]


def test_a_message_cancelled_in_flight_cannot_be_settled_any_more(q: Queue) -> None:
    q.given(row("a", at=20_000, given=True, keys=("k",)))
    one = q.take_one(now=20_000)
    q.cancel("a")
    assert q.retry((one, 30_000)) == ["gone"]
    assert q.bury(one) == ["gone"]
    assert q.park("t:kafka", one) == Parked(None)
    assert q.ack(one) == q.ack(one, epoch=NEW_EPOCH) == (True, 0)
    assert q.state() == State(final={"a": ("cancelled in flight", 20_000)})  # an ack never overwrites a cancel


# -- how long an ending is remembered ------------------------------------------------------------------------------------


def test_the_same_again_gives_the_same_within_the_window(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("hard", at=90_000), row("soft", at=20_000), row("sent", at=20_000, given=True))
    q.ack(next(one for one in q.take(now=20_000) if one.id == "sent"))
    told = ["cancelled", "inFlight", "delivered"]
    assert q.cancel("hard", "soft", "sent", now=20_000) == told
    before = q.state()
    assert q.cancel("hard", "soft", "sent", now=21_000) == told
    assert q.state() == before
    assert q.cancel("hard", "soft", "sent", now=21_001) == ["notFound"] * 3


def test_the_oldest_endings_are_forgotten_beyond_the_most_that_is_kept(q: Queue) -> None:
    q.retention = Retention(most=3)
    for number in range(5):
        q.given(row(f"m{number}", at=90_000), now=10_000 + number)
        q.cancel(f"m{number}")
    assert list(q.state().final) == ["m2", "m3", "m4"]
    q.retention = Retention(most=2)
    q.given(*(row(id, at=20_000, given=True) for id in "abc"))
    a, b, c = q.take(now=20_000)
    for now, one in enumerate((c, a, b), start=20_000):  # acks forget as well
        q.ack(one, now=now)
    assert q.state().final == {"a": ("forwarded", 20_001), "b": ("forwarded", 20_002)}


def test_endings_older_than_the_window_are_trimmed_by_a_pull_some_at_a_time(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=90_000), row("b", at=90_000))
    q.cancel("a", now=10_000)
    q.cancel("b", now=11_001)
    assert len(q.state().final) == 2  # a caller knows one clock only
    q.pull()
    assert q.state().final == {"b": ("cancelled", 11_001)}
    q.admin.zadd(q.keys.final, {f"old{number}": ended(number, FORWARDED) for number in range(5_000)})
    q.pull()
    assert q.admin.zcard(q.keys.final) == 3_001
