from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.routes import dead_letters as routes_dead_letters
from delayq.config import Settings
from delayq.domain.api_keys import SCOPES
from tests.api.conftest import Serving, Worker
from tests.support.keys import KeyFile
from tests.support.nodes import publish_routes


async def bury(api: httpx2.AsyncClient, worker: Worker, *ids: str, **message: Any) -> None:
    for id in ids:
        answer = await api.post("/v1/messages", json={"topic": "orders", "delayTime": 0, "id": id} | message)
        assert answer.status_code == 201
        worker.bury(id, f"because of {id}")


async def test_a_dead_letter_tells_why_it_is_dead_until_it_is_deleted(api: httpx2.AsyncClient, worker: Worker) -> None:
    await bury(api, worker, "m", body={"order": 42}, tags="unpaid")
    page = (await api.get("/v1/dead-letters")).json()
    assert page["nextPageToken"] is None
    (letter,) = page["deadLetters"]
    assert (letter["id"], letter["attempts"], letter["reason"]) == ("m", 1, "because of m")
    assert letter["message"]["body"] == {"order": 42}
    assert letter["deadTime"] == (await api.get("/v1/messages/m")).json()["endedTime"]
    for _ in range(2):
        assert (await api.delete("/v1/dead-letters/m")).json() == {"id": "m", "result": "discarded"}
    assert (await api.get("/v1/messages/m")).json()["state"] == "discarded"
    assert (await api.get("/v1/dead-letters")).json()["deadLetters"] == []
    await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000, "id": "alive"})
    assert (await api.delete("/v1/dead-letters/alive")).status_code == 404
    assert (await api.get("/v1/messages/alive")).json()["state"] == "scheduled"


async def test_they_come_by_time_from_either_end_and_filtered(api: httpx2.AsyncClient, worker: Worker) -> None:
    await bury(api, worker, *[f"m{i}" for i in range(9)])
    await bury(api, worker, "mail-1", topic="mail")

    async def ids(**params: str) -> list[str]:
        answer = await api.get("/v1/dead-letters", params=params)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["deadLetters"]]

    letters = (await api.get("/v1/dead-letters")).json()["deadLetters"]
    times = [one["deadTime"] for one in letters]
    assert times == sorted(times)
    assert await ids(order="newest") == [one["id"] for one in reversed(letters)]
    assert await ids(topic="ma*") == ["mail-1"]
    assert await ids(reason="OF M3") == ["m3"]
    assert await ids(to=times[0]) == []
    assert await ids(**{"from": times[0]}, limit="3") == [one["id"] for one in letters[:3]]
    assert await ids(to="1000") == []


async def test_a_page_of_large_messages_ends_early(
    api: httpx2.AsyncClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes_dead_letters, "STEP", 2)
    monkeypatch.setattr(routes_dead_letters, "PAGE_BYTES", 1_000)
    await bury(api, worker, *[f"m{i}" for i in range(9)], body="x" * 400)
    first = (await api.get("/v1/dead-letters")).json()
    assert len(first["deadLetters"]) == 4
    second = (await api.get("/v1/dead-letters", params={"pageToken": first["nextPageToken"]})).json()
    assert {one["id"] for one in first["deadLetters"]}.isdisjoint(one["id"] for one in second["deadLetters"])


