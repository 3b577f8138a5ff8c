"""Pull into streams of the same Redis: appended and removed by the script itself, exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.base.errors import StoreError
from delayq.domain.codec import CorruptRecord
from delayq.store import commands, scripts
from delayq.store.commands import BucketHere, Known
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from reliability.mutants.rules import replace_source
from tests.support.queues import Queue, State, ids, row, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

ORDERS = Known("orders", "orders")
NEWS = Known("news", "stream-of-news")
GENERAL = Known("mail")


def test_a_message_is_appended_and_removed_in_one_step(q: Queue) -> None:
    q.given(
        row("a", at=20_000, body="hello", tags="paid", keys=("k1", "k2"), properties={"n": "v", "empty": ""}),
        row("later", at=30_000, keys=("k1",)),
    )
    pulled = q.pull(now=20_000, known=[ORDERS], unlisted_general=False)
    assert (pulled.appended, pulled.tickets, pulled.more, pulled.next_due) == (1, [], False, 30_000)
    assert q.stream("orders") == [
        {
            "id": "a",
            "topic": "orders",
            "tags": "paid",
            "keys": "k1 k2",
            "body": "hello",
            "due": "20000",
            "attempt": "1",
            "p:n": "v",
            "p:empty": "",
        }
    ]
    assert q.state() == State(queue={"later": 30_000}, keys={"k1": ["later"]}, final={"a": ("forwarded", 20_000)})
    assert q.field("forwarded") == "1"
    assert q.field("watermark") == "20000"


def test_the_entries_stand_in_the_order_of_the_dues_and_again_appends_nothing(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in (("c", 20_000), ("b", 21_000), ("a", 20_000), ("d", 15_000))))
    assert [q.pull(now=25_000, known=[ORDERS]).appended for _ in range(2)] == [4, 0]
    assert [entry["id"] for entry in q.stream("orders")] == ["d", "a", "c", "b"]


def test_every_body_arrives_byte_by_byte(q: Queue) -> None:
    bodies: list[Any] = [b"", b"\0\xff\r\n\0", "snowman ☃ \0", {"x": ["ü", None, 1.5]}, 0]
    q.given(*(row(str(at), at=20_000, body=body) for at, body in enumerate(bodies)))
    payloads = [q.record(str(at)).payload for at in range(len(bodies))]
    q.pull(now=20_000, known=[ORDERS])
    assert [entry[b"body"] for _, entry in q.admin.xrange("orders")] == payloads


def test_messages_of_both_paths_share_a_queue(q: Queue) -> None:
    topics = {"a": "orders", "b": "mail", "c": "news", "d": "orders", "e": "mail"}
    q.given(*(row(id, at=20_000, topic=topic, keys=("k",)) for id, topic in topics.items()))
    pulled = q.pull(now=20_000, known=[NEWS, GENERAL, ORDERS], unlisted_general=False)
    assert (ids(pulled), pulled.appended) == (["b", "e"], 3)
    assert [entry["id"] for entry in q.stream("orders")] == ["a", "d"]
    assert [entry["id"] for entry in q.stream("stream-of-news")] == ["c"]
    state = q.state()
    assert state.queue == {"b": 20_000, "e": 20_000}
    assert state.keys == {"k": ["b", "e"]}


def test_room_bounds_what_is_returned_and_not_what_is_appended(q: Queue) -> None:
    q.given(*(row(id, at=20_000, topic="mail" if id in "ce" else "orders") for id in "abcdef"))
    none = q.pull(now=20_000, known=[ORDERS, GENERAL], room=0)
    assert (none.appended, none.tickets, none.more) == (2, [], True)  # c stands in the way: it has no room
    pulled = q.pull(now=20_000, known=[ORDERS, GENERAL], room=1)
    assert (ids(pulled), pulled.appended, pulled.more) == (["c"], 1, True)
    assert pulled.last is not None
    assert pulled.last[1].startswith(b"d\0")


def test_large_amounts_pass_in_chunks_and_bytes_bound_what_is_appended(q: Queue) -> None:
    q.given(*(row(id, at=20_000, topic="news", body="x" * 1_000) for id in "abc"))
    assert [q.pull(now=20_000, known=[NEWS], most_bytes=2_500).appended for _ in range(3)] == [2, 1, 0]
    q.server.flush()
    q.given(*(row(f"m{number:03}", at=20_000, keys=tuple("abcdefgh")) for number in range(500)))
    assert q.pull(now=20_000, known=[ORDERS], look=450).appended == 450
    assert q.pull(now=20_000, known=[ORDERS]).appended == 50
    assert [entry["id"] for entry in q.stream("orders")] == [f"m{number:03}" for number in range(500)]
    state = q.state()
    assert (state.queue, state.keys, len(state.final)) == ({}, {}, 500)


@pytest.mark.parametrize(
    ("at", "until", "appended", "left"),
    [
        (20_000, ((20_100, 4), (20_300, 1)), 3, 2),
        (20_099, ((20_100, 4), (20_300, 1)), 3, 2),
        (20_100, ((20_100, 4), (20_300, 1)), 1, 0),
        (20_300, ((20_100, 4), (20_300, 1)), 0, 0),
        (20_000, (), 0, 0),
    ],
)
def test_what_was_granted_until_then_is_not_appended_later(
    q: Queue, at: int, until: tuple[tuple[int, int], ...], appended: int, left: int
) -> None:
    """As by a release that stood in a Redis that stood still."""
    q.given(*(row(id, at=20_000) for id in "abc"))
    pulled = q.pull(now=at, known=[ORDERS, GENERAL], without_permits=["orders"])
    assert (pulled.appended, pulled.tickets) == (0, [])
    assert {name: one.count for name, one in pulled.sets.items()} == {"h:orders": 3}
    released = q.release("orders", until, now=at, known=[ORDERS])
    assert (released.appended, released.left) == (appended, {"orders": left})
    assert released.sets["h:orders"].count == 3 - appended


def test_a_pull_spends_from_buckets_on_its_server_what_it_appends(q: Queue) -> None:
    q.given(row("corrupt", at=20_000))
    q.admin.hset(q.keys.pool, "corrupt", q.admin.hget(q.keys.pool, "corrupt")[:25])

    def pull(now: int, name: str, *buckets: str) -> tuple[int, int]:
        """How many of twelve messages of three topics and one of a fourth are appended, and how many go into sets."""
        q.given(*(row(f"{name}{n}", at=20_000, topic=f"{name}.{n % 3 if n < 12 else 3}") for n in range(13)))
        known = [
            Known(topic, topic, bucket=BucketHere(KEYS.rate(bucket), 10, 3.0) if bucket else None)
            for n, bucket in enumerate(buckets)
            for topic in [f"{name}.{n}"]
        ]
        pulled = q.pull(now=now, known=known)
        assert [ticket[:-8] for ticket in pulled.tickets] == [b"corrupt"]
        return pulled.appended, sum(one.count for one in pulled.sets.values())

    assert pull(20_000, "one", "a", "both", "both", "", "never") == (3 + 3 + 1, 1 + 5)
    spent = {name: q.run(commands.spend(KEYS, name, 10, 3.0, 9, now=20_100)).count for name in ("a", "both", "never")}
    assert spent == {"a": 1, "both": 1, "never": 3}
    assert pull(20_100, "two", "a", "both", "both", "") == (1, 12)
    assert pull(20_301, "three", "a", "both", "both", "") == (2 + 2 + 1, 2 + 6)
    assert q.run(commands.spent(KEYS, "both")).count == 6


def test_a_pull_by_former_policies_appends_nothing_and_one_replaces_the_bucket_of_a_former_version(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_000, topic="news"))
    known = [NEWS, *(Known(topic, topic, bucket=BucketHere(KEYS.rate("b"), 10, 3.0)) for topic in ("orders", "mail"))]
    q.run(commands.spend(KEYS, "b", 10, 3.0, 1, version="0000000002-0", now=20_000))
    q.admin.hset(q.keys.state, "policies", "0000000001-0")
    pulled = q.pull(now=20_000, known=known, version="0000000001-0")
    assert (pulled.appended, list(pulled.sets)) == (1, ["h:orders"])
    q.admin.delete(KEYS.rate("b"))
    q.admin.hset(KEYS.rate("b"), mapping={"free": 20_000_000, "version": ""})
    q.given(row("c", at=20_000, topic="mail"))
    pulled = q.pull(now=20_000, known=known, version="0000000001-0")
    assert (pulled.appended, list(pulled.sets)) == (1, [])
    assert q.run(commands.spent(KEYS, "b")).count == 1


def test_pulls_that_spent_nothing_fail_the_test_without_the_rule(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    real, rule = scripts.source, "spend_from(bound.bucket, bound.bucket.has - bound.most)"
    assert rule in real("pull")
    replace_source(lambda name: real(name).replace(rule, "bound.bucket = nil"), monkeypatch)
    with pytest.raises(AssertionError):
        test_a_pull_spends_from_buckets_on_its_server_what_it_appends(q)


# -- topics that the pull was not told about -----------------------------------------------------------------------------


def test_unlisted_topics_are_named_and_their_messages_are_not_in_flight(q: Queue) -> None:
    topics = ("orders", "a", "b", "a", "orders", "mail", "c")
    q.given(*(row(f"{at}", at=20_000 + at, topic=topic) for at, topic in enumerate(topics)))
    pulled = q.pull(now=25_000, known=[ORDERS, GENERAL], unlisted_general=False)
    assert (pulled.appended, pulled.tickets, pulled.unknown_topics, pulled.more) == (1, [], ["a", "b", "c"], True)
    assert q.field("watermark") == "20000"
    again = q.pull(known=[ORDERS, GENERAL, Known("a", "a"), Known("b", "b"), Known("c", "c")], unlisted_general=False)
    assert (again.appended, ids(again)) == (5, ["5"])
    q.given(row("general", at=20_000, topic="news"))  # where no route is a stream
    pulled = q.pull(known=[ORDERS], unlisted_general=True)
    assert (ids(pulled), pulled.unknown_topics) == (["5", "general"], [])


def test_topics_become_known_across_the_chunks_of_a_long_look(q: Queue) -> None:
    q.given(*(row(f"m{at:03}", at=20_000, topic="orders" if at < 150 else f"t{at}") for at in range(210)))
    known = [ORDERS]
    for appended, unknown in ((150, range(150, 200)), (50, range(200, 210))):
        pulled = q.pull(now=20_000, known=known, unlisted_general=False)
        assert (pulled.appended, pulled.unknown_topics) == (appended, [f"t{at}" for at in unknown])
        known += [Known(topic, topic) for topic in pulled.unknown_topics]


# -- what goes wrong ------------------------------------------------------------------------------------------------------


def test_messages_stay_if_their_key_is_no_stream_or_a_full_one(q: Queue) -> None:
    """F10: A message whose key is no stream becomes a dead letter with the reason."""
    q.admin.set("orders", "I am a string")
    q.admin.xadd("full", {"last": "possible"}, id=f"{2**64 - 1}-{2**64 - 1}")
    topics = {"a": "orders", "b": "news", "c": "full", "d": "orders", "e": "news"}
    q.given(*(row(id, at=20_000, topic=topic) for id, topic in topics.items()))
    for appended in (2, 0):
        pulled = q.pull(now=20_000, known=[ORDERS, NEWS, Known("full", "full")])
        assert (ids(pulled), pulled.appended, pulled.more) == (["a", "c", "d"], appended, False)
        assert pulled.refused.keys() == {"orders", "full"}
        assert pulled.refused["orders"].startswith("WRONGTYPE")
        assert "exhausted" in pulled.refused["full"]
    assert q.state().queue == dict.fromkeys("acd", 20_000)
    assert [entry["id"] for entry in q.stream("stream-of-news")] == ["b", "e"]
    assert q.admin.get("orders") == b"I am a string"


@pytest.mark.parametrize("error", ["OOM command not allowed", "NOREPLICAS Not enough good replicas", "READONLY You"])
def test_a_trouble_of_the_whole_redis_is_one_of_the_pull_and_not_of_the_stream(
    q: Queue, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scripts.source
    appending = "local pcall, refused = redis.pcall, {}"
    failing = f"local refused = {{}}\nlocal function pcall() return {{ err = '{error}' }} end"
    replace_source(lambda name: real(name).replace(appending, failing), monkeypatch)
    q.given(row("a", at=20_000))
    with pytest.raises(StoreError):
        q.pull(now=20_000, known=[ORDERS])
    assert q.state().queue == {"a": 20_000}


def test_an_expired_message_is_buried_instead_of_appended(q: Queue) -> None:
    q.given(row("tried", at=11_000, expire_after=9_500), now=10_000)  # it counts from the asked due
    q.retry((q.take_one(now=11_000), 20_500))
    q.given(
        row("a", at=20_000, expire_after=500, keys=("k",)),
        row("b", at=20_000, expire_after=501),
        row("c", at=20_000, expire_after=500, max_attempts=3),
        row("d", at=20_000, max_attempts=3),
        now=12_000,
    )
    general = {one.id: one.record.expires_at for one in q.take(now=20_500)}  # its owner looks before each send
    assert general == {"tried": 20_500, "a": 20_500, "b": 20_501, "c": 20_500, "d": None}
    pulled = q.pull(now=20_500, known=[ORDERS])
    assert (pulled.appended, pulled.tickets) == (2, [])
    assert [entry["id"] for entry in q.stream("orders")] == ["b", "d"]
    reasons = {"a": "20500 0 expired", "c": "20500 0 expired", "tried": "20500 1 expired"}
    final = dict.fromkeys("bd", ("forwarded", 20_500))
    assert q.state() == State(keys={"k": ["a"]}, dead=dict.fromkeys(reasons, 20_500), reasons=reasons, final=final)
    assert q.field("buried") == "3"


@pytest.mark.parametrize("stood", [600, 1_500])
def test_a_pull_that_waited_in_a_stalled_redis_appends_nothing_that_expired_meanwhile(q: Queue, stood: int) -> None:
    """The node's time is from before the stall. After a long one the clock may have jumped instead: the next pull knows."""
    q.given(row("first", at=19_000), row("a", at=20_000, expire_after=300), row("b", at=20_000), now=10_000)
    pulled = q.pull(now=20_000 + stood, node_now=20_000, known=[ORDERS])
    if stood == 1_500:
        assert (pulled.appended, pulled.more, pulled.next_due) == (1, True, 20_000)
        pulled = q.pull(now=20_001 + stood, node_now=20_001 + stood, known=[ORDERS])
    assert pulled.more is False
    assert [entry["id"] for entry in q.stream("orders")] == ["first", "b"]
    assert q.state().reasons.keys() == {"a"}


