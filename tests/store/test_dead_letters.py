from __future__ import annotations

from delayq.store.commands import Retention
from tests.support.queues import Queue, State, row


def bury(q: Queue, *names: str, at: int = 20_000) -> None:
    """Dead letters to begin with, buried at the time of their due."""
    q.given(*(row(name, at=at, keys=("k",)) for name in names))
    q.bury(*q.take(now=at), reason="no such user")


# -- pages ---------------------------------------------------------------------------------------------------------------


def test_dead_letters_come_oldest_first_with_their_reasons(q: Queue) -> None:
    bury(q, "b")
    bury(q, "a", at=30_000)
    letters = q.dead_letters()
    assert [(one.id, one.buried, one.attempts, one.reason) for one in letters] == [
        ("b", 20_000, 1, "no such user"),
        ("a", 30_000, 1, "no such user"),
    ]
    assert letters[0].record is not None
    assert letters[0].record.body == "body"


def test_pages_follow_each_other_through_equal_times(q: Queue) -> None:
    bury(q, *"abcde")
    bury(q, "f", at=30_000)
    seen: list[str] = []
    after: tuple[int, str] | None = None
    while page := q.dead_letters(2, after):
        assert len(page) <= 2
        seen += [one.id for one in page]
        after = (page[-1].buried, page[-1].id)
    assert seen == list("abcdef")


def test_a_page_goes_on_when_the_last_letter_seen_is_gone(q: Queue) -> None:
    bury(q, *"abc")
    bury(q, "d", at=30_000)
    q.discard("b")
    assert [one.id for one in q.dead_letters(10, (20_000, "a"))] == ["c", "d"]
    # Its place among equal times is not known any more: nothing may be missed, so some come twice.
    assert [one.id for one in q.dead_letters(10, (20_000, "b"))] == ["a", "c", "d"]


def test_a_letter_redriven_and_buried_again_is_not_mistaken_for_the_one_seen(q: Queue) -> None:
    bury(q, "a", "b")
    q.redrive("a", now=30_000)
    q.bury(*q.take(now=30_000))
    assert [one.id for one in q.dead_letters(10, (20_000, "a"))] == ["b", "a"]


def test_a_letter_whose_record_is_gone_or_corrupt_is_listed_all_the_same(q: Queue) -> None:
    bury(q, "a", "b")
    q.admin.hdel(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "b", "???")
    assert [(one.id, one.record) for one in q.dead_letters()] == [("a", None), ("b", None)]


# -- redrive -------------------------------------------------------------------------------------------------------------


def test_a_redriven_letter_is_due_now_under_a_new_generation_and_exposed(q: Queue) -> None:
    bury(q, "a")
    generation = q.record("a").generation
    assert q.redrive("a", now=30_000) == ["scheduled"]
    assert q.state() == State(queue={"a": 30_000}, attempts={"a": 0}, keys={"k": ["a"]})
    record = q.record("a")
    assert (record.asked, record.body) == (30_000, "body")
    assert record.generation > generation
    assert q.take_one().attempts == 0


def test_redriving_twice_says_the_same_until_it_is_tried(q: Queue) -> None:
    bury(q, "a")
    assert q.redrive("a", "a", "unknown", now=30_000) == ["scheduled", "scheduled", "not_dead"]
    before = q.state(), q.fields()
    assert q.redrive("a", now=31_000) == ["scheduled"]
    assert (q.state(), q.fields()) == before
    q.retry((q.take_one(now=31_000), 40_000))
    assert q.redrive("a", now=32_000) == ["not_dead"]  # it has been tried since


def test_a_live_message_cannot_be_redriven(q: Queue) -> None:
    q.given(row("a", at=20_000))
    before = q.state(), q.fields()
    assert q.redrive("a") == ["not_dead"]
    assert (q.state(), q.fields()) == before


def test_a_corrupt_letter_stays_where_it_is(q: Queue) -> None:
    bury(q, "a")
    raw: bytes = q.admin.hget(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "a", raw[:-1])
    before = q.state()
    assert q.redrive("a", now=30_000) == ["corrupt"]
    assert q.state() == before


def test_expiry_counts_anew_from_the_time_of_the_redrive(q: Queue) -> None:
    q.given(row("a", at=20_000, expire_after=500))
    q.bury(q.take_one(now=21_000), reason="expired")
    q.redrive("a", now=30_000)
    assert q.record("a").expires_at == 30_500


def test_a_redriven_letter_keeps_whether_its_id_is_remembered(q: Queue) -> None:
    q.given(row("given", at=90_000, given=True), row("made", at=90_000), now=10_000)
    q.bury(*q.take(now=90_000))
    q.redrive("given", "made", now=91_000)
    q.ack(*q.take())
    assert q.state() == State(final={"given": ("forwarded", 91_000)})


def test_a_redriven_letter_can_fail_and_be_redriven_again(q: Queue) -> None:
    bury(q, "a")
    for now in (30_000, 40_000):
        assert q.redrive("a", now=now) == ["scheduled"]
        assert q.bury(q.take_one(now=now)) == ["ok"]
    assert q.state().dead == {"a": 40_000}
    assert q.record("a").keys == ("k",)


# -- discard -------------------------------------------------------------------------------------------------------------


def test_a_discarded_letter_is_gone_for_good_and_the_same_again_gives_the_same_within_the_window(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    bury(q, "a", "b")
    assert q.discard("a", "a", "unknown", now=20_000) == [True, True, False]
    state = q.state()
    assert (state.dead, state.keys, list(state.reasons)) == ({"b": 20_000}, {"k": ["b"]}, ["b"])
    assert state.final == {"a": ("discarded", 20_000)}
    assert q.field("discarded") == "1"
    assert q.discard("a", now=21_000) == [True]
    assert q.cancel("a") == ["discarded"]
    assert q.reschedule("a", "a90000") == ("discarded", None)
    assert q.redrive("a") == ["not_dead"]
    assert (q.state(), q.field("discarded")) == (state, "1")
    assert q.discard("a", now=21_001) == [False]


def test_a_live_message_cannot_be_discarded(q: Queue) -> None:
    q.given(row("a", at=20_000))
    before = q.state()
    assert q.discard("a") == [False]
    assert q.state() == before


def test_a_letter_whose_record_is_gone_can_be_discarded(q: Queue) -> None:
    bury(q, "a")
    q.admin.hdel(q.keys.pool, "a")
    assert q.discard("a") == [True]
    assert q.dead_letters() == []
