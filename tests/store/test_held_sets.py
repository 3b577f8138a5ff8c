"""A pull moves the messages of paused topics, and what comes behind them, into the sets of their topics. A release hands them
out."""

from __future__ import annotations

import pytest

from delayq.base.errors import StoreError
from delayq.store import commands
from delayq.store.commands import Known, KnownTopics, Listed, Most, Outdated, Parked
from delayq.store.keys import ParkedSet
from tests.support.queues import NEW_EPOCH, Queue, ids, row, taken

ORDERS = Known("orders", "orders")
HELD = ParkedSet.of_topic("orders")


def hold(q: Queue, *ids: str, at: int = 20_000) -> None:
    """Messages of a paused topic, set aside."""
    q.given(*(row(id, at=at + number) for number, id in enumerate(ids)))
    q.pause("orders", version="1")
    assert q.pull(now=at + len(ids), version="1").tickets == []
    assert q.state().parked == {HELD: {id: at + number for number, id in enumerate(ids)}}


def resume(q: Queue) -> None:
    q.pause(version="2")


# -- pull ----------------------------------------------------------------------------------------------------------------


def test_a_pull_moves_the_messages_of_paused_topics_into_the_sets_of_their_topics(q: Queue) -> None:
    dues = {"a": ("orders.x", 20_000), "b": ("mail", 20_001), "c": ("orders.y", 20_002), "d": ("orders.x", 20_003)}
    q.given(*(row(id, at=due, topic=topic) for id, (topic, due) in dues.items()), row("later", at=90_000))
    q.pause("orders.*", "nobody")
    pulled = q.pull(now=20_005, version="1")
    assert (ids(pulled), pulled.more, pulled.next_due, pulled.last is not None) == (["b"], False, 90_000, True)
    assert pulled.sets == {}, "nobody brings messages of a paused topic back"
    assert q.state().queue == {"b": 20_001, "later": 90_000}
    assert q.state().parked == {
        ParkedSet.of_topic("orders.x"): {"a": 20_000, "d": 20_003},
        ParkedSet.of_topic("orders.y"): {"c": 20_002},
    }
    assert [q.state_of(id) for id in "abc"] == ["held", "inFlight", "held"]
    again = q.pull(now=20_005, version="1")
    assert (ids(again), q.state().parked) == (["b"], q.state().parked)


@pytest.mark.parametrize("count", [2, 30])
def test_what_comes_behind_a_set_is_moved_there_as_well(q: Queue, count: int) -> None:
    hold(q, "a", "b")
    resume(q)
    more = [f"m{number:02}" for number in range(count)]
    q.given(*(row(id, at=30_000) for id in more), row("early", at=20_002), row("other", at=30_000, topic="mail"))
    pulled = q.pull(now=30_000, version="2")
    assert ids(pulled) == ["other"]
    (head,) = q.admin.zrange(q.keys.held("orders"), 0, 0)
    assert pulled.sets == {HELD: Parked((20_000, head), count + 3)}
    assert q.state().parked[HELD] == {"a": 20_000, "early": 20_002, "b": 20_001} | dict.fromkeys(more, 30_000)


def test_a_pull_leaves_alone_what_its_owner_has_in_memory(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_001))
    a, b = q.take(now=20_005)
    q.pause("orders")
    pulled = q.pull(now=20_005, version="1", in_memory=[a.ticket])
    assert (ids(pulled), q.state().queue, q.state().parked) == ([], {"a": 20_000}, {HELD: {"b": 20_001}})
    resume(q)
    assert ids(q.pull(now=20_005, version="2", in_memory=[a.ticket])) == []
    assert (q.state().queue, q.ack(a), q.ack(b)) == ({"a": 20_000}, (True, 1), (True, 0))


def test_a_message_that_is_delivered_by_force_passes_its_set(q: Queue) -> None:
    hold(q, "a", "b")
    assert q.run(commands.deliver_now(q.keys, ["b"], force=True, held=["orders"], now=q.now)) is not None
    pulled = q.pull(now=20_010, version="1")
    assert (ids(pulled), list(pulled.let_past.values())) == (["b"], [True])
    assert q.state().parked == {HELD: {"a": 20_000}}


def test_a_paused_topic_need_not_be_known_and_nothing_of_it_is_appended(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_001, topic="other"))
    q.pause("ord?rs")
    pulled = q.pull(now=20_005, version="1", unlisted_general=False)
    assert (pulled.unknown_topics, q.state().parked) == (["other"], {HELD: {"a": 20_000}})
    q.given(row("c", at=20_005))
    pulled = q.pull(now=20_005, version="1", known=[ORDERS, Known("other", "other")], unlisted_general=False)
    assert (pulled.appended, q.stream("orders"), q.state().parked) == (1, [], {HELD: {"a": 20_000, "c": 20_005}})


