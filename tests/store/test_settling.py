"""Ack, retry, bury and park act only on the very record that was pulled."""

from __future__ import annotations

from dataclasses import replace

from delayq.store import commands
from delayq.store.commands import Head, Parked, Released, Retention
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, State, ids, row, taken

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
    q.admin.zrem(q.keys.final, "b")  # its window has passed
    q.admin.hdel(q.keys.ended, "b")
    q.given(row("b", at=80_000, keys=("k",)))
    assert q.ack(a, b, c) == (True, 2)
    assert (q.state().keys, q.find("k")) == ({"k": ["b", "d"], "own-b": ["b"]}, ["b", "d"])
    assert q.state().ended == {id: ["k", f"own-{id}"] for id in "ac"}


def test_an_ack_leaves_a_new_message_that_has_the_id_and_the_generation_of_one_that_redis_lost(q: Queue) -> None:
    """A23 (Redis goes back in time under a live worker): It finds all again within about a second (held: 10 s).

    Messages may repeat, or be out of order.

    A23: An ack of a lost message removes no new message of that id with another due time.
    """
    q.given(row("a", at=20_000))
    lost = q.take_one(now=20_000)
    for epoch in (EPOCH, OLD_EPOCH):  # nor does a ticket of another generation
        assert q.ack(replace(lost, ticket=lost.ticket[:-1] + b"z"), epoch=epoch) == (epoch == EPOCH, 0)
    assert q.state() == State(queue={"a": 20_000})
    q.admin.flushdb()
    q.given(row("a", at=50_000, body="new"), now=20_500)
    assert q.admin.zrange(q.keys.queue, 0, -1) == [lost.ticket]
    for epoch in (EPOCH, OLD_EPOCH):
        assert q.ack(lost, epoch=epoch)[1] == 0
    assert q.state().queue == {"a": 50_000}
    assert q.record("a").payload == b"new"


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


# -- park and release -----------------------------------------------------------------------------------------------------


def heads(answer: Released | None) -> dict[str, Head | None]:
    """By set the lowest message that is parked."""
    assert answer is not None, "fenced"
    return {name: one.head for name, one in answer.sets.items()}


def test_a_parked_message_keeps_its_due_and_attempts(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", at=20_500))
    q.retry((q.take_one(now=20_000), 20_600))
    b, a = q.take(now=20_600)
    assert q.park("t:kafka", a) == Parked((20_600, a.ticket), 1)
    assert q.park("t:kafka", b) == Parked((20_500, b.ticket), 2)
    assert q.state() == State(parked={"t:kafka": {"b": 20_500, "a": 20_600}}, attempts={"a": 1}, keys={"k": ["a"]})
    assert (q.stats().parked_sets, q.take()) == (("t:kafka",), [])
    assert [(one.score, one.attempts) for one in taken(q.release_set("t:kafka"))] == [(20_500, 0), (20_600, 1)]
    assert [(one.score, one.attempts) for one in q.take()] == [(20_500, 0), (20_600, 1)]
    q.retry((a, 30_000))
    assert q.park("t:kafka", a) == Parked(None)  # by a ticket that was pulled before
    assert q.state() == State(queue={"b": 20_500, "a": 30_000}, attempts={"a": 2}, keys={"k": ["a"]})


def test_a_release_hands_out_the_lowest_dues_and_an_empty_set_is_forgotten(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in (("a", 20_003), ("b", 20_001), ("c", 20_002), ("d", 20_001))))
    b, d, c, a = q.take(now=21_000)
    q.park("k:customer 7 {x}", d)
    q.park("t:kafka", a, b, c)
    released = q.release_set("t:kafka", 2)
    assert released is not None
    assert (ids(released), released.sets) == (["b", "c"], {"t:kafka": Parked((20_003, a.ticket), 1)})
    rest = {"t:kafka": {"a": 20_003}, "k:customer 7 {x}": {"d": 20_001}}
    assert q.state() == State(queue={"b": 20_001, "c": 20_002}, parked=rest)
    assert set(q.stats().parked_sets) == rest.keys()
    assert heads(q.release_set("t:kafka")) == heads(q.release_set("t:kafka")) == {"t:kafka": None}
    assert q.stats().parked_sets == ("k:customer 7 {x}",)