async def test_a_page_goes_on_until_it_has_one_or_its_time_is_over(
    api: httpx2.AsyncClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MOST_STEPS", 1), ("PAGE_BYTES", 1), ("MOST_SECONDS", 3_600)):
        monkeypatch.setattr(routes_dead_letters, name, value)
    await bury(api, worker, *[f"m{i:02}" for i in range(60)])
    await bury(api, worker, "last", topic="sms")
    page = (await api.get("/v1/dead-letters?topic=sms&limit=1")).json()
    assert [one["id"] for one in page["deadLetters"]] == ["last"]
    monkeypatch.setattr(routes_dead_letters, "MOST_SECONDS", 0)
    page = (await api.get("/v1/dead-letters?topic=sms&limit=1")).json()
    assert (page["deadLetters"], page["nextPageToken"] is None) == ([], False)


async def test_redriven_ones_are_due_and_the_others_told(api: httpx2.AsyncClient, worker: Worker) -> None:
    await bury(api, worker, "a", "b")
    await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000, "id": "alive"})
    answer = await api.post("/v1/dead-letters:redrive", json={"ids": ["b", "alive", "unknown", "no id", "a"]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result.get("result") for result in results] == ["scheduled", "notDead", "notDead", None, "scheduled"]
    assert [result["status"] for result in results] == [200, 409, 409, 400, 200]
    assert results[3]["problem"]["field"] == "ids[3]"
    assert (await api.get("/v1/dead-letters")).json()["deadLetters"] == []
    assert (await api.get("/v1/messages/a")).json()["state"] == "due"
    assert (await api.delete("/v1/messages/a")).json()["result"] == "inFlight"


async def test_many_are_deleted_at_once_and_each_is_told_of(api: httpx2.AsyncClient, worker: Worker) -> None:
    await bury(api, worker, "a", "b", "c")
    await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000, "id": "alive"})
    given = {"ids": ["b", "alive", "unknown", "no id", "a", "b"], "reason": "of no use"}
    for _ in range(2):  # the same again, as after a lost answer
        results = (await api.post("/v1/dead-letters:discard", json=given)).json()["results"]
        told = [one.get("result") for one in results]
        assert told == ["discarded", "notDead", "notDead", None, "discarded", "discarded"]
        assert [one["status"] for one in results] == [200, 409, 409, 400, 200, 200]
    assert [one["id"] for one in (await api.get("/v1/dead-letters")).json()["deadLetters"]] == ["c"]
    entries = (await api.get("/v1/audit?action=discard")).json()["entries"]
    assert sorted(one["id"] for entry in entries for one in entry["messages"]) == ["a", "b"]
    assert {entry["reason"] for entry in entries} == {"of no use"}


async def test_a_group_is_listed_by_the_reason_that_it_is_told_by(api: httpx2.AsyncClient, worker: Worker) -> None:
    reasons = {
        "a": "order 20270131 is gone", "b": "order 99999 is gone", "c": "order 7 is gone", "d": "order 12345 is gone!",
        "e": "order 12345 is gone",
    }  # fmt: skip
    for id, reason in reasons.items():
        await api.post("/v1/messages", json={"topic": "news" if id == "e" else "orders", "delayTime": 0, "id": id})
        worker.bury(id, reason)
    groups = (await api.get("/v1/dead-letters:groups")).json()["groups"]
    listed = {}
    for group in groups:
        params = {"group": group["reason"], "topic": group["topic"], "limit": "1"}
        found = []
        for _ in range(20):
            page = (await api.get("/v1/dead-letters", params=params)).json()
            found += [one["id"] for one in page["deadLetters"]]
            if page["nextPageToken"] is None:
                break
            params["pageToken"] = page["nextPageToken"]
        assert len(found) == group["count"]
        listed[group["topic"], group["reason"]] = sorted(found)
    assert listed == {
        ("orders", "order # is gone"): ["a", "b"],
        ("orders", "order 7 is gone"): ["c"],
        ("orders", "order # is gone!"): ["d"],
        ("news", "order # is gone"): ["e"],
    }
    assert (await api.get("/v1/dead-letters", params={"group": ""})).json()["deadLetters"] == []


@pytest.mark.parametrize("topics", ["*", "?*"])
async def test_one_whose_route_is_gone_is_not_put_back(
    api: httpx2.AsyncClient, worker: Worker, settings: Settings, asgi: Serving, tmp_path: Path, topics: str
) -> None:
    await bury(api, worker, "gone", topic="parcels")
    await bury(api, worker, "here", topic="orders.paid")
    publish_routes(settings.redis_url, [{"name": "orders", "match": "orders*", "target": "redis+stream:"}])
    file = KeyFile(tmp_path / "keys.yaml")
    who = file.add("someone", {topics: SCOPES})
    async with asgi(file.settings(settings)) as later:
        answer = await later.post("/v1/dead-letters:redrive", json={"ids": ["gone", "here", "nobody"]}, headers=who)
        told = [(one["status"], one["result"]) for one in answer.json()["results"]]
        assert told == [(409, "noRoute"), (200, "scheduled"), (409, "notDead")]
        assert (await later.get("/v1/messages/gone", headers=who)).json()["state"] == "dead"
