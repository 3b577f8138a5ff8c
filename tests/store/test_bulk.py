"""Pages of pending messages; test_search pages through whatever there is."""

from __future__ import annotations

from delayq.store import commands
from delayq.store.commands import Command, Found
from tests.support.queues import Queue, row


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
    lanes = q.run(first)
    last = q.run(commands.read_lanes(q.keys, "h:orders", lanes.after))
    wanted = [((5_000, one.ticket), "é" * (n % 3)) for n, one in enumerate(taken[:-1])]
    assert (lanes.entries + last.entries, last.after) == ([*wanted, ((5_000, taken[-1].ticket), "")], None)