def test_a_release_from_within_takes_what_stands_there(q: Queue) -> None:
    q.given(*(row(f"m{number}", at=20_000 + number) for number in range(10)))
    q.park("t:kafka", *q.take(now=21_000))
    for begin, id in ((0.0, "m0"), (1.0, "m9"), (0.5, "m4")):
        released = q.release_set("t:kafka", 1, begin=begin)
        assert released is not None
        assert ids(released) == [id]


def test_a_release_drops_cancelled_messages_and_older_generations_and_tells_of_them(q: Queue) -> None:
    q.given(*(row(f"m{number:02}", at=20_000 + number) for number in range(45)))
    messages = {one.id: one for one in q.take(now=21_000)}
    q.park("t:kafka", *messages.values())
    q.retention = Retention(window=0)
    q.cancel(*(f"m{number:02}" for number in range(25)), "m30")
    released = q.release_set("t:kafka", 1)
    assert released is not None
    assert (ids(released), released.dropped) == (["m25"], 20_000)
    assert heads(released) == {"t:kafka": (20_026, messages["m26"].ticket)}
    q.cancel(*(f"m{number:02}" for number in range(26, 45)))
    q.given(row("m26", at=90_000), now=21_001)  # under the same id: another message
    released = q.release_set("t:kafka")
    assert released is not None
    assert (released.sets, released.dropped) == ({"t:kafka": Parked(None)}, 20_026)
    assert (q.stats().parked_sets, q.state().parked, q.state().orphans) == ((), {}, set())
    assert q.state().queue == {"m25": 20_025, "m26": 90_000}


def test_a_release_that_comes_late_is_fenced_by_the_next_incarnation(q: Queue) -> None:
    q.given(*(row(f"m{number}", at=20_000 + number) for number in range(5)))
    first, second = f"{q.epoch}#1", f"{q.epoch}#2"
    messages = q.take(now=21_000)
    q.park("t:kafka", *messages)
    assert heads(q.release_set("t:kafka", 2, epoch=first)) == {"t:kafka": (20_002, messages[2].ticket)}
    # Its owner did not hear the answer, and went on. The same call arrives once more.
    assert heads(q.release_set("t:kafka", 1, epoch=second)) == {"t:kafka": (20_003, messages[3].ticket)}
    assert q.release_set("t:kafka", 2, epoch=first) is None
    assert sorted(q.state().queue) == ["m0", "m1", "m2"]


def test_a_parked_set_of_a_former_version_is_taken_over(q: Queue) -> None:
    """Its field held a count of what had left the set."""
    q.given(*(row(f"m{number}", at=20_000 + number) for number in range(3)))
    messages = q.take(now=21_000)
    q.park("t:kafka", *messages)
    q.admin.hset(q.keys.state, mapping={"turns": "7", "parked:t:kafka": "7"})
    assert q.stats().parked_sets == ("t:kafka",)
    assert heads(q.release_set("t:kafka", 1)) == {"t:kafka": (20_001, messages[1].ticket)}
    q.release_set("t:kafka")
    assert (q.stats().parked_sets, sorted(q.state().queue)) == ((), ["m0", "m1", "m2"])


def test_a_release_takes_nothing_too_early_or_ahead_of_the_pulls(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_001))
    a, b = q.take(now=20_001)
    q.park("t:kafka", a, b)
    command = commands.release_set(q.keys, q.epoch, "t:kafka", 5, upto=(20_000, a.ticket), now=20_001)
    released = q.run(command)
    assert isinstance(released, Released)
    assert ids(released) == ["a"]
    q.pull(now=20_000)
    released = q.release_set("t:kafka")
    assert released is not None
    assert ids(released) == []