def test_a_clock_of_redis_that_jumps_ahead_makes_no_dead_letters(q: Queue) -> None:
    q.given(row("a", at=20_000, expire_after=300), row("b", at=30_000, expire_after=300), now=10_000)
    hour = 3_600_000
    appended = [q.pull(now=at + hour, node_now=at, known=[ORDERS]).appended for at in (20_000, 20_001, 30_000)]
    assert (appended, q.state().dead) == ([0, 1, 1], {})


def test_an_entry_tells_its_attempt_and_the_asked_due_after_a_retry_and_a_reschedule(q: Queue) -> None:
    far = 1_800_000_000_001  # all its digits are written
    q.given(row("tried", at=20_000), row("moved", at=20_000), row("far", at=far))
    q.reschedule("moved", "a30000")
    q.retry((q.take_one(now=20_000), 20_001))
    q.pull(now=far, known=[ORDERS])
    assert [(entry["id"], entry["attempt"], entry["due"]) for entry in q.stream("orders")] == [
        ("tried", "2", "20000"), ("moved", "1", "30000"), ("far", "1", str(far)),
    ]  # fmt: skip
    assert q.state().attempts == {}


def test_a_route_may_trim_its_stream_and_without_that_nothing_is_ever_trimmed(q: Queue) -> None:
    q.given(*(row(f"m{number:03}", at=20_000) for number in range(450)))
    q.given(*(row(f"n{number:03}", at=20_000, topic="news") for number in range(450)))
    q.pull(now=20_000, known=[Known("orders", "orders", 100), NEWS], look=1_000)
    assert len(q.stream("stream-of-news")) == 450
    kept = [entry["id"] for entry in q.stream("orders")]
    assert 100 <= len(kept) < 450  # '~': whole nodes of the stream only
    assert kept[-1] == "m449"


