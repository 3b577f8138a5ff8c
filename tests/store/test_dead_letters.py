"""Dead letters of a queue: listed by page, redriven, discarded. See also test_states."""

from __future__ import annotations

from delayq.store.commands import Retention
from tests.support.queues import Queue, State, row


def bury(q: Queue, *names: str, at: int = 20_000) -> None:
    """Dead letters to begin with, buried at the time of their due."""
    q.given(*(row(name, at=at, keys=("k",)) for name in names))
    q.bury(*q.take(now=at), reason="no such user")


def ids(q: Queue, after: tuple[int, str] | None = None) -> list[str]:
    return [one.id for one in q.dead_letters(10, after)]


# -- pages ---------------------------------------------------------------------------------------------------------------


def test_dead_letters_come_oldest_first_with_their_reasons_and_pages_follow_through_equal_times(q: Queue) -> None:
    bury(q, *"edcba")
    bury(q, "_", at=30_000)
    letters = q.dead_letters()
    assert [(one.id, one.ended, one.attempts, one.reason) for one in letters] == [
        *((id, 20_000, 1, "no such user") for id in "abcde"), ("_", 30_000, 1, "no such user"),
    ]  # fmt: skip
    assert letters[0].record is not None and letters[0].record.body == "body"
    seen: list[str] = []
    after: tuple[int, str] | None = None
    while page := q.dead_letters(2, after):
        assert len(page) <= 2
        seen += [one.id for one in page]
        after = (page[-1].ended or 0, page[-1].id)
    assert seen == list("abcde_")


def test_a_page_goes_on_when_the_last_letter_seen_is_gone_or_was_buried_again(q: Queue) -> None:
    bury(q, *"abc")
    bury(q, "d", at=30_000)
    q.discard("b")
    assert ids(q, (20_000, "a")) == ["c", "d"]
    # Its place among equal times is not known any more: nothing may be missed, so some come twice.
    assert ids(q, (20_000, "b")) == ["a", "c", "d"]
    q.redrive("a", now=40_000)
    q.bury(*q.take(now=40_000))
    assert ids(q, (20_000, "a")) == ["c", "d", "a"]


def test_a_letter_whose_record_is_gone_or_corrupt_is_listed_stays_and_can_be_discarded(q: Queue) -> None:
    bury(q, "a", "b", "c")
    q.admin.hdel(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "b", "???")
    q.admin.hset(q.keys.pool, "c", q.admin.hget(q.keys.pool, "c")[:-1])
    assert [(one.id, one.record) for one in q.dead_letters()] == [("a", None), ("b", None), ("c", None)]
    before = q.state()
    assert q.redrive("c", now=30_000) == ["corrupt"]
    assert q.state() == before
    assert q.discard("a", "b", "c") == [True] * 3
    assert q.dead_letters() == []


# -- redrive -------------------------------------------------------------------------------------------------------------


def test_a_redriven_letter_has_a_new_generation_and_no_attempts_and_can_be_redriven_again(q: Queue) -> None:
    bury(q, "a")
    for now in (30_000, 40_000):
        generation = q.record("a").generation
        assert q.redrive("a", "a", "unknown", now=now) == ["scheduled", "scheduled", "notDead"]
        record = q.record("a")
        assert (record.asked, record.body, record.keys) == (now, "body", ("k",))
        assert record.generation > generation
        again = q.take_one(now=now)
        assert again.attempts == 0
        assert q.bury(again) == ["ok"]
        assert q.state().dead == {"a": now}
    q.redrive("a", now=50_000, call="one")
    q.retry((q.take_one(now=51_000), 60_000))
    assert q.redrive("a", now=52_000, call="one") == [
        "scheduled"
    ]  # the same call again, though it has been tried since
    assert q.redrive("a", now=52_000) == ["notDead"]


def test_a_redriven_letter_expires_anew_and_its_id_is_remembered_as_before(q: Queue) -> None:
    q.given(row("given", at=90_000, given=True, expire_after=500), row("made", at=90_000), now=10_000)
    q.bury(*q.take(now=90_000))
    q.redrive("given", "made", now=91_000)
    assert q.record("given").expires_at == 91_500
    q.ack(*q.take())
    assert q.state() == State(final={"given": ("forwarded", 91_000)})


# -- discard -------------------------------------------------------------------------------------------------------------


def test_a_discarded_letter_is_gone_and_the_same_again_gives_the_same_within_the_window(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    bury(q, "a", "b")
    assert q.discard("a", "a", "unknown", now=20_000) == [True, True, False]
    state = q.state()
    assert (state.dead, state.keys, list(state.reasons)) == ({"b": 20_000}, {"k": ["b"]}, ["b"])
    assert state.final == {"a": ("discarded", 20_000)}
    assert q.discard("a", now=21_000) == [True]
    assert (q.state(), q.field("discarded")) == (state, "1")
    assert q.discard("a", now=21_001) == [False]
