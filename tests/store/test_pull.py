"""Pull on the general path: what is due is returned, and stays in the queue until it is settled."""

from __future__ import annotations

import pytest

from delayq.store import commands
from delayq.store.commands import Pulled
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH, Queue, State, ids, row, taken


def test_what_is_due_comes_in_order_of_due_and_equal_dues_by_id(q: Queue) -> None:
    for id in ("b", "a.1", "a", "ab", "B"):  # neither the order of scheduling nor the generation counts
        q.given(row(id, at=20_000))
    q.given(row("c", at=15_000), row("later", at=20_001))
    pulled = q.pull(now=20_000)
    assert ids(pulled) == ["c", "B", "a", "a.1", "ab", "b"]
    assert pulled.scores == [15_000, *[20_000] * 5]
    assert pulled.attempts == [0] * 6
    assert (pulled.now, pulled.micro, pulled.next_due, pulled.more) == (20_000, 0, 20_001, False)
    assert pulled.last == (20_000, pulled.tickets[-1])
    assert len(q.state().queue) == 7
    by_its_own_clock = q.run(commands.pull(q.keys, EPOCH, offset=0, room=10))
    assert isinstance(by_its_own_clock, Pulled)
    assert len(ids(by_its_own_clock)) == 7
    assert (by_its_own_clock.now > 1_600_000_000_000, 0 <= by_its_own_clock.micro < 1_000) == (True, True)


@pytest.mark.parametrize(
    ("now", "node_now", "came", "at", "watermark"),
    [
        (14_999, "", [], 14_999, None),
        (14_999, 3_600_000, [], 14_999, None),  # a node's clock that runs ahead fires nothing early
        (25_000, 19_999, ["b"], 19_999, "15000"),  # one that is behind counts
        (20_000, "", ["b", "a"], 20_000, "20000"),
    ],
)
def test_the_earlier_of_two_clocks_decides_what_is_due(
    q: Queue, now: int, node_now: int | str, came: list[str], at: int, watermark: str | None
) -> None:
    q.given(row("a", at=20_000), row("b", at=15_000), row("c", at=30_000))
    pulled = q.pull(now=now, node_now=node_now)
    assert (ids(pulled), pulled.now) == (came, at)
    assert (pulled.next_due, q.field("watermark")) == ((15_000, 20_000, 30_000)[len(came)], watermark)


def test_the_watermark_is_the_highest_due_ever_looked_at_and_the_next_due_is_what_the_owner_sleeps_for(
    q: Queue,
) -> None:
    q.given(row("a", at=20_000), row("b", at=15_000), row("c", at=25_000), row("d", at=25_000), row("e", at=90_000))
    for now, room, watermark, sleep_until in (
        (10_000, 9, None, "15000"), (15_000, 9, "15000", "20000"), (24_999, 9, "20000", "25000"),
        (16_000, 9, "20000", "20000"), (30_000, 3, "25000", "20000"),  # more is due: the owner does not sleep
        (30_000, 0, "25000", "20000"), (30_000, 4, "25000", "90000"), (90_000, 9, "90000", "none"),
    ):  # fmt: skip
        assert q.pull(now=now, room=room).more == (room < 4)
        assert (q.field("watermark"), q.field("sleep_until")) == (watermark, sleep_until)


# -- offset --------------------------------------------------------------------------------------------------------------


def test_a_pull_begins_at_its_offset_or_behind_the_last_ticket(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in (("a", 15_000), ("b", 20_000), ("c", 20_000), ("d", 25_000))))
    a, b, _, _ = q.take(now=30_000)
    for behind, came, start in ((b"", "bcd", 1), (b.ticket, "cd", 2), (a.ticket, "bcd", 1)):
        pulled = q.pull(offset=20_000, behind=behind)
        assert (ids(pulled), pulled.start) == (list(came), start)
    first = q.pull(offset=15_000, room=2)
    assert (ids(first), first.more, first.last) == (["a", "b"], True, (20_000, b.ticket))
    q.given(row("earlier", at=14_000), row("_", at=15_000), now=10_000)  # is found from its due on
    assert ids(q.pull(now=30_000, offset=14_000)) == ["earlier", "_", "a", "b", "c", "d"]


def test_when_the_ticket_looked_at_last_is_gone_it_goes_on_from_the_first_at_that_due_that_is_not_in_flight(
    q: Queue,
) -> None:
    q.given(*(row(id, at=20_000) for id in "abcd"))
    a, b, c, _ = q.take(now=20_000)
    q.ack(c)
    assert ids(q.pull(offset=20_000, behind=c.ticket, in_memory=[a.ticket, b.ticket])) == ["d"]
    assert ids(q.pull(offset=20_000, behind=c.ticket)) == ["a", "b", "d"]


def test_pulls_from_the_last_place_on_see_each_of_many_equal_dues_once(q: Queue) -> None:
    names = [f"m{number:04}" for number in range(1_050)]
    for start in range(0, len(names), 500):
        q.given(*(row(name, at=20_000) for name in names[start : start + 500]))
    seen: list[str] = []
    pulled = q.pull(now=20_000, room=100, look=100)
    seen += ids(pulled)
    while pulled.more:
        assert pulled.last is not None
        pulled = q.pull(offset=pulled.last[0], behind=pulled.last[1], room=100, look=100)
        seen += ids(pulled)
    assert seen == names


# -- bounds --------------------------------------------------------------------------------------------------------------


