"""Pages of pending messages."""

from __future__ import annotations

from typing import Any

from delayq.store import commands
from delayq.store.commands import Command, Filter, Found
from tests.support.queues import Queue, row


def pages(q: Queue, look: int, place: str = "", most_bytes: int = 1_000_000, **wanted: Any) -> list[list[Found]]:
    """All pages."""
    found: list[list[Found]] = []
    after: tuple[int, bytes] | None = None
    while True:
        asked = commands.page(
            q.keys, place, Filter(**wanted), after=after, look=look, most_bytes=most_bytes, now=10_000
        )
        page = q.run(asked)
        found.append(page.messages)
        after = page.after
        if after is None:
            return found


def ids(found: list[list[Found]]) -> list[str]:
    return [one.id for page in found for one in page]


DUES = {"e": 30_000, "a": 20_000, "c": 20_000, "b": 20_000, "d": 20_000}


def test_pages_have_each_message_once_by_due_and_equal_dues_by_id(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in DUES.items()))
    for most in (1, 2, 3, 5, 100):
        assert ids(pages(q, most)) == ["a", "b", "c", "d", "e"], most


def test_a_page_goes_on_where_the_last_message_stood_that_is_gone_now(q: Queue) -> None:
    q.given(*(row(id, at=due) for id, due in DUES.items()))
    for gone, rest in (("b", ["c", "d", "e"]), ("d", ["e"]), ("a", ["c", "e"]), ("e", [])):
        page = q.run(commands.page(q.keys, look=ids(pages(q, 100)).index(gone) + 1, now=10_000))
        q.cancel(gone)
        assert page.after is not None
        assert [one.id for one in q.run(commands.page(q.keys, after=page.after, now=10_000)).messages] == rest


def test_many_of_one_due_are_paged_without_looking_at_those_before(q: Queue) -> None:
    names = [f"m-{n:04d}" for n in range(1_000)]
    q.given(*(row(id, at=20_000) for id in names[:500]))
    q.given(*(row(id, at=20_000) for id in names[500:]))
    assert ids(pages(q, 64)) == names
    page = q.run(commands.page(q.keys, look=700, now=10_000))
    q.cancel(names[699])
    assert ids([q.run(commands.page(q.keys, after=page.after, look=1_000, now=10_000)).messages]) == names[700:]


def test_a_page_begins_and_ends_where_it_is_told_and_has_one_topic(q: Queue) -> None:
    q.given(*(row(f"m-{n}", at=20_000 + n, topic=f"t{n % 2}") for n in range(10)))
    assert ids(pages(q, 3, due_from=20_002, due_to=20_007)) == ["m-2", "m-3", "m-4", "m-5", "m-6"]
    assert ids(pages(q, 3, topic="t1")) == ["m-1", "m-3", "m-5", "m-7", "m-9"]
    assert ids(pages(q, 3, due_from=30_000)) == []


def test_a_page_is_bounded_in_bytes_and_always_goes_on(q: Queue) -> None:
    for n in range(250):
        q.given(row(f"m-{n:03d}", at=20_000 + n, body="x" * 1_000))
    found = pages(q, 1_000, most_bytes=1)
    assert ids(found) == [f"m-{n:03d}" for n in range(250)]
    assert max(map(len, found)) == 1


def test_a_page_tells_the_state_and_of_parked_ones_too(q: Queue) -> None:
    q.given(row("parked", at=5_000), row("retrying", at=5_000), now=4_000)
    first, other = q.take(now=5_000)
    q.park("t:kafka", first)
    q.retry((other, 60_000))
    q.given(row("later", at=70_000))
    found = {one.id: (one.state, one.due, one.attempts) for one in pages(q, 10)[0]}
    parked = {one.id: (one.state, one.due, one.attempts) for one in pages(q, 10, place="t:kafka")[0]}
    assert {**found, **parked} == {
        first.id: ("parked", 5_000, 0),
        other.id: ("retrying", 60_000, 1),
        "later": ("scheduled", 70_000, 0),
    }


def test_a_ticket_without_its_record_is_passed_over(q: Queue) -> None:
    q.given(row("a", at=20_000), row("b", at=20_000))
    q.admin.hdel(q.keys.pool, "a")
    assert ids(pages(q, 1)) == ["b"]


def test_a_page_of_lanes_has_places_and_ordering_keys_and_nothing_else_of_the_messages(q: Queue) -> None:
    q.given(
        *(row(f"m-{n}", at=5_000, body="x" * 10_000, tags="t", ordering_key="é" * (n % 3)) for n in range(9)), now=4_000
    )
    taken = q.take(now=5_000)
    q.park("h:orders", *taken)
    q.admin.hset(q.keys.pool, taken[-1].id, taken[-1].ticket[-7:])  # and one is cut short
    first = commands.read_lanes(q.keys, "h:orders", None, most=6)
    sent = q.run(Command(first.script, first.keys, first.args, lambda reply: reply))
    assert sum(len(one) for one in sent if isinstance(one, bytes)) < 500
    page = q.run(first)
    last = q.run(commands.read_lanes(q.keys, "h:orders", page.after))
    wanted = [((5_000, one.ticket), "é" * (n % 3)) for n, one in enumerate(taken[:-1])]
    assert (page.entries + last.entries, last.after) == ([*wanted, ((5_000, taken[-1].ticket), "")], None)
