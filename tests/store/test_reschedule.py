"""A reschedule gives a message that waits another due time: see also test_states."""

from __future__ import annotations

from typing import Any

from delayq.store.commands import Parked
from tests.support.queues import Queue, State, row


def test_a_message_that_waits_gets_its_new_due_and_a_new_generation_and_keeps_its_fields(q: Queue) -> None:
    fields: dict[str, Any] = {"topic": "t", "tags": "tag", "properties": {"n": "v"}, "body": {"x": [1]}, "keys": ("k",)}
    q.given(row("a", at=20_000, expire_after=7, **fields))
    generation = q.record("a").generation
    for spec, due in (("a30000", 30_000), ("a15000", 15_000), ("r500", 12_500), ("a1", 12_000)):  # the past is now
        assert q.reschedule("a", spec, now=12_000) == ("scheduled", due)
        assert q.state() == State(queue={"a": due}, keys={"k": ["a"]})
        record = q.record("a")
        assert {name: getattr(record, name) for name in fields} == fields
        assert (record.asked, record.expires_at) == (due, due + 7)
        assert record.generation > generation
        generation = record.generation
    assert q.take_one(now=12_000).record.asked == 12_000


def test_a_due_out_of_range_is_refused_by_the_script_itself(q: Queue) -> None:
    q.given(row("a", at=20_000))
    for spec in ("a10000000000000", "r9999999990000", "anan", "a-1", "r1.5", ""):
        assert q.reschedule("a", spec) == ("invalid", None), spec
    assert q.state() == State(queue={"a": 20_000})


def test_what_lies_below_the_watermark_stays_as_it_is(q: Queue) -> None:
    q.given(row("below", at=15_000), row("above", at=15_001), now=10_000)
    q.admin.hset(q.keys.state, "watermark", "15000")
    assert q.reschedule("below", "a30000", now=12_000) == ("inFlight", None)
    assert q.reschedule("above", "a30000", now=12_000) == ("scheduled", 30_000)
    assert q.state() == State(queue={"below": 15_000, "above": 30_000})


def test_what_still_holds_the_old_generation_can_settle_nothing(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    one = q.take_one(now=20_000)  # by a node whose clock is right
    q.admin.hdel(q.keys.state, "watermark")  # as after a fail-over that lost the last moments
    q.now = 15_000
    assert q.reschedule("a", "a20000") == ("scheduled", 20_000)
    assert q.ack(one) == (True, 0)
    assert q.retry((one, 30_000)) == ["gone"]
    assert q.bury(one) == ["gone"]
    assert q.park("t:kafka", one) == Parked(None)
    assert q.state() == State(queue={"a": 20_000}, keys={"k": ["a"]})


def test_a_message_moved_within_reach_is_remembered_when_it_is_forwarded(q: Queue) -> None:
    q.given(row("near", at=900_000), row("far", at=900_000), now=10_000)
    q.reschedule("near", "r29999")
    q.reschedule("far", "r30000")
    assert (q.record("near").remembered, q.record("far").remembered) == (True, False)
