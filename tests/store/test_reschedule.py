from __future__ import annotations

import pytest

from delayq.store.commands import Parked
from tests.support.queues import Queue, State, row


def test_a_message_that_waits_gets_its_new_due_and_a_new_generation(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    first = q.record("a").generation
    assert q.reschedule("a", "a30000") == ("scheduled", 30_000)
    assert q.state() == State(queue={"a": 30_000}, keys={"k": ["a"]})
    record = q.record("a")
    assert (record.asked, record.body, record.keys) == (30_000, "body", ("k",))
    assert record.generation > first


def test_a_delay_counts_from_now(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.reschedule("a", "r500", now=12_000) == ("scheduled", 12_500)
    assert q.state().queue == {"a": 12_500}


def test_the_past_means_now(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.reschedule("a", "a1", now=12_000) == ("scheduled", 12_000)


def test_an_earlier_due_is_pulled_earlier(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.reschedule("a", "a15000")
    assert q.take_one(now=15_000).record.asked == 15_000


def test_the_fields_survive_two_moves(q: Queue) -> None:
    fields = {"topic": "t", "tags": "tag", "properties": {"n": "v"}, "body": {"x": [1]}, "expire_after": 7}
    q.given(row("a", at=20_000, **fields))  # type: ignore[arg-type]  # a mixed dict
    q.reschedule("a", "a30000")
    q.reschedule("a", "a25000")
    record = q.record("a")
    assert (record.topic, record.tags, record.properties) == ("t", "tag", {"n": "v"})
    assert (record.body, record.expires_at) == ({"x": [1]}, 25_007)


@pytest.mark.parametrize("spec", ["a10000000000000", "r9999999990000", "anan", "a-1", "r1.5", ""])
def test_a_due_out_of_range_is_refused_by_the_script_itself(q: Queue, spec: str) -> None:
    q.given(row("a", at=20_000))
    assert q.reschedule("a", spec) == ("invalid", None)
    assert q.state() == State(queue={"a": 20_000})


def test_what_is_due_or_was_pulled_stays_as_it_is(q: Queue) -> None:
    q.given(row("due", at=20_000), row("below", at=15_000), row("retrying", at=11_000), now=10_000)
    (one,) = q.take(now=11_000)
    q.retry((one, 90_000))
    q.admin.hset(q.keys.state, "watermark", "15000")
    before = q.state()
    assert q.reschedule("due", "a30000", now=20_000) == ("in_flight", None)
    assert q.reschedule("below", "a30000", now=12_000) == ("in_flight", None)
    assert q.reschedule("retrying", "a30000", now=12_000) == ("in_flight", None)
    assert q.state() == before


def test_what_is_parked_dead_delivered_cancelled_or_unknown_says_so(q: Queue) -> None:
    q.given(*(row(id, at=20_000, given=True) for id in ("parked", "dead", "delivered")), row("cancelled", at=90_000))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.park("t:kafka", messages["parked"])
    q.bury(messages["dead"])
    q.ack(messages["delivered"])
    q.cancel("cancelled")
    before = q.state()
    for id in ("parked", "dead", "delivered", "cancelled"):
        assert q.reschedule(id, "a30000") == (id, None)
    assert q.reschedule("unknown", "a30000") == ("not_found", None)
    assert q.state() == before


def test_what_still_holds_the_old_generation_can_settle_nothing(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)))
    one = q.take_one(now=20_000)  # by a node whose clock is right
    q.admin.hdel(q.keys.state, "watermark")  # as after a fail-over that lost the last moments
    q.now = 15_000
    assert q.reschedule("a", "a20000") == ("scheduled", 20_000)
    assert q.ack(one) == (True, 0)
    assert q.retry((one, 30_000)) == ["gone"]
    assert q.bury(one) == ["gone"]
    assert q.park("t:kafka", one) == Parked("", None)
    assert q.state() == State(queue={"a": 20_000}, keys={"k": ["a"]})


def test_a_message_moved_within_reach_is_remembered_when_it_is_forwarded(q: Queue) -> None:
    q.given(row("near", at=900_000), row("far", at=900_000), now=10_000)
    q.reschedule("near", "r29999")
    q.reschedule("far", "r30000")
    assert (q.record("near").remembered, q.record("far").remembered) == (True, False)
