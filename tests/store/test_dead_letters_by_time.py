"""Dead letters of all queues in one order: every one once, page by page, whatever is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Client, InvalidMessage, Message
from delayq.domain.codec import encode
from delayq.domain.message import Limits
from delayq.store.commands import Found
from delayq.store.keys import KEYS
from tests.support.amounts import amount
from tests.support.servers import ServerUnderTest

QUEUES = 4


class Graves:
    """Dead letters as scripts leave them, put down by hand: when they died is the test's to say."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self.all: list[tuple[int, int, str]] = []  # when, queue, id

    def add(
        self, id: str, buried: int, queue: int, topic: str = "orders", reason: str = "broken", body: str = ""
    ) -> None:
        keys = KEYS.queue(queue)
        content = encode(Message(topic=topic, body=body, delay_time=0), Limits())
        self._admin.hset(keys.pool, id, b"0000001%013d0" % 20_000 + content)
        self._admin.zadd(keys.dead, {id: buried})
        self._admin.hset(keys.reasons, id, f"{buried} 1 {reason}")
        self.all.append((buried, queue, id))

    def remove(self, id: str) -> None:
        (found,) = (one for one in self.all if one[2] == id)
        self.all.remove(found)
        keys = KEYS.queue(found[1])
        self._admin.zrem(keys.dead, id)
        self._admin.hdel(keys.pool, id)


@pytest.fixture
def graves(client: Client, valkey: ServerUnderTest) -> Graves:
    return Graves(valkey.admin)


def pages(client: Client, limit: int, **wanted: Any) -> Iterator[list[Found]]:
    token: str | None = None
    while True:
        page = client.dead_letters(limit, token, **wanted)
        assert len(page.letters) <= limit
        yield page.letters
        token = page.next_token
        if token is None:
            return


def ids(client: Client, limit: int, **wanted: Any) -> list[str]:
    return [one.id for page in pages(client, limit, **wanted) for one in page]


def test_pages_follow_each_other_by_time_through_all_queues(client: Client, valkey: ServerUnderTest) -> None:
    for seed in range(amount(5, 50)):
        valkey.flush()
        client.context()
        graves, drawn = Graves(valkey.admin), random.Random(seed)
        lone = drawn.random() < 0.3  # all in one queue
        for number in range(drawn.randrange(60)):
            queue = 1 if lone else drawn.randrange(QUEUES)
            graves.add(f"m{number}", 1_000 + drawn.randrange(12), queue)
        oldest = [id for _, _, id in sorted(graves.all)]
        for limit in (1, 3, 10, 100):
            assert ids(client, limit) == oldest
            assert ids(client, limit, newest=True) == oldest[::-1]
            since, until = 1_000 + drawn.randrange(12), 1_000 + drawn.randrange(12)
            within = [id for buried, _, id in sorted(graves.all) if since <= buried < until]
            assert ids(client, limit, from_=since, to=until) == within
            assert ids(client, limit, from_=since, to=until, newest=True) == within[::-1]


@pytest.mark.parametrize("newest", [False, True])
def test_a_page_of_large_letters_ends_early(client: Client, graves: Graves, newest: bool) -> None:
    for n in range(40):
        graves.add(f"m{n:02}", 1_000 + n, n % QUEUES, body="x" * (1_000_000 if n % 4 == 3 else 10))
    found = list(pages(client, 100, newest=newest))
    assert [one.id for page in found for one in page] == sorted((one[2] for one in graves.all), reverse=newest)
    sizes = [sum(len(one.record.payload) for one in page if one.record is not None) for page in found]
    assert max(sizes) <= 8_000_000
    assert len(found) <= 4


def test_they_are_filtered_by_topic_and_reason(client: Client, graves: Graves) -> None:
    for number in range(60):
        graves.add(
            f"m{number:02}",
            1_000 + number,
            number % QUEUES,
            topic=("orders.paid", "orders.late", "mail")[number % 3],
            reason="no such USER" if number % 7 == 0 else "broken",
        )
    every = range(60)
    for limit in (1, 4, 100):
        assert ids(client, limit, topic="orders.*") == [f"m{n:02}" for n in every if n % 3 != 2]
        assert ids(client, limit, topic="mail", newest=True) == [f"m{n:02}" for n in reversed(every) if n % 3 == 2]
        assert ids(client, limit, reason="user") == [f"m{n:02}" for n in every if n % 7 == 0]
        assert ids(client, limit, reason="user", topic="mail") == [f"m{n:02}" for n in every if n % 21 == 14]
    assert ids(client, 10, topic="order") == []
    assert ids(client, 10, topic="Mail") == []


def test_a_page_looks_at_a_bounded_number_of_letters(
    client: Client, graves: Graves, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        graves.add(f"m{number:02}", 1_000 + number, number % QUEUES, topic="mail" if number == 99 else "orders")
    assert [len(page) for page in pages(client, 1, topic="mail")] == [1]
    monkeypatch.setattr(
        "delayq.client.looking.search.MOST_SECONDS", 0
    )  # a page goes on until it has one, or its time is over
    found = list(pages(client, 1, topic="mail"))
    assert [len(page) for page in found] == [0, 0, 0, 1]


def test_the_next_page_goes_on_where_the_last_one_ended_although_its_letters_are_gone(
    client: Client, graves: Graves, valkey: ServerUnderTest
) -> None:
    for number in range(12):
        graves.add(f"m{number:02}", 1_000 + number // 4, number % QUEUES)
    order = [id for _, _, id in sorted(graves.all)]
    page = client.dead_letters(6)
    assert page.next_token is not None
    for one in page.letters:
        graves.remove(one.id)
    graves.add("late", 2_000, 0)
    rest = client.dead_letters(100, page.next_token)
    assert [one.id for one in page.letters] + [one.id for one in rest.letters] == [*order, "late"]
    with pytest.raises(InvalidMessage, match="is a token of the list with the oldest first"):
        client.dead_letters(1, page.next_token, newest=True)
    # A letter whose record cannot be read has no topic.
    graves.add("gone", 3_000, 0)
    graves.add("damaged", 3_001, 1)
    valkey.admin.hdel(KEYS.queue(0).pool, "gone")
    valkey.admin.hset(KEYS.queue(1).pool, "damaged", "???")
    last = client.dead_letters(100).letters[-2:]
    assert [(one.id, one.record, one.reason) for one in last] == [("gone", None, "broken"), ("damaged", None, "broken")]
    assert ids(client, 10, topic="*")[-1] == "late"
