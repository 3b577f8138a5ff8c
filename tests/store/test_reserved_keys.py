"""Reserved keys: counted by, whatever becomes of a message; no part of the call; nobody is handed them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

from delayq.domain.message import tag_key, topic_key
from delayq.store import commands
from delayq.store.commands import Known
from tests.support.queues import Queue, row

TOPIC, TAG = topic_key("orders"), tag_key("orders", "vip guest")
STREAM = Known("orders", "orders", per_queue=True)
KEPT: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((TOPIC,), ()), ((), (TOPIC, TAG)), ((TOPIC,), (TAG,)), (("delayq:from:shop", TAG), ("delayq:from:store",)),
]  # fmt: skip


def count(q: Queue, key: str = TOPIC) -> int:
    return q.run(commands.count_key(q.keys, key))


def test_the_same_call_is_the_same_whatever_it_is_counted_by(q: Queue) -> None:
    first, again, other = [], [], []
    for keys, (id, (before, now)) in product([(), ("k1", "k2delayq:")], zip("abcd", KEPT, strict=True)):
        call = partial(row, id + str(len(keys)), at=20_000, given=True)
        first.append(call(keys=keys, properties={"a": "1", "traceparent": "00-ab"}, reserved=before))
        again.append(call(keys=keys, properties={"a": "1"}, reserved=now))
        other.append(call(keys=(*keys, "k3"), properties={"a": "1"}, reserved=now))
    q.given(*first)
    assert set(q.schedule(*again).others.values()) == {("live", 20_000)}
    assert set(q.schedule(*other).others.values()) == {("conflict", 20_000)}
    q.ack(*q.take(now=20_000)[:4])
    assert q.pull(known=[STREAM]).appended == 4
    assert set(q.schedule(*again).others.values()) == {("delivered", None)}
    assert set(q.schedule(*other).others.values()) == {("conflict", None)}


def test_consumers_and_readers_see_the_callers_keys_only(q: Queue) -> None:
    for id, keys in {"a": (), "b": ("k1", "k2delayq:"), "c": ("xdelayq:",)}.items():
        q.given(row(id, at=20_000, keys=keys, reserved=(TOPIC, TAG)))
        q.given(row(f"{id}2", at=20_000, keys=keys, properties={"p": "1"}, reserved=(TOPIC,)))
        assert q.record(id).message(id).keys == q.record(id).keys == q.record(id).index_keys[:-2] == keys
        assert q.find(TOPIC) == [id, f"{id}2"]
        q.pull(now=20_000, known=[STREAM])
        entries = [entry for _, entry in q.admin.xrange(q.keys.stream("orders"))]
        assert [entry[b"keys"].decode() for entry in entries[-2:]] == [" ".join(keys)] * 2
        assert (count(q), count(q, TAG)) == (0, 0)


ENDINGS: dict[str, Callable[[Queue], object]] = {
    "cancelled": lambda q: q.cancel("a", now=19_999),
    "cancelled in flight": lambda q: (q.take(now=20_000), q.cancel("a")),
    "acked": lambda q: q.ack(q.take_one(now=20_000)),
    "appended": lambda q: q.pull(now=20_000, known=[STREAM]),
    "cancelled while parked": lambda q: (q.park("t:kafka", q.take_one(now=20_000)), q.cancel("a")),
    "discarded": lambda q: (q.bury(q.take_one(now=20_000)), q.discard("a")),
    "redriven and acked": lambda q: (q.bury(q.take_one(now=20_000)), q.redrive("a"), q.ack(q.take_one(now=20_001))),
    "expired and discarded": lambda q: (q.pull(now=20_500, known=[STREAM]), q.discard("a")),
}  # fmt: skip


def test_the_count_is_exact_in_every_ending(q: Queue) -> None:
    for ending, end in ENDINGS.items():
        q.server.flush()
        q.given(row("a", at=20_000, expire_after=500, keys=("k",), reserved=(TOPIC, TAG)), now=10_000)
        q.given(row("b", at=90_000, reserved=(TOPIC,)), row("c", at=90_000), row("d", at=90_000, reserved=(TAG,)))
        assert (count(q), count(q, TAG)) == (2, 2)
        q.reschedule("a", "a20000")
        end(q)
        assert (count(q), count(q, TAG), q.find("k"), q.state().ended) == (1, 1, [], {"a": ["k"]}), ending


def test_a_tag_with_a_colon_is_no_other_topics() -> None:
    assert len({tag_key("a:b", "c"), tag_key("a", "b:c"), tag_key("a", "b c"), tag_key("a", "b%20c")}) == 4
    assert " " not in tag_key("a", "b c") and tag_key("orders", "vip") == "delayq:tag:orders:vip"
