from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delayq.store import commands
from delayq.store.commands import Known, Retention
from tests.support.queues import Queue, Row, State, row

Dues = Callable[[], list[int]]


def test_a_new_message_goes_into_pool_queue_and_index(q: Queue) -> None:
    answers = q.schedule(row("a", at=20_000, keys=("order-1", "user-7"), body="hello"), now=10_000)
    assert (answers.now, answers.others) == (10_000, {})
    assert q.state() == State(queue={"a": 20_000}, keys={"order-1": ["a"], "user-7": ["a"]})
    record = q.record("a")
    assert (record.asked, record.body, record.keys) == (20_000, "hello", ("order-1", "user-7"))


def test_a_relative_delay_counts_from_the_servers_now(q: Queue) -> None:
    q.given(row("a", after=500), now=10_000)
    assert q.state() == State(queue={"a": 10_500})
    assert q.record("a").asked == 10_500


def test_the_clock_of_the_server_is_used_when_no_time_is_given(q: Queue) -> None:
    seconds, micros = q.admin.time()
    before = int(seconds) * 1000 + int(micros) // 1000
    answers = q.schedule(row("a", after=3_600_000), now="")  # type: ignore[arg-type]  # what production hands in
    assert before <= answers.now <= before + 60_000
    assert q.state().queue == {"a": answers.now + 3_600_000}


def test_the_same_call_again_changes_nothing_and_tells_the_first_due(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", after=500), now=10_000)
    before = q.state(), q.record("a").generation, q.fields()
    answers = q.schedule(row("a", at=20_000, keys=("k",)), row("b", after=500), now=11_000)
    assert answers.others == {0: ("live", 20_000), 1: ("live", 10_500)}
    assert (q.state(), q.record("a").generation, q.fields()) == before


def test_a_relative_delay_may_differ_in_a_repeated_call(q: Queue) -> None:
    q.given(row("a", after=500), now=10_000)
    assert q.schedule(row("a", after=9_999), now=11_000).others == {0: ("live", 10_500)}


def test_an_absolute_due_and_a_relative_one_are_not_the_same_call(q: Queue) -> None:
    q.given(row("a", after=500), now=10_000)
    assert q.schedule(row("a", at=10_500)).others == {0: ("conflict", 10_500)}


@pytest.mark.parametrize(
    "other",
    [
        row("a", at=20_001),
        row("a", at=20_000, body="other"),
        row("a", at=20_000, body=b"body"),
        row("a", at=20_000, topic="other"),
        row("a", at=20_000, keys=("k",)),
        row("a", at=20_000, tags="tag"),
        row("a", at=20_000, properties={"name": "value"}),
        row("a", at=20_000, expire_after=5),
        row("a", at=20_000, max_attempts=3),
        row("a", at=20_000, ordering_key="key"),
    ],
    ids=["due", "body", "kind of body", "topic", "keys", "tags", "properties", "expireAfter", "maxAttempts", "key"],
)
def test_other_content_or_another_date_under_a_live_id_is_a_conflict(q: Queue, other: object) -> None:
    q.given(row("a", at=20_000))
    before = q.state(), q.record("a").generation
    assert q.schedule(other).others == {0: ("conflict", 20_000)}  # type: ignore[arg-type]  # pytest's parameters
    assert (q.state(), q.record("a").generation) == before


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"traceparent": TRACE}, {"traceparent": TRACE.replace("b7", "c8")}),
        ({"traceparent": TRACE}, {}),
        ({}, {"traceparent": TRACE}),
        ({"a": "1", "traceparent": TRACE, "z": "2"}, {"a": "1", "z": "2"}),
        ({"traceparent": ""}, {"traceparent": TRACE * 20}),
    ],
    ids=["another", "none any more", "none before", "among others", "of another length"],
)
def test_the_same_call_from_another_trace_is_no_conflict(
    q: Queue, first: dict[str, str], second: dict[str, str]
) -> None:
    q.given(row("a", at=20_000, keys=("k",), properties=first))
    assert q.schedule(row("a", at=20_000, keys=("k",), properties=second)).others == {0: ("live", 20_000)}
    assert q.record("a").properties == first
    q.reschedule("a", "a30000")
    assert q.schedule(row("a", at=20_000, keys=("k",), properties=second)).others == {0: ("live", 30_000)}


