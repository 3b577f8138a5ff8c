"""Schedule: what a new message leaves in Redis, what the same call again is told, and whom it wakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delayq.store import commands
from delayq.store.commands import Known, Retention
from tests.support.queues import Queue, Row, State, row

Dues = Callable[[], list[int]]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_new_message_goes_into_pool_queue_and_index(q: Queue) -> None:
    answers = q.schedule(
        row("a", at=20_000, keys=("order-1", "user-7"), body="hello"), row("b", after=500), row("c", at=5), now=10_000
    )
    assert (answers.now, answers.others) == (10_000, {})
    index = {"order-1": ["a"], "user-7": ["a"]}
    assert q.state() == State(queue={"a": 20_000, "b": 10_500, "c": 10_000}, keys=index)
    record = q.record("a")
    assert (record.asked, record.body, record.keys) == (20_000, "hello", ("order-1", "user-7"))
    assert (q.record("b").asked, q.record("c").asked) == (10_500, 10_000)  # from the server's now, and now
    seconds, micros = q.admin.time()
    before = int(seconds) * 1000 + int(micros) // 1000
    answers = q.schedule(row("d", after=3_600_000), now="")  # type: ignore[arg-type]  # what production hands in
    assert before <= answers.now <= before + 60_000
    assert q.state().queue["d"] == answers.now + 3_600_000


def test_the_furthest_due_is_stored_exactly_and_one_out_of_range_is_refused_by_the_script_itself(q: Queue) -> None:
    specs = ["r9999999990001", "a-1", "r-1", "anan", "ainf", "rinf", "a1.5", "a1e400", "ax", "r "]
    wrong = [row(f"m{number}", spec=spec) for number, spec in enumerate(specs)]
    answers = q.schedule(*wrong, row("a", at=9_999_999_999_999), now=10_000)
    assert answers.others == dict.fromkeys(range(10), ("invalid", None))
    assert q.state() == State(queue={"a": 9_999_999_999_999})
    assert q.record("a").asked == 9_999_999_999_999


@pytest.mark.parametrize("appended", [True, False], ids=["appended", "acked"])
def test_given_ids_are_remembered_when_forwarded_and_made_ones_of_long_delays_are_not(q: Queue, appended: bool) -> None:
    q.given(
        row("given", at=90_000, given=True),
        row("given-short", after=1, given=True),
        row("made-short", after=29_999),
        row("made-past", at=1),
        row("made-long", after=30_000),
        row("made-later", at=90_000),
        now=10_000,
    )
    remembered = ["given", "given-short", "made-short", "made-past"]
    assert sorted(id for id in q.state().queue if q.record(id).remembered) == sorted(remembered)
    if appended:
        assert q.pull(now=90_000, known=[Known("orders", "orders")]).appended == 6
    else:
        q.ack(*q.take(now=90_000))
    assert q.state().final == dict.fromkeys(remembered, ("forwarded", 90_000))


def test_generations_are_of_one_call_and_grow_as_texts_beyond_every_digit(q: Queue) -> None:
    generations = []
    for count in [0, 62, 63, 64, 64**2 - 1, 64**4 - 1, 2**40]:
        q.admin.hset(q.keys.state, "generation", count)
        q.given(row(f"g{count}", at=20_000), row(f"h{count}", at=20_000))
        assert q.record(f"g{count}").generation == q.record(f"h{count}").generation
        generations.append(q.record(f"g{count}").generation)
    assert generations == sorted(set(generations))
    assert {len(generation) for generation in generations} == {7}


def test_five_hundred_messages_with_sixteen_keys_each_fit_one_script(q: Queue) -> None:
    keys = tuple(f"key-{number}" for number in range(16))
    q.given(*(row(f"m{number:03}", at=20_000 + number, keys=keys, given=True) for number in range(500)))
    state = q.state()
    assert state.queue == {f"m{number:03}": 20_000 + number for number in range(500)}
    assert {key: len(found) for key, found in state.keys.items()} == dict.fromkeys(keys, 500)
    assert q.cancel(*list(state.queue)[:250]) == ["cancelled"] * 250
    assert {len(found) for found in q.state().keys.values()} == {250}
    assert q.ack(*q.take(now=21_000)) == (True, 250)
    assert (q.state().keys, len(q.state().final)) == ({}, 500)


# -- the same call again: see also test_states and test_repeats ----------------------------------------------------------


def test_the_same_call_again_changes_nothing_and_tells_the_first_due(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("k",)), row("b", after=500), row("c", at=5), now=10_000)
    before = q.state(), q.record("a").generation, q.fields()
    again = row("a", at=20_000, keys=("k",)), row("b", after=9_999), row("c", at=5)
    assert q.schedule(*again, now=11_000).others == {0: ("live", 20_000), 1: ("live", 10_500), 2: ("live", 10_000)}
    assert (q.state(), q.record("a").generation, q.fields()) == before


FIELDS: dict[str, Any] = {
    "body": "traceparent", "keys": ("k1",), "ordering_key": "key", "given": True,
    "properties": {"a": "1", "traceparent": TRACE, "z": "2"},
}  # fmt: skip
#: What the same call does not change.
OTHERS: list[dict[str, Any]] = [
    {"at": 20_001, "after": None}, {"body": "other"}, {"body": b"traceparent"}, {"body": "xtraceparent"},
    {"topic": "other"}, {"keys": ()}, {"keys": ("k2",)}, {"tags": "tag"}, {"expire_after": 5}, {"max_attempts": 3},
    {"ordering_key": "other"}, {"properties": FIELDS["properties"] | {"z": "3"}},
    {"properties": FIELDS["properties"] | {"zz": ""}}, {"properties": {"a": "1", "traceparen": TRACE, "z": "2"}},
]  # fmt: skip


def test_other_content_or_another_date_under_a_live_id_is_a_conflict(q: Queue) -> None:
    q.given(row("a", at=20_000, **FIELDS), row("relative", after=500), row("past", at=5), now=10_000)
    before = q.state(), q.record("a").generation
    for other in OTHERS:
        assert q.schedule(row("a", **{"at": 20_000} | FIELDS | other)).others == {0: ("conflict", 20_000)}, other
    assert q.schedule(row("a", after=10_000, **FIELDS)).others == {0: ("conflict", 20_000)}
    assert q.schedule(row("relative", at=10_500)).others == {0: ("conflict", 10_500)}
    assert [q.schedule(row("past", at=at)).others for at in (6, 10_000)] == [{0: ("conflict", 10_000)}] * 2
    assert (q.state(), q.record("a").generation) == before


def test_the_same_call_from_another_trace_is_no_conflict(q: Queue) -> None:
    among = {"a": "1", "traceparent": TRACE, "z": "2"}
    for first, second in (
        ({"traceparent": TRACE}, {"traceparent": TRACE.replace("b7", "c8")}), ({"traceparent": TRACE}, {}),
        ({}, {"traceparent": TRACE}), (among, {"a": "1", "z": "2"}), ({"traceparent": ""}, {"traceparent": TRACE * 20}),
    ):  # fmt: skip
        q.server.flush()
        q.given(row("a", at=20_000, keys=("k",), properties=first))
        for due in (20_000, 30_000):
            again = row("a", at=20_000, keys=("k",), properties=second)
            assert q.schedule(again).others == {0: ("live", due)}, (first, second)
            assert due == 30_000 or q.record("a").properties == first
            q.reschedule("a", "a30000")


def test_repeating_the_call_after_reschedules_or_a_retry_is_no_conflict_and_tells_the_asked_due(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", after=500), row("c", at=11_000), now=10_000)
    q.reschedule("a", "a30000")
    q.reschedule("b", "a40000")
    q.reschedule("b", "a35000")
    q.retry((q.take_one(now=11_000), 25_000))
    again = q.schedule(row("a", at=20_000), row("b", after=500), row("c", at=11_000)).others
    assert again == {0: ("live", 30_000), 1: ("live", 35_000), 2: ("live", 11_000)}
    assert q.schedule(row("a", at=30_000)).others == {0: ("conflict", 30_000)}
    assert q.state() == State(queue={"a": 30_000, "b": 35_000, "c": 25_000}, attempts={"c": 1})


def test_an_ended_id_says_so_within_the_window_and_is_free_behind_it(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000, given=True), row("b", at=30_000))
    q.ack(q.take_one(now=20_000))
    q.cancel("b")
    again = row("a", at=20_000), row("b", at=30_000)
    assert q.schedule(*again, now=21_000).others == {0: ("delivered", None), 1: ("cancelled", None)}
    assert q.state() == State(final={"a": ("forwarded", 20_000), "b": ("cancelled", 20_000)})
    assert q.schedule(*again, now=21_001).others == {}
    assert q.state().queue == {"a": 21_001, "b": 30_000}


def test_the_same_id_twice_in_one_batch_is_one_message(q: Queue) -> None:
    answers = q.schedule(row("a", at=20_000), row("b", at=1), row("a", at=20_000), row("a", at=20_001), now=10_000)
    assert answers.others == {2: ("live", 20_000), 3: ("conflict", 20_000)}
    assert q.state() == State(queue={"a": 20_000, "b": 10_000})


@pytest.mark.parametrize("stream", [True, False], ids=["appended", "acked"])
@pytest.mark.parametrize("moved", [True, False], ids=["moved", "as asked"])
@pytest.mark.parametrize("asked", [{"at": 20_000}, {"after": 10_000}], ids=["at", "after"])
def test_other_content_or_another_date_under_a_delivered_id_is_a_conflict(
    q: Queue, asked: dict[str, int], moved: bool, stream: bool
) -> None:
    given = FIELDS | asked
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
    for other in OTHERS:
        assert q.schedule(row("a", **given | other)).others == {0: ("conflict", None)}, other
    assert q.state() == before


def punctual(id: str, at: int, kind: str = "P") -> Row:
    """A message that is not wanted once its time has passed."""
    return replace(row(id, at=at), spec=f"{kind}{at}")


def test_what_is_not_wanted_once_its_time_has_passed_is_refused_then_unless_it_is_the_same_call(q: Queue) -> None:
    answers = q.schedule(punctual("x", 9_999), punctual("y", 9_999, "p"), punctual("a", 20_000), now=10_000)
    assert answers.others == {0: ("past", None), 1: ("past", None)}
    before = q.state(), q.fields()
    assert before[0] == State(queue={"a": 20_000})
    assert q.schedule(punctual("x", 1), now=10_001).others == {0: ("past", None)}
    assert (q.state(), q.fields()) == before
    q.given(row("b", at=20_000, given=True), row("c", at=20_000, given=True), punctual("now", 10_001))
    q.cancel("c", "now", now=10_000)
    again = punctual("a", 20_000), punctual("b", 20_000), punctual("a", 20_001), punctual("c", 20_000)
    assert q.schedule(*again, now=30_000).others == {
        0: ("live", 20_000), 1: ("live", 20_000), 2: ("conflict", 20_000), 3: ("cancelled", None),
    }  # fmt: skip
    q.ack(*q.take(now=30_000))
    assert q.schedule(punctual("a", 20_000), now=30_000).others == {0: ("delivered", None)}
    assert q.schedule(punctual("a", 20_000), now=30_000 + Retention().window + 1).others == {0: ("past", None)}
    q.given(row("d", at=50_000), now=30_000)  # a closed queue sends on what has passed
    q.run(commands.close(q.keys))
    answers = q.schedule(punctual("d", 50_000), punctual("e", 1), now=60_000)
    assert answers.others == {0: ("live", 50_000), 1: ("moved", None)}


# -- wakes: exactly if due < sleep_until or due <= watermark -------------------------------------------------------------

WAKES: dict[str, tuple[Callable[[Queue], Any], list[tuple[tuple[Row, ...], list[int]]]]] = {
    "a queue that nobody ever pulled": (
        lambda q: None,
        [((row("a", at=30_000), row("b", at=20_000), row("c", at=25_000)), [20_000]), ((row("d", at=20_000),), [])],
    ),
    "an owner that sleeps until the head": (
        lambda q: (q.given(row("head", at=20_000)), q.pull(now=10_000)),
        [
            ((row("later", at=20_001),), []), ((row("equal", at=20_000),), []), ((row("earlier", at=19_999),), [19_999]),
            ((row("between", at=19_999),), []), ((row("first", at=19_998),), [19_998]),
            ((row("first", at=19_998), row("wrong", spec="a-1")), []),  # nothing in it is new
        ],
    ),
    "an owner that sleeps over an empty queue": (
        lambda q: q.pull(now=10_000), [((row("a", at=9_000_000),), [9_000_000]), ((row("b", at=9_000_001),), [])]
    ),
    # What is in flight stays the head, and the watermark is its due time.
    "a due time at or below the watermark, though not before the wake asked for": (
        lambda q: (
            q.given(row("a", at=20_000)), q.pull(now=20_000), q.admin.hset(q.keys.state, "sleep_until", "5"), q.stats(10_000)
        ),
        [((row("equal", at=20_000),), [20_000]), ((row("below", at=15_000),), [15_000]), ((row("above", at=20_001),), [])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WAKES)
def test_a_message_that_is_due_before_the_planned_wake_wakes_the_owner(q: Queue, wakes: Dues, name: str) -> None:
    given, calls = WAKES[name]
    given(q)
    wakes()
    for rows, woken in calls:
        q.schedule(*rows)
        assert wakes() == woken, rows


def test_reschedule_and_redrive_wake_by_the_same_rule(q: Queue, wakes: Dues) -> None:
    q.given(row("a", at=20_000), row("b", at=30_000), row("dead", at=11_000), now=10_000)
    q.bury(q.take_one(now=11_000))
    q.pull(now=11_000)
    wakes()
    for wake, woken in (
        (lambda: q.reschedule("b", "a25000"), []),
        (lambda: q.reschedule("b", "a15000"), [15_000]),
        (lambda: q.redrive("dead", now=12_000), [12_000]),
    ):
        wake()
        assert wakes() == woken
