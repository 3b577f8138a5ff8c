"""Ack, retry, bury, park and unpark act only on the very record that was pulled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delayq.store.commands import Head, Parked, Retention
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, State, Taken, ids, row

# -- ack -----------------------------------------------------------------------------------------------------------------


def test_an_acked_message_is_forgotten_but_for_its_id_and_an_ack_again_changes_nothing(q: Queue) -> None:
    q.given(row("a", at=20_000, given=True, keys=("k",)), row("b", at=90_000, keys=("k",)))
    q.retry((q.take_one(now=20_000), 20_001))
    a = q.take_one(now=20_001)
    for removed, now in ((1, 20_001), (0, 20_500)):
        assert q.ack(a, now=now) == (True, removed)
        assert q.state() == State(queue={"b": 90_000}, keys={"k": ["b"]}, final={"a": ("forwarded", 20_001)})
    assert q.field("forwarded") == "1"


def test_an_ack_removes_index_members_only_of_what_it_removed(q: Queue) -> None:
    q.given(*(row(id, at=20_000, keys=("k", f"own-{id}")) for id in "abc"))
    a, b, c = q.take(now=20_000)
    q.cancel("b")
    q.given(row("d", at=90_000, keys=("k",)))
    q.admin.zadd(q.keys.index, {b"k\x00b": 0})  # as if b had been scheduled anew
    assert q.ack(a, b, c) == (True, 2)
    assert q.state().keys == {"k": ["b", "d"]}


def test_an_ack_of_another_generation_does_nothing(q: Queue) -> None:
    q.given(row("a", at=20_000, given=True, keys=("k",)))
    one = q.take_one(now=20_000)
    for epoch in (EPOCH, OLD_EPOCH):
        assert q.ack(replace(one, ticket=one.ticket[:-1] + b"z"), epoch=epoch) == (epoch == EPOCH, 0)
    assert q.state() == State(queue={"a": 20_000}, keys={"k": ["a"]})


def test_an_older_epoch_may_ack_while_the_due_is_unchanged_and_is_told_that_it_is_fenced(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", at=20_000, given=True))
    a, b = q.take(now=20_000)
    q.pull(epoch=NEW_EPOCH)
    q.retry((a, 30_000), epoch=NEW_EPOCH)
    assert q.ack(a, b) == (False, 1)
    rest = State(queue={"a": 30_000}, attempts={"a": 1}, keys={"k": ["a"]}, final={"b": ("forwarded", 20_000)})
    assert q.state() == rest
    assert q.field("epoch") == NEW_EPOCH
    assert q.ack(a, epoch=NEW_EPOCH) == (True, 0)  # it is no more as it was pulled, whoever says so
    assert q.state() == rest


def test_an_ack_leaves_a_new_message_that_has_the_id_and_the_generation_of_one_that_redis_lost(q: Queue) -> None:
    q.given(row("a", at=20_000))
    lost = q.take_one(now=20_000)
    q.admin.flushdb()
    q.given(row("a", at=50_000, body="new"), now=20_500)
    assert q.admin.zrange(q.keys.queue, 0, -1) == [lost.ticket]
    for epoch in (EPOCH, OLD_EPOCH):
        assert q.ack(lost, epoch=epoch)[1] == 0
    assert q.state().queue == {"a": 50_000}
    assert q.record("a").payload == b"new"


def test_forgetting_is_bounded_in_number_when_acks_remember(q: Queue) -> None:
    q.retention = Retention(most=2)
    q.given(*(row(id, at=20_000, given=True) for id in "abc"))
    a, b, c = q.take(now=20_000)
    for now, one in enumerate((c, a, b), start=20_000):
        q.ack(one, now=now)
    assert q.state().final == {"a": ("forwarded", 20_001), "b": ("forwarded", 20_002)}


# -- retry and bury ------------------------------------------------------------------------------------------------------


def test_a_retried_message_waits_for_its_next_attempt_and_a_buried_one_keeps_its_record_and_keys(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    assert q.retry((q.take_one(now=20_000), 25_000)) == ["ok"]
    assert q.state() == State(queue={"a": 25_000}, attempts={"a": 1}, keys={"k": ["a"]})
    assert q.take(now=24_999) == []
    again = q.take_one(now=25_000)
    assert (again.attempts, again.record.asked) == (1, 20_000)
    assert q.retry((again, None)) == ["ok"]  # for the order of its key: it keeps its due time
    assert (q.state().queue, q.state().attempts, q.field("retried")) == ({"a": 25_000}, {"a": 2}, "2")
    again = q.take_one(now=25_001)
    assert q.bury(again, reason="gave up: no route") == ["ok"]
    before = q.state(), q.fields()
    assert before[0] == State(keys={"k": ["a"]}, dead={"a": 25_001}, reasons={"a": "25001 3 gave up: no route"})
    assert (q.record("a").asked, q.field("buried")) == (20_000, "1")
    assert q.bury(again, reason="another") == ["gone"]
    assert (q.state(), q.fields()) == before


def test_a_retry_never_makes_a_message_anew(q: Queue) -> None:
    q.given(*(row(id, at=20_000) for id in ("acked", "buried", "cancelled", "parked")))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.ack(messages["acked"])
    q.bury(messages["buried"])
    q.cancel("cancelled")
    q.park("t:kafka", messages["parked"])
    before = q.state()
    assert q.retry(*((one, 30_000) for one in messages.values())) == ["gone"] * 4
    assert q.state() == before


# -- park and unpark -----------------------------------------------------------------------------------------------------


def heads(answer: Parked | None) -> Head | None:
    """The lowest message that is parked."""
    assert answer is not None, "fenced"
    return answer.head


def test_a_parked_message_keeps_its_due_and_attempts(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", at=20_500))
    q.retry((q.take_one(now=20_000), 20_600))
    b, a = q.take(now=20_600)
    assert heads(q.park("t:kafka", a)) == (20_600, a.ticket)
    assert heads(q.park("t:kafka", b)) == (20_500, b.ticket)
    assert q.state() == State(parked={"t:kafka": {"b": 20_500, "a": 20_600}}, attempts={"a": 1}, keys={"k": ["a"]})
    assert (q.stats().parked_sets, q.take()) == (("t:kafka",), [])
    q.unpark("t:kafka")
    assert [(one.score, one.attempts) for one in q.take()] == [(20_500, 0), (20_600, 1)]
    q.retry((a, 30_000))
    assert q.park("t:kafka", a) == Parked("", None)  # by a ticket that was pulled before
    assert q.state() == State(queue={"b": 20_500, "a": 30_000}, attempts={"a": 2}, keys={"k": ["a"]})


def test_unpark_moves_the_lowest_dues_back_and_an_empty_set_is_forgotten(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in (("a", 20_003), ("b", 20_001), ("c", 20_002), ("d", 20_001))))
    b, d, c, a = q.take(now=21_000)
    q.park("k:customer 7 {x}", d)
    q.park("t:kafka", a, b, c)
    assert q.unpark("t:kafka", turn="") == Parked(q.field("parked:t:kafka") or "", (20_001, b.ticket), 3)
    assert q.state().queue == {}  # who does not know its turn is told, and moves nothing
    assert heads(q.unpark("t:kafka", limit=2)) == (20_003, a.ticket)
    rest = {"t:kafka": {"a": 20_003}, "k:customer 7 {x}": {"d": 20_001}}
    assert q.state() == State(queue={"b": 20_001, "c": 20_002}, parked=rest)
    assert set(q.stats().parked_sets) == rest.keys()
    assert q.unpark("t:kafka") == q.unpark("t:kafka") == Parked("", None)
    assert q.stats().parked_sets == ("k:customer 7 {x}",)


def test_unpark_drops_what_was_cancelled_and_what_is_of_an_older_generation(q: Queue) -> None:
    q.given(*(row(id, at=20_000) for id in "abc"))
    messages = q.take(now=20_000)
    q.park("t:kafka", *messages)
    q.retention = Retention(window=0)
    q.cancel("a", "b")
    q.given(row("b", at=90_000), now=20_001)  # under the same id: another message
    answer = q.unpark("t:kafka")
    assert answer == Parked("", None)
    state = q.state()
    assert (state.queue, state.parked, state.orphans) == ({"c": 20_000, "b": 90_000}, {}, set())


def test_of_a_set_of_which_nothing_may_come_back_only_the_cancelled_before_its_head_are_dropped(q: Queue) -> None:
    q.given(*(row(f"m{number:02}", at=20_000 + number) for number in range(45)))
    messages = {one.id: one for one in q.take(now=21_000)}
    q.park("t:kafka", *messages.values())
    q.cancel(*(f"m{number:02}" for number in range(25)), "m30")
    answer = q.unpark("t:kafka", limit=0)
    assert heads(answer) == (20_025, messages["m25"].ticket)
    assert q.unpark("t:kafka", limit=0) == answer
    q.cancel(*(f"m{number:02}" for number in range(25, 45)))
    assert q.unpark("t:kafka", limit=0) == Parked("", None)
    assert (q.stats().parked_sets, q.state().parked) == ((), {})


def test_an_unpark_is_done_once_however_often_and_late_it_comes(q: Queue) -> None:
    q.given(*(row(f"m{number}", at=20_000 + number) for number in range(9)))
    parked = q.park("t:kafka", *q.take(now=21_000))
    assert parked is not None
    answers = [q.unpark("t:kafka", limit=2, turn=parked.turn) for _ in range(3)]
    assert answers == [answers[0]] * 3
    assert sorted(q.state().queue) == ["m0", "m1"]
    assert answers[0] is not None
    q.unpark("t:kafka", limit=2, turn=answers[0].turn)
    q.unpark("t:kafka", limit=2, turn=parked.turn)  # it was on its way for long
    assert sorted(q.state().queue) == ["m0", "m1", "m2", "m3"]


def test_a_set_that_was_emptied_and_filled_again_is_in_another_turn(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_001))
    a, b = q.take(now=21_000)
    first = q.park("t:kafka", a)
    assert first is not None
    q.unpark("t:kafka", turn=first.turn)
    second = q.park("t:kafka", b)
    assert second is not None
    assert q.unpark("t:kafka", turn=first.turn) == second
    assert q.state() == State(queue={"a": 20_000}, parked={"t:kafka": {"b": 20_001}})


# -- all of them ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def one(q: Queue) -> Taken:
    """A message in flight with an attempt behind it."""
    q.given(row("a", at=20_000, keys=("k",)))
    q.retry((q.take_one(now=20_000), 20_001))
    return q.take_one(now=20_001)


def test_an_older_epoch_can_neither_retry_nor_bury_nor_park_nor_unpark(q: Queue, one: Taken) -> None:
    q.given(row("p", at=20_000))
    q.park("t:kafka", *(taken for taken in q.take() if taken.id == "p"))
    q.pull(epoch=NEW_EPOCH)
    before = q.state(), q.fields()
    assert q.retry((one, 30_000)) is None
    assert q.bury(one) is None
    assert q.park("t:kafka", one) is None
    assert q.unpark("t:kafka") is None
    assert (q.state(), q.fields()) == before


def test_a_newer_epoch_settles_and_is_adopted(q: Queue, one: Taken) -> None:
    assert q.retry((one, 30_000), epoch=NEW_EPOCH) == ["ok"]
    assert q.field("epoch") == NEW_EPOCH
    assert q.retry((one, 30_000), epoch=EPOCH) is None


def test_another_due_or_number_of_attempts_than_pulled_is_told_as_changed(q: Queue, one: Taken) -> None:
    before = q.state(), q.fields()
    for stale in (replace(one, score=20_000), replace(one, attempts=0), replace(one, attempts=2)):
        assert q.retry((stale, 30_000)) == ["changed"]
        assert q.bury(stale) == ["changed"]
        assert q.park("t:kafka", stale) == Parked("", None)
    assert (q.state(), q.fields()) == before


def test_each_message_of_a_call_is_judged_by_itself(q: Queue) -> None:
    q.given(*(row(id, at=20_000) for id in "abc"))
    a, b, c = q.take(now=20_000)
    q.ack(b)
    stale = replace(c, attempts=4)
    assert q.retry((a, 30_000), (b, 30_000), (stale, 30_000)) == ["ok", "gone", "changed"]
    assert q.bury(b, stale, c) == ["gone", "changed", "ok"]
    assert ids(q.take(now=30_000)) == ["a"]
