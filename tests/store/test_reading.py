"""What is read of messages: each by its id, ids by a key or a property, pages of them, and the figures of a queue."""

from __future__ import annotations

from delayq.store import commands
from delayq.store.commands import Found, Known, Retention
from tests.support.queues import EPOCH, NEW_EPOCH, Queue, row, taken


def test_a_message_comes_with_its_record_due_and_attempts_until_it_ends(q: Queue) -> None:
    q.given(row("a", at=20_000, body={"x": 1}))
    q.retry((q.take_one(now=20_000), 25_000))
    assert [q.state_of("a", now=now) for now in (24_999, 25_000)] == ["retrying", "due"]
    (found,) = q.get("a")
    assert found is not None and found.record is not None
    assert (found.id, found.due, found.attempts, found.reason, found.ended) == ("a", 25_000, 1, None, None)
    assert (found.record.body, found.record.asked) == ({"x": 1}, 20_000)
    again = q.take_one(now=25_000)
    assert q.state_of("a") == "inFlight"
    q.now = 25_123
    q.bury(again, reason="the broker said: no (é)")
    (found,) = q.get("a")
    assert found is not None and found.record is not None
    assert (found.state, found.reason, found.attempts, found.ended) == ("dead", "the broker said: no (é)", 2, 25_123)


def test_what_ended_comes_with_its_time_until_it_is_forgotten(q: Queue) -> None:
    q.retention = Retention(window=1_000)
    q.given(row("a", at=20_000, given=True), row("b", at=90_000))
    q.ack(q.take_one(now=20_001))
    q.cancel("b", now=20_002)
    found = [one and (one.state, one.ended, one.record) for one in q.get("a", "unknown", "b", now=21_001)]
    assert found == [("delivered", 20_001, None), None, ("cancelled", 20_002, None)]
    assert q.get("a", "b", now=21_003) == [None, None]


def test_a_corrupt_record_is_reported_without_its_fields(q: Queue) -> None:
    q.given(row("a", at=20_000))
    raw: bytes = q.admin.hget(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "a", raw[:-1])
    (found,) = q.get("a")
    assert found is not None
    assert (found.state, found.due, found.record) == ("scheduled", 20_000, None)


# -- find ----------------------------------------------------------------------------------------------------------------


def test_find_gives_the_ids_of_a_key_and_of_no_key_that_begins_like_it(q: Queue) -> None:
    q.given(row("a", at=20_000, keys=("order-1", "заказ-№1", "😀")), row("b", at=20_000, keys=("order-1",)))
    q.given(row("c", at=20_000, keys=("order-10",)), row("d", at=20_000, keys=("order-", "order-1!", "Order-1")))
    found = {key: q.find(key) for key in ("order-1", "order-10", "order-", "order", "заказ-№1", "😀", "заказ-№")}
    assert list(found.values()) == [["a", "b"], ["c"], ["d"], [], ["a"], ["a"], []]
    q.given(*(row(id, at=20_000, keys=("k",)) for id in ("e", "ef", "f", "g")), row("h", at=20_000, keys=("ka", "kb")))
    pages = {after: q.find("k", limit=2, after=after) for after in ("", "e", "f", "ff", "g")}
    assert pages == {"": ["e", "ef"], "e": ["ef", "f"], "f": ["g"], "ff": ["g"], "g": []}


# -- stats ---------------------------------------------------------------------------------------------------------------


def test_an_empty_queue_has_no_figures_but_when_it_was_claimed_first(q: Queue) -> None:
    stats = q.stats(now=10_000)
    assert (stats.now, stats.scheduled, stats.due, stats.head_due, stats.head_lateness) == (10_000, 0, 0, None, 0)
    assert (stats.parked, stats.dead, stats.remembered, stats.epoch, stats.watermark) == (0, 0, 0, None, None)
    assert (stats.parked_sets, set(stats.counters.values()), stats.born) == ((), {0}, None)
    q.run(commands.claim(q.keys, EPOCH))
    born = q.stats().born
    assert born is not None
    q.run(commands.claim(q.keys, NEW_EPOCH))
    assert q.stats().born == born