@pytest.mark.parametrize(
    "other",
    [
        {"body": "other"},
        {"keys": ("k2",)},
        {"properties": {"traceparent": TRACE, "a": "2"}},
        {"properties": {"traceparen": TRACE, "a": "1"}},
        {"properties": {"traceparent": TRACE, "a": "1", "b": ""}},
        {"body": "xtraceparent"},
    ],
    ids=["body", "keys", "value", "name", "one more", "body with the word"],
)
def test_a_trace_hides_no_conflict(q: Queue, other: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"properties": {"traceparent": TRACE, "a": "1"}, "body": "traceparent", "keys": ("k1",)}
    q.given(row("a", at=20_000, **fields))
    assert q.schedule(row("a", at=20_000, **(fields | other))).others == {0: ("conflict", 20_000)}


def test_repeating_the_call_after_a_reschedule_is_no_conflict(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", after=500), now=10_000)
    q.reschedule("a", "a30000")
    q.reschedule("b", "a40000")
    assert q.schedule(row("a", at=20_000), row("b", after=500)).others == {0: ("live", 30_000), 1: ("live", 40_000)}
    assert q.schedule(row("a", at=30_000)).others == {0: ("conflict", 30_000)}
    assert q.state() == State(queue={"a": 30_000, "b": 40_000})


def test_repeating_the_call_after_two_reschedules_is_no_conflict(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.reschedule("a", "a30000")
    q.reschedule("a", "a25000")
    assert q.schedule(row("a", at=20_000)).others == {0: ("live", 25_000)}


def test_repeating_the_call_after_a_retry_is_no_conflict_and_tells_the_asked_due(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.retry((q.take_one(now=20_000), 25_000))
    assert q.schedule(row("a", at=20_000)).others == {0: ("live", 20_000)}
    assert q.state() == State(queue={"a": 25_000}, attempts={"a": 1})


def test_repeating_the_call_after_a_redrive_is_no_conflict(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.bury(q.take_one(now=20_000))
    q.redrive("a", now=30_000)
    assert q.schedule(row("a", at=20_000)).others == {0: ("live", 30_000)}


def test_repeating_the_call_of_a_dead_letter_makes_no_second_message(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.bury(q.take_one(now=20_000))
    assert q.schedule(row("a", at=20_000)).others == {0: ("dead", 20_000)}
    assert q.schedule(row("a", at=20_000, body="other")).others == {0: ("conflict", 20_000)}
    assert q.state().queue == {}


def test_repeating_the_call_of_a_discarded_letter_is_told_and_makes_nothing(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000))
    q.bury(q.take_one(now=20_000))
    assert q.discard("a") == [True]
    assert q.schedule(row("a", at=20_000), now=21_000).others == {0: ("discarded", None)}
    assert q.state() == State(final={"a": ("discarded", 20_000)})
    assert q.schedule(row("a", at=90_000), now=21_001).others == {}


def test_repeating_the_call_of_what_was_removed_in_flight_is_told(q: Queue) -> None:
    q.given(row("a", at=20_000))
    assert q.cancel("a", now=20_000) == ["in_flight"]
    assert q.schedule(row("a", at=20_000)).others == {0: ("removed_in_flight", None)}


def test_repeating_the_call_of_a_parked_message_makes_no_second_message(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.park("t:kafka", q.take_one(now=20_000))
    assert q.schedule(row("a", at=20_000)).others == {0: ("live", 20_000)}
    assert q.state() == State(parked={"t:kafka": {"a": 20_000}})


def punctual(id: str, at: int, kind: str = "P") -> Row:
    """A message that is not wanted once its time has passed."""
    return replace(row(id, at=at), spec=f"{kind}{at}")


def test_what_is_not_wanted_once_its_time_has_passed_is_refused_then_and_changes_nothing(q: Queue) -> None:
    answers = q.schedule(punctual("a", 9_999), punctual("b", 9_999, "p"), punctual("c", 10_000), now=10_000)
    assert answers.others == {0: ("past", None), 1: ("past", None)}
    assert q.state() == State(queue={"c": 10_000})
    before = q.state(), q.fields()
    assert q.schedule(punctual("a", 1), now=10_001).others == {0: ("past", None)}
    assert (q.state(), q.fields()) == before


def test_what_was_scheduled_before_its_time_passed_is_the_same_call_then(q: Queue) -> None:
    q.given(punctual("a", 20_000), row("b", at=20_000, given=True), row("c", at=20_000, given=True), now=10_000)
    q.cancel("c", now=10_000)
    assert q.schedule(punctual("a", 20_000), punctual("b", 20_000), now=30_000).others == {
        0: ("live", 20_000),
        1: ("live", 20_000),
    }
    assert q.schedule(punctual("a", 20_001), punctual("c", 20_000), now=30_000).others == {
        0: ("conflict", 20_000),
        1: ("cancelled", None),
    }
    q.ack(*q.take(now=30_000))
    assert q.schedule(punctual("a", 20_000), now=30_000).others == {0: ("delivered", None)}
    assert q.schedule(punctual("a", 20_000), now=30_000 + Retention().window + 1).others == {0: ("past", None)}


def test_a_closed_queue_sends_on_what_has_passed(q: Queue) -> None:
    q.given(row("a", at=20_000))
    q.run(commands.close(q.keys))
    answers = q.schedule(punctual("a", 20_000), punctual("b", 1), now=30_000)
    assert answers.others == {0: ("live", 20_000), 1: ("moved", None)}


def test_a_delivered_id_says_so_within_the_window_and_is_free_behind_it(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000, given=True))
    q.ack(q.take_one(now=20_000))
    assert q.schedule(row("a", at=20_000), now=21_000).others == {0: ("delivered", None)}
    assert q.state() == State(final={"a": ("forwarded", 20_000)})
    assert q.schedule(row("a", at=90_000), now=21_001).others == {}
    assert q.state().queue == {"a": 90_000}


@pytest.mark.parametrize("stream", [True, False], ids=["appended", "acked"])
@pytest.mark.parametrize("moved", [True, False], ids=["moved", "as asked"])
@pytest.mark.parametrize("asked", [{"at": 20_000}, {"after": 10_000}], ids=["at", "after"])
def test_other_content_or_another_date_under_a_delivered_id_is_a_conflict(
    q: Queue, asked: dict[str, int], moved: bool, stream: bool
) -> None:
    traced = {"a": "1", "traceparent": TRACE, "z": "2"}
    given: dict[str, Any] = {"keys": ("k",), "ordering_key": "key", "properties": traced, "given": True} | asked
    q.given(row("a", **given), now=10_000)
    if moved:
        q.reschedule("a", "a30000")
    if stream:
        assert q.pull(now=30_000, known=[Known("orders", "orders", per_queue=True)]).appended == 1
    else:
        assert q.ack(q.take_one(now=30_000)) == (True, 1)
    before = q.state()
    delivered = {0: ("delivered", None)}
    assert q.schedule(row("a", **given)).others == delivered
    assert q.schedule(row("a", **given | {"properties": {"a": "1", "z": "2"}})).others == delivered
    others: list[dict[str, Any]] = [
        {"body": "other"}, {"body": b"body"}, {"topic": "other"}, {"keys": ()}, {"tags": "tag"}, {"expire_after": 5},
        {"max_attempts": 3}, {"ordering_key": "other"}, {"properties": {"a": "1", "traceparent": TRACE, "z": "3"}},
        {"at": 20_001, "after": None},
    ]  # fmt: skip
    for other in others:
        assert q.schedule(row("a", **given | other)).others == {0: ("conflict", None)}, other
    assert q.state() == before


def test_a_cancelled_id_is_a_conflict_within_the_window_and_free_behind_it(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000), now=10_000)
    assert q.cancel("a") == ["cancelled"]
    assert q.schedule(row("a", at=20_000), now=11_000).others == {0: ("cancelled", None)}
    assert q.state().queue == {}
    assert q.schedule(row("a", at=20_000), now=11_001).others == {}


def test_the_same_id_twice_in_one_batch_is_one_message(q: Queue) -> None:
    answers = q.schedule(row("a", at=20_000), row("b", at=1), row("a", at=20_000), row("a", at=20_001), now=10_000)
    assert answers.others == {2: ("live", 20_000), 3: ("conflict", 20_000)}
    assert q.state() == State(queue={"a": 20_000, "b": 10_000})


def test_a_past_date_means_now_and_can_be_repeated(q: Queue) -> None:
    q.given(row("a", at=5), now=10_000)
    assert q.state() == State(queue={"a": 10_000})
    assert q.record("a").asked == 10_000
    assert q.schedule(row("a", at=5), now=12_000).others == {0: ("live", 10_000)}
    assert q.schedule(row("a", at=6), now=12_000).others == {0: ("conflict", 10_000)}
    assert q.schedule(row("a", at=10_000), now=12_000).others == {0: ("conflict", 10_000)}


@pytest.mark.parametrize(
    "spec",
    ["r9999999990001", "a-1", "r-1", "anan", "ainf", "rinf", "a1.5", "a1e400", "ax", "r "],
)
def test_a_due_out_of_range_is_refused_by_the_script_itself(q: Queue, spec: str) -> None:
    answers = q.schedule(row("a", spec=spec), row("b", at=20_000), now=10_000)
    assert answers.others == {0: ("invalid", None)}
    assert q.state() == State(queue={"b": 20_000})


def test_the_furthest_due_is_stored_exactly(q: Queue) -> None:
    q.given(row("a", at=9_999_999_999_999))
    assert q.state().queue == {"a": 9_999_999_999_999}
    assert q.record("a").asked == 9_999_999_999_999


def test_given_ids_are_remembered_when_forwarded_and_made_ones_of_long_delays_are_not(q: Queue) -> None:
    q.given(
        row("given", at=90_000, given=True),
        row("given-short", after=1, given=True),
        row("made-short", after=29_999),
        row("made-past", at=1),
        row("made-long", after=30_000),
        row("made-later", at=90_000),
        now=10_000,
    )
    assert {id: q.record(id).remembered for id in q.state().queue} == {
        "given": True,
        "given-short": True,
        "made-short": True,
        "made-past": True,
        "made-long": False,
        "made-later": False,
    }
    q.ack(*q.take(now=90_000))
    assert q.state().final == dict.fromkeys(["given", "given-short", "made-short", "made-past"], ("forwarded", 90_000))


def test_messages_of_one_call_share_a_generation_and_each_call_has_a_new_one(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_000))
    q.given(row("c", at=20_000))
    a, b, c = (q.record(id).generation for id in "abc")
    assert a == b < c


def test_generations_grow_as_texts_beyond_every_digit(q: Queue) -> None:
    generations = []
    for count in [0, 62, 63, 64, 64**2 - 1, 64**4 - 1, 2**40]:
        q.admin.hset(q.keys.state, "generation", count)
        q.given(row(f"g{count}", at=20_000))
        generations.append(q.record(f"g{count}").generation)
    assert generations == sorted(set(generations))
    assert {len(generation) for generation in generations} == {7}


def test_five_hundred_messages_with_sixteen_keys_each_fit_one_script(q: Queue) -> None:
    keys = tuple(f"key-{number}" for number in range(16))
    q.given(*(row(f"m{number:03}", at=20_000 + number, keys=keys) for number in range(500)))
    state = q.state()
    assert state.queue == {f"m{number:03}": 20_000 + number for number in range(500)}
    assert {key: len(found) for key, found in state.keys.items()} == dict.fromkeys(keys, 500)
    assert q.cancel(*list(state.queue)[:250]) == ["cancelled"] * 250
    assert {len(found) for found in q.state().keys.values()} == {250}


def test_a_batch_in_which_nothing_is_new_wakes_nobody_and_counts_nothing(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=20_000))
    wakes()
    q.schedule(row("a", at=20_000), row("a", spec="a-1"))
    assert wakes() == []
    assert q.field("scheduled") == "1"


# -- wakes: exactly if due < sleep_until or due <= watermark -------------------------------------------------------------


def test_a_queue_that_nobody_ever_pulled_wakes_its_owner(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=20_000))
    assert wakes() == [20_000]
    assert q.field("sleep_until") == "20000"