def test_no_more_is_returned_or_looked_at_than_asked_for_but_always_one_message(q: Queue) -> None:
    q.given(*(row(id, at=20_000, body="x" * 1_000) for id in "abc"), row("later", at=90_000))
    q.now = 20_000
    for bounds, came, more, next_due in (
        ({"room": 2}, "ab", True, 90_000), ({"room": 0}, "", True, 90_000), ({"room": 3}, "abc", False, 90_000),
        ({"look": 2}, "ab", True, None), ({"look": 3}, "abc", False, 90_000),
        ({"most_bytes": 2_500}, "ab", True, 90_000), ({"most_bytes": 10}, "a", True, 90_000),
    ):  # fmt: skip
        pulled = q.pull(**bounds)  # type: ignore[arg-type]  # bounds are numbers
        assert (ids(pulled), pulled.more, pulled.next_due) == (list(came), more, next_due), bounds
        assert (pulled.last is None) == (not came)
        if pulled.last is not None and came != "abc":
            rest = q.pull(offset=20_000, behind=pulled.last[1], most_bytes=2_500)
            assert (ids(rest), rest.more) == (list("abc"[len(came) :]), False)


# -- what is not as it should be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [(), (commands.Known("orders", "orders"),)], ids=["returned", "appended"])
def test_a_ticket_without_its_record_or_of_an_older_generation_is_dropped_and_counted(
    q: Queue, known: tuple[commands.Known, ...]
) -> None:
    """F10: A ticket without its record is dropped and counted."""
    q.given(*(row(id, at=20_000) for id in "abc"))
    q.admin.hdel(q.keys.pool, "b")
    q.admin.zadd(q.keys.queue, {b"a\x000000000": 15_000})
    pulled = q.pull(now=20_000, known=known)
    assert [*ids(pulled), *(entry["id"] for entry in q.stream("orders"))] == ["a", "c"]
    assert (q.state().queue, q.state().orphans) == ({} if known else {"a": 20_000, "c": 20_000}, set())
    assert q.field("orphans") == "2"
    q.given(*(row(f"m{number}", at=20_000) for number in range(250)))
    q.admin.delete(q.keys.pool)  # nothing but orphans
    pulled = q.pull(now=20_000, known=known)
    assert (pulled.tickets, pulled.more, pulled.next_due, q.state().queue) == ([], False, None, {})
    assert q.field("orphans") == ("252" if known else "254")


def test_a_corrupt_record_is_returned_so_that_its_owner_can_bury_it(q: Queue) -> None:
    """F10: An unreadable record becomes a dead letter with the reason."""
    q.given(row("a", at=20_000), row("b", at=20_000, topic="news"))
    raw: bytes = q.admin.hget(q.keys.pool, "a")
    q.admin.hset(q.keys.pool, "a", raw[:-1])
    for known in ([], [commands.Known("orders", "orders")]):
        pulled = q.pull(now=20_000, known=known, unlisted_general=not known, room=1)
        assert (pulled.tickets, pulled.records) == ([b"a\x00" + raw[:7]], [raw[:-1]])
    broken = q.run(commands.bury(q.keys, EPOCH, [(Broken(pulled.tickets[0]), 1, "corrupt record")], now=20_000))
    assert broken == ["ok"]
    assert q.state() == State(queue={"b": 20_000}, dead={"a": 20_000}, reasons={"a": "20000 1 corrupt record"})


class Broken:
    """A pulled message whose record nobody can read."""

    score = 20_000
    attempts = 0
    digest = None
    topic = ""
    index_keys = ()

    def __init__(self, ticket: bytes) -> None:
        self.ticket = ticket


# -- fresh ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [(), (commands.Known("orders", "orders"),)], ids=["returned", "appended"])
def test_a_fresh_pull_leaves_keyed_messages_to_the_backlog_and_says_nothing_of_the_owners_sleep(
    q: Queue, known: tuple[commands.Known, ...]
) -> None:
    q.given(row("plain", at=20_000), row("keyed", at=20_000, ordering_key="k"), row("also", at=20_000))
    q.pull(now=10_000)
    fresh = q.pull(now=20_000, offset=19_980, fresh=True, known=known)
    appended = [entry["id"] for entry in q.stream("orders")]
    assert ([*ids(fresh), *appended], fresh.more) == (["also", "plain"], False)
    assert (q.field("sleep_until"), q.field("watermark")) == ("20000", "20000")
    came = [*ids(q.pull(now=20_000, known=known)), *(entry["id"] for entry in q.stream("orders"))]
    assert came == (["also", "plain", "keyed"] if known else ["also", "keyed", "plain"])


# -- epochs --------------------------------------------------------------------------------------------------------------


def test_a_newer_epoch_is_adopted_and_gets_what_was_in_flight_with_its_attempts(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_000))
    for epoch in (OLD_EPOCH, EPOCH, EPOCH):
        assert ids(q.pull(now=20_000, epoch=epoch)) == ["a", "b"]
        assert q.field("epoch") == epoch
    a, _ = q.take(now=20_000)
    q.retry((a, 20_001))
    pulled = taken(q.pull(now=20_001, epoch=NEW_EPOCH))
    assert [(one.id, one.attempts) for one in pulled] == [("b", 0), ("a", 1)]
    assert q.field("epoch") == NEW_EPOCH
    before = q.state(), q.fields()
    known = commands.KnownTopics.of(q.keys, [commands.Known("orders", "orders")])
    stale = commands.pull(q.keys, EPOCH, offset=0, room=10, known=known, now=30_000)
    assert q.run(stale) is None
    assert (q.state(), q.fields(), q.admin.exists("orders")) == (*before, 0)  # an older one changes nothing