def test_the_figures_tell_what_there_is(q: Queue) -> None:
    q.given(*(row(id, at=20_000, given=True) for id in ("parked", "gone", "dead", "delivered", "in flight")))
    q.given(row("due", at=20_500), row("scheduled", at=90_000), row("cancelled", at=90_000))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.park("t:kafka", messages["parked"], messages["gone"])
    q.bury(messages["dead"])
    q.ack(messages["delivered"])
    q.cancel("cancelled", "gone")
    stats = q.stats(now=20_600)
    assert (stats.scheduled, stats.due, stats.head_due, stats.head_lateness) == (3, 2, 20_000, 600)
    assert (stats.parked, stats.dead, stats.remembered) == (1, 1, 3)
    assert (stats.epoch, stats.watermark, stats.parked_sets) == (q.epoch, 20_000, ("t:kafka",))
    counters = {name: count for name, count in stats.counters.items() if count}
    assert counters == {"scheduled": 8, "delivered": 1, "buried": 1, "cancelled": 1, "removedInFlight": 1}


def test_the_names_of_parked_sets_are_told_as_far_as_they_are_wanted(q: Queue) -> None:
    q.given(*(row(f"m{number}", at=20_000, topic=f"orders.{number}") for number in range(6)))
    for number, one in enumerate(q.take(now=20_000)):
        q.park(("t:kafka", "t:*", "k:lane", "h:a", "h:b", "h:c")[number], one)
    every = {"t:kafka", "t:*", "k:lane", "h:a", "h:b", "h:c"}
    assert set(q.stats().parked_sets) == every
    for most in (0, 2, 3, 9):
        told = q.run(commands.stats(q.keys, most_held=most))
        assert set(told.parked_sets) & {"t:kafka", "t:*", "k:lane"} == {"t:kafka", "t:*"}
        assert len(told.parked_sets) == 2 + min(most, 3)
        assert set(told.parked_sets) <= every
        assert (told.parked, told.epoch) == (6, q.epoch)


def test_held_topics_are_counted_page_by_page_and_as_far_as_a_pattern_covers_them(q: Queue) -> None:
    topics = [f"user.{number}" for number in range(700)]
    q.given(
        *(row(topic, at=20_000, topic=topic) for topic in topics),
        row("t", at=20_000),
        row("o", at=20_000, topic="orders"),
    )
    while messages := q.take(now=20_000):
        for one in messages:
            q.park("t:kafka" if one.id == "t" else f"h:{one.record.topic}", one)
    q.cancel("user.3")
    for match, wanted in (("*", [*topics, "orders"]), ("user.*", topics), ("user.7", ["user.7"]), ("sms", [])):
        pages = [q.run(commands.held_topics(q.keys, "0", match, 50))]
        while pages[-1].cursor != "0":
            pages.append(q.run(commands.held_topics(q.keys, pages[-1].cursor, match, 50)))
        assert {topic: count for page in pages for topic, count in page.counts.items()} == dict.fromkeys(wanted, 1)
        assert len(pages) > 5
        assert max(len(page.counts) for page in pages) < 200


def test_every_message_is_accounted_for_whatever_becomes_of_it(q: Queue) -> None:
    names = ["acked", "cancelled", "flying", "parked", "discarded", "redriven", "retried", "appended", "dead", "gone"]
    q.given(*(row(name, at=20_000, topic="news" if name == "appended" else "orders") for name in names))
    q.given(row("moved", at=90_000), row("expired", at=19_000, topic="news", expire_after=1))
    pulled = q.pull(now=20_000, known=[Known("news", q.keys.stream("news"))])
    assert pulled.appended == 1
    messages = {one.id: one for one in taken(pulled)}
    assert q.ack(messages["acked"]) == (True, 1)
    q.cancel("cancelled", "moved")
    q.park("t:kafka", messages["parked"], messages["gone"])
    q.cancel("gone")
    q.retry((messages["retried"], 30_000))
    q.bury(*(messages[name] for name in ("discarded", "redriven", "dead")))
    q.discard("discarded")
    q.redrive("redriven")
    q.schedule(row("dead", at=20_000), row("moved", at=90_000), row("new", at=90_000))
    q.reschedule("new", "a95000")
    stats = q.stats()
    assert (stats.missing, stats.pool) == (0, 7)
    q.admin.hdel(q.keys.pool, "flying", "retried")
    assert q.stats().missing == 2  # until it is written off
    assert [q.run(commands.write_off(q.keys)) for _ in range(2)] == [2, 0]
    assert (q.stats().missing, q.stats().counters["writtenOff"]) == (0, 2)
    q.admin.hset(q.keys.pool, "x", "by hand")
    assert q.stats().missing == -1
    assert q.run(commands.write_off(q.keys)) == -1
    assert (q.stats().missing, q.stats().counters["writtenOff"]) == (0, 1)