def test_a_fresh_pull_leaves_messages_with_an_ordering_key_for_the_backlog(q: Queue) -> None:
    q.given(row("a", at=20_000, ordering_key="k"), row("b", at=20_000))
    (a,) = q.state().queue.keys() - {"b"}
    q.pause("orders")
    assert ids(q.pull(now=20_005, version="1", fresh=True)) == []
    assert (q.state().queue, q.state().parked) == ({a: 20_000}, {HELD: {"b": 20_000}})


def test_names_of_sets_are_listed_with_those_of_topics_or_without(q: Queue) -> None:
    hold(q, "a")
    resume(q)
    q.given(row("b", at=20_000, topic="mail"))
    q.park("t:hook", *taken(q.pull(now=20_010, version="2")))
    for listed, names in ((Listed.NONE, None), (Listed.BUT_TOPICS, ("t:hook",)), (Listed.ALL, (HELD, "t:hook"))):
        found = q.pull(now=20_010, version="2", listed=listed).parked
        assert (found and tuple(sorted(found))) == names
    assert q.field("held") == "1"
    released = taken(q.release("orders", version="2"))
    assert (q.field("held"), q.field(f"parked:{HELD}")) == ("1", None)
    q.ack(*released)
    q.pull(version="2", listed=Listed.BUT_TOPICS)
    assert q.field("held") is None


def test_a_claim_finds_the_sets_of_former_versions(q: Queue) -> None:
    hold(q, "a")
    q.admin.hdel(q.keys.state, "held")
    assert q.run(commands.claim(q.keys, NEW_EPOCH)).parked == (HELD,)
    resume(q)
    q.given(row("b", at=20_005))
    assert q.pull(now=20_005, epoch=NEW_EPOCH, version="2").sets[HELD].count == 2


def untold(q: Queue, version: str) -> commands.Command[commands.Released | Outdated | None]:
    known = KnownTopics.of(q.keys, [Known("orders")])
    return commands.release(q.keys, q.epoch, {"orders": 5}, known=known, upto=None, version=version)


# -- release -------------------------------------------------------------------------------------------------------------


def test_a_release_hands_out_the_earliest_and_tells_what_is_left(q: Queue) -> None:
    hold(q, "a", "b", "c")
    resume(q)
    released = q.release("orders", 2, now=20_010, version="2")
    messages = taken(released)
    assert ([one.id for one in messages], [one.score for one in messages]) == (["a", "b"], [20_000, 20_001])
    assert [(topic, left.count, left.head and left.head[0]) for topic, left in released.sets.items()] == [
        (HELD, 1, 20_002)
    ]
    assert (q.state().queue, q.state().parked) == ({"a": 20_000, "b": 20_001}, {HELD: {"c": 20_002}})
    assert q.cancel("a", now=20_010) == ["inFlight"]
    assert q.ack(*messages) == (True, 1)
    assert taken(q.release("orders", 2, version="2"))[0].id == "c"
    last = q.release("orders", 2, version="2")
    assert (last.tickets, last.sets[HELD], q.field(f"parked:{HELD}")) == ([], Parked(None, 0), None)


def test_what_a_release_handed_out_in_vain_is_found_from_the_head_of_the_queue(q: Queue) -> None:
    hold(q, "a", "b", "c")
    resume(q)
    q.release("orders", 2, now=20_010, version="2")  # its answer is lost
    pulled = q.pull(now=20_010, version="2")
    assert (ids(pulled), q.state().queue) == ([], {})
    assert q.state().parked == {HELD: {"a": 20_000, "b": 20_001, "c": 20_002}}
    q.release("orders", 3, version="2")
    assert ids(q.pull(version="2")) == ["a", "b", "c"]


def test_a_release_takes_nothing_that_is_paused_too_early_or_ahead_of_the_pulls(q: Queue) -> None:
    hold(q, "a", "b", "c")
    assert q.release("orders", version="1").tickets == []
    resume(q)
    assert q.run(untold(q, "1")) == Outdated("2")
    assert q.release("orders", now=19_999, version="2").tickets == []
    assert q.release("orders", now=20_010, node_now=19_999, version="2").tickets == []
    (a, at), (b, _), _ = q.admin.zrange(q.keys.held("orders"), 0, -1, withscores=True)
    assert q.release("orders", upto=(int(at) - 1, b"z"), version="2").tickets == []
    assert q.release("orders", upto=(int(at), a[:-9]), version="2").tickets == []
    assert q.release("orders", upto=(int(at), a), version="2").tickets == [a]
    assert q.release("orders", upto=(int(at) + 1, b + b"\xff"), version="2").tickets == [b]
    assert q.release("orders", upto=None, version="2", epoch=NEW_EPOCH).sets[HELD].count == 0
    assert q.run(untold(q, "2")) is None, "it is fenced"


def test_a_release_drops_cancelled_messages_and_counts_no_orphan(q: Queue) -> None:
    hold(q, "a", "b")
    assert q.cancel("a") == ["cancelled"]
    resume(q)
    assert [one.id for one in taken(q.release("orders", version="2"))] == ["b"]
    assert (q.state().parked, q.field("orphans")) == ({}, None)


