"""Cancelling all messages of a business key, however many, by each of the clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from delayq import AsyncClient, Client, Message
from delayq.client.changing import by_key as pages
from delayq.client.changing.messages import Cancelled
from delayq.client.scheduling.schedule import Scheduled
from delayq.store import commands
from delayq.store.keys import KEYS
from tests.support.queues import EPOCH, taken
from tests.support.servers import ServerUnderTest

Cancel = Callable[[str], list[Cancelled]]


@pytest.fixture(params=["sync", "async"])
def cancel(request: pytest.FixtureRequest, client: Client, valkey: ServerUnderTest) -> Cancel:
    """`cancel_by_key` of each client."""

    async def by_the_other(key: str) -> list[Cancelled]:
        async with AsyncClient(valkey.url) as other:
            return await other.cancel_by_key(key)

    return client.cancel_by_key if request.param == "sync" else lambda key: asyncio.run(by_the_other(key))


def schedule(client: Client, *ids: str, key: str = "k", delay: int = 3_600_000) -> list[str]:
    wanted = [Message(topic="t", id=id, keys=(key,), delay_time=delay) for id in ids]
    assert all(isinstance(one, Scheduled) for one in client.schedule_many(wanted))
    return list(ids)


def dead_letters(client: Client, queue: int, *ids: str) -> list[str]:
    """Messages that were given up, which keep their key."""
    schedule(client, *ids, delay=0)
    messages = taken(client.store.run(commands.pull(KEYS.queue(queue), EPOCH, offset=0, room=100)))
    reasons = client.store.run(commands.bury(KEYS.queue(queue), EPOCH, [(one, 1, "no") for one in messages]))
    assert reasons == ["ok"] * len(ids)
    return list(ids)


def test_a_key_is_cancelled_however_many_messages_of_one_queue_carry_it(client: Client, cancel: Cancel) -> None:
    ids = schedule(client, *(f"m{number:04}.0000" for number in range(2 * pages.PAGE + 1)))
    schedule(client, "other.0000", key="kk")
    assert [(one.id, one.result) for one in cancel("k")] == [(id, "cancelled") for id in ids]
    assert client.find("k") == []
    assert [one.id for one in client.find("kk")] == ["other.0000"]
    again = cancel("k")  # of those that have ended there is a bound, for each queue
    assert [(one.id, one.result) for one in again] == [(id, "cancelled") for id in ids[: pages.MOST_ENDED]]


def test_the_next_page_begins_behind_what_stays_and_the_pages_end(
    client: Client, cancel: Cancel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    dead = dead_letters(client, 2, *(f"dead-{number}.0002" for number in range(5)))
    ids = schedule(client, "m.0002", "m.0001", *(f"m{number}.0000" for number in range(7)))
    outcomes = {one.id: one.result for one in cancel("k")}
    assert outcomes == dict.fromkeys(dead, "dead") | dict.fromkeys(ids, "cancelled")
    monkeypatch.setattr(pages, "MOST_PAGES", 3)  # even if others schedule ever more
    ids = schedule(client, *(f"n{number}.0000" for number in range(9)), key="l")
    monkeypatch.setattr(pages, "MOST_ENDED", 0)
    assert [one.id for one in cancel("l")] == ids[:6]
    assert [one.id for one in cancel("l")] == ids[6:]