# -- search --------------------------------------------------------------------------------------------------------------


def search(q: Queue, value: str, look: int = 1_000) -> list[str]:
    """The ids of all pages."""
    cursor, ids = "0", []
    while True:
        page = q.run(commands.find_by_property(q.keys, cursor, look, "backfill", value))
        ids += page.ids
        cursor = page.cursor
        if cursor == "0":
            return sorted(ids)


def test_messages_are_found_by_a_property(q: Queue) -> None:
    long = "é%a.[" * 100
    q.given(
        row("a", at=20_000, properties={"backfill": "r1"}),
        row("b", at=20_000, properties={"a": "x" * 300, "backfill": "r1", "z": ""}, keys=("k",), tags="t"),
        row("c", at=20_000, properties={"backfill": "r11"}),
        row("d", at=20_000, properties={"backfilled": "r1", "other": "r1"}),
        row("e", at=20_000, body="\0\x08backfill\0\x02r1"),
        row("f", at=20_000, properties={"a": "backfill", "r1": "z"}),  # the same bytes, a value and a name
        row("g", at=20_000, properties={"backfill": long}),
    )
    found = {value: search(q, value) for value in ("r1", "r11", "r", "é", long, long[:-1])}
    assert list(found.values()) == [["a", "b"], ["c"], [], [], ["g"], []]


def test_search_finds_what_is_in_flight_parked_or_dead_and_passes_over_damaged_records(q: Queue) -> None:
    ids = ("dead", "flying", "parked", "damaged")
    q.given(*(row(id, at=20_000, properties={"backfill": "r1"}) for id in ids))
    messages = {one.id: one for one in q.take(now=20_000)}
    q.park("t:kafka", messages["parked"])
    q.bury(messages["dead"])
    record = q.admin.hget(q.keys.pool, "damaged")
    at = record.index(b"backfill")
    q.admin.hset(q.keys.pool, "damaged", record[: at - 1] + b"\xff" + record[at:])
    q.admin.hset(q.keys.pool, "c", b"\0\x08backfill\0\x02r1")
    assert search(q, "r1") == ["dead", "flying", "parked"]


def test_search_goes_through_a_large_pool_page_by_page(q: Queue) -> None:
    for first in range(0, 1_000, 500):
        q.given(*(row(f"m{n}", at=20_000, properties={"backfill": f"r{n % 2}"}) for n in range(first, first + 500)))
    page = q.run(commands.find_by_property(q.keys, "0", 10, "backfill", "r1"))
    assert page.cursor != "0" and 10 <= page.looked < 1_000
    assert page.size >= 10 * page.looked
    assert len(search(q, "r1", look=100)) == 500


# -- pages: test_search pages through whatever there is ------------------------------------------------------------------


def page(q: Queue, place: str = "", most_bytes: int = 1_000_000) -> list[Found]:
    return q.run(commands.page(q.keys, place, look=10, most_bytes=most_bytes, now=10_000)).messages


def test_a_page_tells_states_is_bounded_in_bytes_and_passes_over_tickets_without_records(q: Queue) -> None:
    q.given(row("parked", at=5_000), row("retrying", at=5_000), now=4_000)
    first, other = q.take(now=5_000)
    q.park("t:kafka", first)
    q.retry((other, 60_000))
    q.given(*(row(id, at=70_000, body="x" * 1_000) for id in ("gone", "later", "last")))
    q.admin.hdel(q.keys.pool, "gone")
    found = [(one.id, one.state, one.due, one.attempts) for one in page(q) + page(q, place="t:kafka")]
    assert found == [
        (other.id, "retrying", 60_000, 1), ("last", "scheduled", 70_000, 0), ("later", "scheduled", 70_000, 0),
        (first.id, "parked", 5_000, 0),
    ]  # fmt: skip
    assert [len(page(q, most_bytes=most)) for most in (1, 500, 1_500)] == [1, 2, 3]
