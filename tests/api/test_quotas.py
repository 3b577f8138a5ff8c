"""How many messages of a key, and of a topic, may be waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import api.auth.quotas
from api.auth.caller import Caller
from api.auth.quotas import Quotas
from delayq import Client
from delayq.config import Settings
from delayq.domain.api_keys import make_key
from delayq.store.keys import spread
from delayq.testing import ManualClock
from tests.api.conftest import HOUR, Serving, Worker, assert_refused
from tests.api.test_consuming import append, leased
from tests.support.keys import KeyFile
from tests.support.policies import put_policy
from tests.support.servers import ServerUnderTest


@pytest.fixture
async def ask(settings: Settings, asgi: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Asks an API by the key of a name: `shop` may have three messages waiting; each time they are counted anew."""
    monkeypatch.setattr(api.auth.quotas, "COUNT_EVERY", 0)
    keys = KeyFile(tmp_path / "keys.json")
    headers = {"shop": keys.add("shop", pending=3), "press": keys.add("press")}
    async with asgi(keys.settings(settings)) as client:

        async def send(name: str, method: str, path: str, body: Any = None) -> httpx2.Response:
            return await client.request(method, path, json=body, headers=headers[name])

        yield send


def message(id: str, **fields: Any) -> dict[str, Any]:
    return {"topic": "orders", "delayTime": HOUR, "id": id} | fields


async def test_a_key_has_so_many_messages_waiting_and_no_more(ask: Any, worker: Worker) -> None:
    for id, delay in (("a", HOUR), ("b", 0), ("c", 0)):
        assert (await ask("shop", "POST", "/v1/messages", message(id, delayTime=delay))).status_code == 201
    answer = await ask("shop", "POST", "/v1/messages", message("d"))
    assert assert_refused(answer, 429)["type"] == "urn:delayq:problem:quota"
    assert int(answer.headers["retry-after"]) > 0
    assert (await ask("press", "POST", "/v1/messages", message("p"))).status_code == 201
    worker.bury("b")
    assert (await ask("shop", "POST", "/v1/messages", message("d"))).status_code == 429  # a dead letter takes room
    worker.deliver("c")
    assert (await ask("shop", "POST", "/v1/messages", message("d"))).status_code == 201
    assert (await ask("shop", "DELETE", "/v1/messages/a")).status_code == 200
    assert (await ask("shop", "POST", "/v1/messages", message("e"))).status_code == 201
    assert (await ask("shop", "POST", "/v1/messages", message("f"))).status_code == 429


async def test_of_a_batch_as_many_as_there_is_room_for_are_taken(ask: Any) -> None:
    batch = {"messages": [message("a"), message("b", delayTime=-1), *(message(id) for id in "cdef")]}
    answer = await ask("shop", "POST", "/v1/messages:batch", batch)
    assert answer.status_code == 200
    assert [one["status"] for one in answer.json()["results"]] == [201, 400, 201, 201, 429, 429]
    again = await ask("shop", "POST", "/v1/messages:batch", {"messages": [message("x"), message("y")]})
    problem = assert_refused(again, 429)
    assert [one["status"] for one in problem["results"]] == [429, 429]
    assert "retry-after" in again.headers


async def test_its_messages_are_found_by_a_reserved_key_which_nobody_sees(ask: Any) -> None:
    await ask("shop", "POST", "/v1/messages", message("a", keys=["k"]))
    await ask("press", "POST", "/v1/messages", message("p", keys=["k"]))
    found = (await ask("press", "GET", "/v1/messages?key=delayq:from:shop")).json()["messages"]
    assert [(one["id"], one["message"]["keys"]) for one in found] == [("a", ["k"])]
    many = message("m", keys=[f"k{number}" for number in range(16)])
    assert [(await ask("shop", "POST", "/v1/messages", many)).status_code for _ in range(2)] == [201, 200]
    assert (await ask("press", "GET", "/v1/messages/p")).json()["message"]["keys"] == ["k"]


async def test_what_is_scheduled_between_two_counts_counts() -> None:
    asked: list[str] = []

    async def count(key: str) -> int:
        asked.append(key)
        return 5

    clock = ManualClock()
    quotas = Quotas(count, clock)
    caller = Caller(make_key("shop", {"*": ["schedule"]}, pending=10)[1])
    assert [await quotas.take(caller, wanted) for wanted in (1, 3, 4, 1)] == [1, 3, 1, 0]
    assert asked == ["delayq:from:shop"]
    clock.advance(1_000)
    assert await quotas.take(caller, 9) == 5
    assert len(asked) == 2
    assert await quotas.take(Caller(make_key("free", {"*": ["schedule"]})[1]), 99) == 99


async def test_dead_letters_that_a_consumer_makes_count_for_its_key(
    settings: Settings, asgi: Serving, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    headers = keys.add("shop", pending=1)
    with Client(settings=settings) as client:
        put_policy(client, maxHandBacks=0)
    async with asgi(keys.settings(settings)) as api:
        append(valkey, "a", "orders")
        answer = await api.post("/v1/topics/orders:receive", json={"group": "mail"}, headers=headers)
        body = {"group": "mail", "messages": leased(*answer.json()["messages"])}
        answer = await api.post("/v1/topics/orders:handBack", json=body, headers=headers)
        assert answer.json()["results"][0]["result"] == "dead"
        answer = await api.post("/v1/messages", json=message("b"), headers=headers)
        assert assert_refused(answer, 429)["type"] == "urn:delayq:problem:quota"


# -- of a topic, by a policy ---------------------------------------------------------------------------------------------------

AT = 2_000_000_000_000


async def test_more_than_may_wait_is_429_with_the_topic_and_when_to_come_again(
    api: httpx2.AsyncClient, settings: Settings
) -> None:
    with Client(settings=settings) as client:
        put_policy(client, pending=2, window=1_000)
    orders = [{"topic": "orders", "expectDate": AT, "id": id} for id in "abcd"]
    first = await api.post("/v1/messages", json=orders[0])
    assert (first.status_code, first.json()["window"], first.json()["dueMs"]) == (201, 1_000, AT + spread("a", 1_000))
    batch = (await api.post("/v1/messages:batch", json={"messages": orders[1:]})).json()
    assert [one["status"] for one in batch["results"]] == [201, 429, 429]
    refused = await api.post("/v1/messages", json=orders[3])
    problem = refused.json()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert (problem["type"], problem["field"], problem["id"]) == ("urn:delayq:problem:pending", "topic", "d")
    whole = await api.post("/v1/messages:batch", json={"messages": orders[2:]})
    assert (whole.status_code, whole.json()["type"]) == (429, "urn:delayq:problem:pending")
    assert (await api.post("/v1/messages", json={"topic": "bills", "delayTime": 1})).status_code == 201