DUES = [b"0000000 20000", b"0x00000004e20", b"\0\0\0\0\0\0\0\0\0\0\0\0\0", b"1.8e12       "]


@pytest.mark.parametrize("expire_after", [None, 500])
def test_a_damaged_record_neither_stops_the_queue_nor_repeats_others(q: Queue, expire_after: int | None) -> None:
    for damage in ("properties", *DUES):
        q.server.flush()
        q.given(*(row(id, at=20_000, properties={"n": "v"}, expire_after=expire_after) for id in "abc"))
        q.admin.hset(q.keys.attempts, "c", "many")  # counts as none
        raw = q.admin.hget(q.keys.pool, "b")
        if isinstance(damage, bytes):
            damaged = raw[:7] + damage + raw[20:]
        else:
            damaged = raw.replace(b"\0\1n\0\1v", b"\0\xffn\0\1v")
        q.admin.hset(q.keys.pool, "b", damaged)
        for _ in range(2):
            pulled = q.pull(now=20_000, known=[ORDERS], unlisted_general=False)
            with pytest.raises(CorruptRecord):
                taken(pulled)
            assert [ticket[:1] for ticket in pulled.tickets] == [b"b"], damage
        assert [(entry["id"], entry["attempt"]) for entry in q.stream("orders")] == [("a", "1"), ("c", "1")]
        assert q.state().queue == {"b": 20_000}


def test_on_a_development_server_entries_have_the_moved_time_and_follow_those_of_a_later_one(
    valkey: ServerUnderTest,
) -> None:
    store = Store(valkey.url, timeout=PATIENCE)
    store.follow_time(development=True)
    q = Queue(store, valkey)
    try:
        before = store.run(commands.redis_now())
        for at, (id, hours) in enumerate({"a": 1, "b": 5, "c": 3}.items()):
            valkey.admin.hset(KEYS.meta, "advanced", hours * 3_600_000)
            q.given(row(id, at=20_000 + at, tags="t", properties={"n": "v"} if id == "b" else {}))
            q.pull(now=20_000 + at, known=[ORDERS])
        places = [int(entry.partition(b"-")[0]) - before for entry, _ in valkey.admin.xrange("orders")]
        assert [place // 3_600_000 for place in places] == [1, 5, 5], "time never goes back, but a clock may"
    finally:
        store.close()
