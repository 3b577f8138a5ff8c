"""Search by the API: which messages, for whom, page by page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.service import SEARCHES
from delayq import AsyncClient, parse_instant
from delayq.client.looking.search import SearchPage
from delayq.config import Settings
from tests.api.conftest import HOUR, Serving, Worker, assert_refused
from tests.support.keys import KeyFile


async def given(api: httpx2.AsyncClient, worker: Worker) -> None:
    for number in range(12):
        topic = "orders.paid" if number % 2 else "orders.late"
        due = {"id": f"m-{number:02}", "topic": topic, "delayTime": HOUR + number * 60_000, "keys": ["all"]}
        about = {"tags": "vip"} if number % 3 == 0 else {"properties": {"run": "a:7"}}
        assert (await api.post("/v1/messages", json=due | about)).status_code == 201
    assert (await api.post("/v1/messages", json={"topic": "mail", "delayTime": 0, "id": "dead"})).status_code == 201
    worker.bury("dead", "broken")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("messages?", "dueFrom"), ("messages?", "dueTo"), ("messages:count?", "dueTo"), ("forecast?", "dueFrom"),
        ("forecast?dueFrom=2027-01-31T00:00:00Z&step=1h&", "dueTo"), ("audit?", "from"), ("audit?", "to"),
        ("dead-letters?", "from"), ("dead-letters?", "to"),
    ],
)  # fmt: skip
async def test_the_dates_of_a_query_have_a_plus_and_an_error_says_how_to_write_one(
    path: str, name: str, api: httpx2.AsyncClient
) -> None:
    for date in ("2027-01-31T08:00:00+02:00", "2027-01-31 08:00:00+02:00", "2027-01-31T08:00:00.5%2B02:00"):
        answer = await api.get(f"/v1/{path}{name}={date}")
        assert answer.status_code == 200, answer.text
    for wrong, hint in (
        ("2026-11-26 15:30", "%2B"),
        ("15:30", "%2B"),
        ("2026-11-26T15:30:00", "%2B"),
        ("1795713285", "seconds?"),
    ):
        problem = assert_refused(await api.get(f"/v1/{path}{name}={wrong}"))
        assert (problem["field"], hint in problem["detail"]) == (name, True)


async def ids(api: httpx2.AsyncClient, **params: Any) -> list[str]:
    """Of all pages."""
    found: list[str] = []
    while True:
        answer = await api.get("/v1/messages", params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [one["id"] for one in page["messages"]]
        assert page["complete"] == (page["nextPageToken"] is None)
        if page["complete"]:
            return found
        params["pageToken"] = page["nextPageToken"]


async def test_messages_are_found_by_what_they_are(api: httpx2.AsyncClient, worker: Worker) -> None:
    await given(api, worker)
    names = [f"m-{number:02}" for number in range(12)]
    assert await ids(api) == ["dead", *names]
    for limit in (1, 5, 12):
        assert await ids(api, state="scheduled,retrying", limit=limit) == names
        assert await ids(api, topic="orders.?aid", limit=limit) == names[1::2]
    assert await ids(api, tags="vip", topic="orders.late") == names[::6]
    assert await ids(api, property="run:a:7", idPrefix="m-0") == [n for n in names[:10] if int(n[2:]) % 3]
    assert await ids(api, state="dead") == ["dead"]
    assert await ids(api, key="all", tags="vip") == names[::3]
    assert await ids(api, key="all", order="due", limit=5) == names
    whole = (await api.get("/v1/messages?key=all")).json()
    assert (len(whole["messages"]), whole["looked"], whole["complete"]) == (12, 12, True)
    page = (await api.get("/v1/messages?limit=1")).json()["messages"]
    assert page == [(await api.get("/v1/messages/dead")).json()]
    due = (await api.get("/v1/messages/m-05")).json()["dueTime"]
    assert await ids(api, dueFrom=due) == names[5:]
    assert await ids(api, dueTo=due, state="scheduled") == names[:5]
    named = {"topic": "a", "delayTime": HOUR, "properties": {"urn:run": "7:8", "50%": "x"}}  # a colon in a name is %3A
    assert (await api.post("/v1/messages", json=named | {"id": "named"})).status_code == 201
    assert await ids(api, property="urn%3Arun:7:8") == await ids(api, property="50%25:x") == ["named"]
    assert await ids(api, property="urn:run:7:8") == []


async def test_a_key_of_some_topics_finds_those_and_its_tokens_are_sealed(
    settings: Settings, asgi: Serving, worker: Worker, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    keys.add("boss")
    keys.add("late", {"*.late": ["read"]})
    keys.add("writer", {"*.late": ["schedule"]})
    async with asgi(keys.settings(settings)) as api:

        def be(name: str) -> None:
            api.headers["authorization"] = f"Bearer {keys.texts[name]}"

        be("boss")
        await given(api, worker)
        page = (await api.get("/v1/messages?limit=3")).json()
        be("late")
        names = [f"m-{number:02}" for number in range(0, 12, 2)]
        assert await ids(api, limit=2) == await ids(api) == names
        assert await ids(api, topic="*.paid") == await ids(api, state="dead") == await ids(api, idPrefix="m-01") == []
        assert_refused(await api.get("/v1/messages", params={"pageToken": page["nextPageToken"]}))
        token = (await api.get("/v1/messages?limit=2")).json()["nextPageToken"]
        assert_refused(await api.get("/v1/messages", params={"pageToken": token[:-1] + "_"}))
        nobody = {"count": None, "exact": False, "asOf": None}
        assert (await api.get("/v1/messages:count")).json() == nobody  # all that there are are not theirs
        assert (await api.get("/v1/forecast")).json()["buckets"] is None
        for path in ("messages", "messages:count", "forecast", "audit"):
            assert_refused(await api.get(f"/v1/{path}?topic=orders.paid"), 403)
            assert (await api.get(f"/v1/{path}?topic=orders.late")).status_code == 200
            assert (await api.get(f"/v1/{path}?topic=orders.p*")).status_code == 200
        be("writer")
        assert await ids(api) == []
        for path in ("messages", "messages:count", "forecast", "audit"):
            assert_refused(await api.get(f"/v1/{path}?topic=orders.late"), 403)


async def test_messages_are_counted_and_forecast(api: httpx2.AsyncClient, worker: Worker) -> None:
    await given(api, worker)
    due = (await api.get("/v1/messages/m-05")).json()["dueTime"]
    for params, count in (({}, 13), ({"state": "dead"}, 1), ({"dueFrom": due}, 7)):
        answer = await api.get("/v1/messages:count", params=params)
        assert answer.json() == {"count": count, "exact": True, "asOf": None}
    found = (await api.get("/v1/messages?topic=mail")).json()["messages"]
    assert (await api.get("/v1/messages:count?topic=mail")).json() == {"count": len(found), "exact": True, "asOf": None}
    told = (await api.get("/v1/forecast", params={"dueFrom": due, "step": "1m"} | {"dueTo": ms(due) + 150_000})).json()
    assert (told["exact"], told["asOf"], told["drainRate"], told["capacity"]) == (True, None, None, None)
    assert [(ms(one["dueFrom"]) - ms(due), one["messages"]) for one in told["buckets"]] == [
        (0, 1),
        (60_000, 1),
        (120_000, 1),
    ]
    assert len((await api.get("/v1/forecast")).json()["buckets"]) == 96


async def test_few_searches_run_at_the_same_time(api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    async def slow(*_: Any) -> SearchPage:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return SearchPage([], 0, None)

    monkeypatch.setattr(AsyncClient, "search", slow)
    answers = await asyncio.gather(*(api.get("/v1/messages") for _ in range(10)))
    assert [answer.status_code for answer in answers] == [200] * 10
    assert most == SEARCHES


def ms(text: str) -> int:
    return parse_instant(text)