def test_a_release_of_another_set_moves_what_a_pull_would_move_into_the_sets_of_topics(q: Queue) -> None:
    topics = {"a": "orders", "b": "mail", "c": "sms", "d": "sms"}
    q.given(*(row(id, at=20_000 + number, topic=topic) for number, (id, topic) in enumerate(topics.items())))
    q.park("t:kafka", *q.take(now=21_000)[:3])
    q.pause("sms", version="1")
    q.pull(now=21_000, version="1")
    q.pause("orders", version="2")
    released = q.run(commands.release_set(q.keys, q.epoch, "t:kafka", 5, now=21_000, version="2"))
    assert isinstance(released, Released)
    assert ids(released) == ["b"]
    assert q.state().parked == {"h:orders": {"a": 20_000}, "h:sms": {"c": 20_002, "d": 20_003}}
    assert {name: one.count for name, one in released.sets.items()} == {"t:kafka": 0, "h:sms": 2}


def test_all_of_a_set_may_be_moved_into_the_sets_of_its_topics_but_for_what_is_forced_or_damaged(q: Queue) -> None:
    topics = {"a": "orders", "b": "mail", "c": "orders", "d": "orders", "e": "orders"}
    q.given(*(row(id, at=20_000 + number, topic=topic) for number, (id, topic) in enumerate(topics.items())))
    q.park("t:gone", *q.take(now=21_000))
    q.cancel("c")
    q.admin.hset(q.keys.attempts, "d", "+00")
    record = q.admin.hget(q.keys.pool, "e")
    q.admin.hset(q.keys.pool, "e", record[:8])
    released = q.release_set("t:gone", None)
    assert released is not None
    assert (released.tickets[0][:1], released.tickets[1][:1], released.let_past) == (
        b"d",
        b"e",
        {released.tickets[0]: True},
    )
    assert q.state().parked == {"h:orders": {"a": 20_000}, "h:mail": {"b": 20_001}}
    assert {name: one.count for name, one in released.sets.items()} == {"t:gone": 0, "h:orders": 1, "h:mail": 1}


# -- all of them ---------------------------------------------------------------------------------------------------------


def test_a_newer_epoch_settles_and_is_adopted_and_an_older_one_changes_nothing(q: Queue) -> None:
    q.given(row("a", at=20_000), row("p", at=20_000))
    a, p = q.take(now=20_000)
    q.park("t:kafka", p)
    assert q.retry((a, 20_001), epoch=NEW_EPOCH) == ["ok"]
    assert q.field("epoch") == NEW_EPOCH
    again = replace(a, score=20_001, attempts=1)
    before = q.state(), q.fields()
    answers = (q.retry((again, 30_000)), q.bury(again), q.park("t:kafka", again), q.release_set("t:kafka"))
    assert answers == (None, None, None, None)
    assert (q.state(), q.fields()) == before


def test_each_message_of_a_call_is_settled_only_as_it_was_pulled(q: Queue) -> None:
    names = ("acked", "buried", "cancelled", "parked", "retried", "well")
    q.given(*(row(id, at=20_000) for id in names))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.ack(messages["acked"])
    q.bury(messages["buried"])
    q.cancel("cancelled")
    q.park("t:kafka", messages["parked"])
    q.retry((messages["retried"], 20_001))
    retried = next(one for one in q.take(now=20_001) if one.id == "retried")
    stale = [replace(retried, score=20_000), replace(retried, attempts=0), replace(retried, attempts=2)]
    gone = [messages[name] for name in names[:4]]
    before = q.state()
    assert q.retry(*((one, 30_000) for one in (*gone, *stale))) == ["gone"] * 4 + ["changed"] * 3
    assert q.bury(*gone, *stale, reason="another") == ["gone"] * 4 + ["changed"] * 3
    assert [q.park("t:mail", one) for one in (*gone[:3], *stale)] == [Parked(None)] * 6
    assert q.state() == before
    well = messages["well"]
    assert q.retry((gone[0], 30_000), (well, 30_000), (stale[0], 30_000)) == ["gone", "ok", "changed"]
    assert q.bury(gone[0], stale[0], retried) == ["gone", "changed", "ok"]
    assert ids(q.take(now=30_000)) == ["well"]