def test_a_message_that_was_released_is_never_cancelled_for_certain(q: Queue) -> None:
    hold(q, "a")
    resume(q)
    q.admin.hset(q.keys.state, "watermark", 15_000)  # the clocks were far ahead, and it came down
    q.release("orders", now=20_010, version="2")
    assert q.cancel("a", now=20_010) == ["inFlight"]


def test_a_release_appends_to_a_stream_exactly_once_as_many_as_there_are_permits(q: Queue) -> None:
    hold(q, "a", "b", "c", "d", "e")
    resume(q)
    at = 20_010
    released = q.release("orders", [(at, 3), (at + 1, 2)], now=at, version="2", known=[ORDERS])
    assert (released.appended, released.tickets, released.sets[HELD].count, released.left) == (
        2,
        [],
        3,
        {"orders": 0},
    )
    assert [one["id"] for one in q.stream("orders")] == ["a", "b"]
    assert (q.field("forwarded"), q.state().queue, q.admin.hlen(q.keys.pool)) == ("2", {}, 3)
    assert q.release("orders", 2, version="2", known=[ORDERS]).appended == 2
    assert q.release("orders", [(at, 2)], now=at, version="2", known=[ORDERS]).appended == 0
    assert [one["id"] for one in q.stream("orders")] == ["a", "b", "c", "d"]


def test_a_release_of_several_topics_takes_of_each_its_number_or_its_permits(q: Queue) -> None:
    topics: dict[str, Most] = {
        "mail": 2,
        "s.a": [(30_000, 5)],
        "s.b": [(20_011, 1), (30_000, 1)],
        "still": 3,
        "sms": 0,
        "empty": 5,
    }
    q.given(*(row(f"{topic}{n}", at=20_000 + n, topic=topic) for topic in topics for n in range(4) if topic != "empty"))
    q.pause("*")
    q.pull(now=20_010, version="1")
    q.pause("still", version="2")
    known = [Known("s.a", "s.a"), Known("s.b", "s.b")]
    released = q.release(topics, now=20_010, version="2", known=known)
    assert (ids(released), released.scores) == (["mail0", "mail1"], [20_000, 20_001])
    assert [len(q.stream(one)) for one in ("s.a", "s.b")] == [4, 2]
    assert (released.appended, released.left) == (6, {"s.a": 1, "s.b": 0})
    left = {"mail": 2, "s.a": 0, "s.b": 2, "still": 4, "sms": 4, "empty": 0}
    assert {ParkedSet.topic(name): one.count for name, one in released.sets.items()} == left
    aside = {topic: len(q.state().parked.get(ParkedSet.of_topic(topic), {})) for topic in topics}
    assert (aside, q.state().queue) == (left, {"mail0": 20_000, "mail1": 20_001})


@pytest.mark.parametrize("key", ["final", "ended", "index", "dead", "reasons", "queue"])
@pytest.mark.parametrize("by", ["pull", "release"])
def test_a_key_of_another_type_is_found_before_anything_is_appended(q: Queue, by: str, key: str) -> None:
    expired = key in ("dead", "reasons")
    q.given(
        row("a", at=20_000, topic="orders"),
        row("b", at=20_001, given=True, keys=("k",), expire_after=5_000 if expired else None),
    )
    if by == "release":
        q.pause("orders")
        q.pull(now=20_010, version="1")
        resume(q)
    elif key == "queue":
        pytest.skip("a pull reads the queue first")
    name, kept = getattr(q.keys, key), None
    if q.admin.exists(name):
        kept = q.admin.dump(name)
        q.admin.delete(name)
    q.admin.set(name, "no such thing")

    def brings() -> int:
        version = "2" if by == "release" else ""
        if by == "release":
            return q.release("orders", now=26_000, version=version, known=[ORDERS]).appended
        return q.pull(now=26_000, version=version, known=[ORDERS]).appended

    try:
        appended = brings()
    except StoreError:
        appended = 0  # its first message is one that it can do nothing with
    else:
        with pytest.raises(StoreError, match="WRONGTYPE"):
            brings()
    assert [one["id"] for one in q.stream("orders")] == ["a"] * appended, "nothing is appended twice"
    q.admin.delete(name)
    if kept is not None:
        q.admin.restore(name, 0, kept)
    brings()
    assert [one["id"] for one in q.stream("orders")] == (["a"] if expired else ["a", "b"])
    assert (q.state().queue, q.state().parked, q.field("forwarded")) == ({}, {}, str(len(q.stream("orders"))))


def test_a_release_buries_what_expired_meanwhile_and_returns_what_its_stream_does_not_take(q: Queue) -> None:
    q.given(row("a", at=20_000, expire_after=5_000), row("b", at=20_001))
    q.pause("orders")
    q.pull(now=20_010, version="1")
    resume(q)
    q.admin.set("orders", "no stream")
    released = q.release("orders", now=25_000, version="2", known=[ORDERS])
    assert (ids(released), released.refused["orders"][:9]) == (["b"], "WRONGTYPE")
    assert (q.state().dead, q.state().queue, q.state().parked) == ({"a": 25_000}, {"b": 20_001}, {})