def test_an_owner_that_sleeps_until_the_head_is_woken_only_by_an_earlier_due(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=20_000))
    q.pull(now=10_000)
    wakes()
    q.given(row("later", at=20_001))
    q.given(row("equal", at=20_000))
    assert wakes() == []
    q.given(row("earlier", at=19_999))
    assert wakes() == [19_999]
    q.given(row("between", at=19_999))
    assert wakes() == []
    q.given(row("earlier still", at=19_998))
    assert wakes() == [19_998]


def test_an_owner_that_sleeps_over_an_empty_queue_is_woken_by_anything_once(q: Queue, wakes: Dues) -> None:
    q.pull(now=10_000)
    assert q.field("sleep_until") == "none"
    q.given(row("a", at=9_000_000))
    q.given(row("b", at=9_000_001))
    assert wakes() == [9_000_000]


def test_a_due_at_or_below_the_watermark_wakes_even_when_it_is_not_before_the_wake_asked_for(
    q: Queue, wakes: Dues
) -> None:
    q.given(row("a", at=20_000))
    q.pull(now=20_000)  # a is in flight and stays the head; the watermark is 20,000
    q.admin.hset(q.keys.state, "sleep_until", "5")
    wakes()
    q.given(row("equal", at=20_000), now=10_000)
    q.given(row("below", at=15_000))
    q.given(row("above", at=20_001))
    assert wakes() == [20_000, 15_000]


def test_a_batch_wakes_once_for_its_earliest_due(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=30_000), row("b", at=20_000), row("c", at=25_000))
    assert wakes() == [20_000]


def test_reschedule_and_redrive_wake_by_the_same_rule(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=20_000), row("b", at=30_000), row("dead", at=11_000), now=10_000)
    (dead,) = q.take(now=11_000)
    q.bury(dead)
    q.pull(now=11_000)
    wakes()
    q.reschedule("b", "a25000")
    assert wakes() == []
    q.reschedule("b", "a15000")
    assert wakes() == [15_000]
    q.redrive("dead", now=12_000)
    assert wakes() == [12_000]
