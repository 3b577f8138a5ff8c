from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from delayq.client.changing import by_key as pages
from delayq.client.looking import search_by_key
from delayq.config import Settings
from delayq.domain.api_keys import SCOPES
from delayq.store import commands
from delayq.store.commands import Carriers, Command
from delayq.store.keys import QueueKeys
from tests.api.conftest import HOUR, Serving, Worker, bring_into, schedule
from tests.support.keys import KeyFile


async def test_a_cancel_tells_the_truth_and_the_same_again(api: httpx2.AsyncClient, worker: Worker) -> None:
    for queue, (state, status, result) in enumerate((
        ("scheduled", 200, "cancelled"), ("due", 202, "inFlight"), ("inFlight", 202, "inFlight"),
        ("parked", 202, "inFlight"), ("dead", 409, "dead"), ("delivered", 409, "delivered"),
        ("cancelled", 200, "cancelled"), ("removedInFlight", 202, "inFlight"), ("discarded", 409, "discarded"),
    )):  # fmt: skip
        id = await bring_into(state, api, worker, queue)
        for _ in range(2):
            answer = await api.delete(f"/v1/messages/{id}")
            assert (state, answer.status_code) == (state, status)
            assert answer.json()["state" if status == 409 else "result"] == result
            many = (await api.post("/v1/messages:cancel", json={"ids": [id]})).json()["results"]
            assert many == [{"status": status, "id": id, "result": result}]


async def test_many_ids_are_cancelled_each_with_its_result(api: httpx2.AsyncClient) -> None:
    ids = [await schedule(api) for _ in range(20)]
    asked = [*ids, "unknown", "not an id", ids[0]]
    answer = await api.post("/v1/messages:cancel", json={"ids": asked})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["id"] for result in results] == asked
    assert [result["status"] for result in results] == [200] * 20 + [404, 400, 200]
    assert results[-3]["result"] == "notFound"
    assert results[-2]["problem"]["field"] == "ids[21]"
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 0


async def test_an_empty_list_counts_as_not_given(api: httpx2.AsyncClient) -> None:
    for name in ("a", "b"):
        await schedule(api, id=name, keys=[name])
    by_key = await api.post("/v1/messages:cancel", json={"ids": [], "keys": ["a"]})
    by_id = await api.post("/v1/messages:deliverNow", json={"ids": ["b"], "keys": []})
    assert by_key.json()["results"][0]["messages"] == [{"status": 200, "id": "a", "result": "cancelled"}]
    assert by_id.json()["results"] == [{"status": 200, "id": "b", "result": "scheduled"}]


async def test_keys_cancel_every_message_that_carries_them(api: httpx2.AsyncClient, worker: Worker) -> None:
    for name in ("a", "b", "c"):
        await schedule(api, id=name, keys=["order-42"])
    await schedule(api, id="due", keys=["order-43"], delayTime=0)
    await schedule(api, id="other", keys=["order-44"])
    worker.pull("due")
    answer = await api.post("/v1/messages:cancel", json={"keys": ["order-42", "order-43", "nobody", "no key"]})
    assert answer.status_code == 200
    all_three, due, nobody, bad = answer.json()["results"]
    assert all_three["key"] == "order-42"
    assert sorted((one["id"], one["result"]) for one in all_three["messages"]) == [
        ("a", "cancelled"),
        ("b", "cancelled"),
        ("c", "cancelled"),
    ]
    assert due["messages"] == [{"status": 202, "id": "due", "result": "inFlight"}]
    assert nobody == {"status": 200, "key": "nobody", "messages": []}
    assert (bad["status"], bad["problem"]["field"]) == (400, "keys[3]")
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 1


async def test_a_cancel_by_key_tells_the_truth_and_the_same_again(api: httpx2.AsyncClient, worker: Worker) -> None:
    told: dict[str, tuple[int, str]] = {}
    for queue, (state, status, result) in enumerate((
        ("scheduled", 200, "cancelled"), ("due", 202, "inFlight"), ("parked", 202, "inFlight"), ("dead", 409, "dead"),
        ("delivered", 409, "delivered"), ("cancelled", 200, "cancelled"), ("removedInFlight", 202, "inFlight"),
        ("discarded", 409, "discarded"),
    )):  # fmt: skip
        id = await bring_into(state, api, worker, queue, keys=["order-42", f"own-{state}"])
        told[id] = (status, result)
        (own,) = (await api.post("/v1/messages:cancel", json={"keys": [f"own-{state}"]})).json()["results"]
        assert own["messages"] == [{"status": status, "id": id, "result": result}], state
    for _ in range(2):
        (all_of_them,) = (await api.post("/v1/messages:cancel", json={"keys": ["order-42"]})).json()["results"]
        assert {one["id"]: (one["status"], one["result"]) for one in all_of_them["messages"]} == told
    (now,) = (await api.post("/v1/messages:deliverNow", json={"keys": ["own-delivered"]})).json()["results"]
    assert [one["result"] for one in now["messages"]] == ["delivered"]


async def test_a_search_finds_what_has_ended_by_a_key_if_it_asks_for_that(
    api: httpx2.AsyncClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_by_key, "IDS", 2)
    for queue in (0, 0x100, 0x200):
        for number, state in enumerate(("delivered", "cancelled", "scheduled")):
            await bring_into(state, api, worker, queue + number, keys=["order-42"])

    async def states(**wanted: Any) -> list[str]:
        found: list[str] = []
        token: dict[str, str] = {}
        while True:
            page = (await api.get("/v1/messages", params={"key": "order-42", "limit": 2, **wanted, **token})).json()
            found += (one["state"] for one in page["messages"])
            if page["nextPageToken"] is None:
                return sorted(found)
            token = {"pageToken": page["nextPageToken"]}

    assert await states() == ["scheduled"] * 3
    assert await states(state="delivered") == ["delivered"] * 3
    assert (
        await states(state="delivered,cancelled,scheduled") == ["cancelled"] * 3 + ["delivered"] * 3 + ["scheduled"] * 3
    )
    assert await states(state="cancelled", topic="orders") == ["cancelled"] * 3
    assert await states(state="cancelled", topic="reviews") == []
    assert await states(state="delivered", topic="orders") == ["delivered"] * 3
    assert (await api.get("/v1/messages", params={"state": "delivered"})).status_code == 400


@pytest.mark.parametrize("topics", ["*", "orders*"])
async def test_what_a_key_cancelled_before_a_page_could_not_be_read_is_told(
    settings: Settings, asgi: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: str
) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    find = commands.find_by_key

    def only_the_first(keys: QueueKeys, key: str, limit: int, after: str = "", **more: Any) -> Command[Carriers]:
        first = find(keys, key, limit, **more)
        return first if not after else replace(first, keys=[keys.state] * 3)

    monkeypatch.setattr(commands, "find_by_key", only_the_first)
    file = KeyFile(tmp_path / "keys.yaml")
    who = file.add("someone", {topics: SCOPES})
    async with asgi(file.settings(settings)) as api:
        for number in range(3):
            given = {"topic": "orders", "delayTime": HOUR, "id": f"m{number}.0000", "keys": ["order-42"]}
            assert (await api.post("/v1/messages", json=given, headers=who)).status_code == 201
        answer = await api.post("/v1/messages:cancel", json={"keys": ["order-42"]}, headers=who)
        assert answer.status_code == 200
        (result,) = answer.json()["results"]
        assert (result["status"], result["problem"]["status"]) == (503, 503)
        told = {one["id"]: one["result"] for one in result["messages"]}
        assert told == {"m0.0000": "cancelled", "m1.0000": "cancelled"}
