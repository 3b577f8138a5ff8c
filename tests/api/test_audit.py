"""Who changed what by hand, as the API writes it down and tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from delayq.base.clock import SystemClock
from delayq.config import Settings
from tests.api.conftest import HOUR, Serving, Tenants, Worker, assert_refused, bring_into
from tests.support.keys import KeyFile


class Door(Tenants):
    """An API with keys: `boss` for everything; `shop` on orders, whose cancels are written down; `press` on news."""

    async def given(self, id: str, topic: str, delay: int = HOUR) -> None:
        await self.schedule("boss", topic, id=id, delayTime=delay, keys=[f"key-{id}"])

    async def audit(self, name: str, query: str = "") -> list[dict[str, Any]]:
        answer = await self.ask(name, "GET", f"/v1/audit{query}")
        assert answer.status_code == 200, answer.text
        entries: list[dict[str, Any]] = answer.json()["entries"]
        return entries


@pytest.fixture
async def door(settings: Settings, asgi: Serving, tmp_path: Path) -> AsyncIterator[Door]:
    keys = KeyFile(tmp_path / "keys.yaml")
    keys.add("boss")
    keys.add("shop", {"orders.*": ["schedule", "cancel", "read", "admin"]}, audit=True)
    keys.add("press", {"news": ["schedule", "cancel", "read", "admin"]})
    async with asgi(keys.settings(settings)) as api:
        yield Door(api, keys)


def told(entries: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    return [(one["actor"], one["action"], [m["id"] for m in one["messages"]]) for one in entries]


async def test_what_is_done_by_hand_is_written_down_and_what_applications_do_only_if_their_key_says_so(
    door: Door, worker: Worker
) -> None:
    for id, topic in (("a", "orders.x"), ("b", "orders.x"), ("c", "news"), ("d", "news")):
        await door.given(id, topic)
    await door.given("dead", "news", 0)
    worker.bury("dead")
    with capture_logs() as logs:
        await door.ask("shop", "DELETE", "/v1/messages/a", **{"delayq-reason": "gone"})
        await door.ask("shop", "POST", "/v1/messages:cancel", {"keys": ["key-b"], "reason": "gone, too"})
        await door.ask("shop", "DELETE", "/v1/messages/a")  # nothing is left to do
        await door.ask("press", "DELETE", "/v1/messages/c")
        await door.ask("press", "PATCH", "/v1/messages/d", {"delayTime": HOUR})
        await door.ask("press", "POST", "/v1/dead-letters:redrive", {"ids": ["dead", "nobody"]})
    worker.bury("dead")
    await door.ask("boss", "DELETE", "/v1/dead-letters/dead")
    entries = await door.audit("boss")
    # Those of one ms come in the order of their queues.
    entries.sort(key=lambda one: (one["time"], one["messages"][0]["id"]), reverse=True)
    assert told(entries) == [
        ("boss", "discard", ["dead"]),
        ("press", "redrive", ["dead"]),
        ("shop", "cancel", ["b"]),
        ("shop", "cancel", ["a"]),
    ]
    assert [one.get("reason", "") for one in entries] == ["", "", "gone, too", "gone"]
    assert entries[-1]["key"] == door.keys.keys[1].id
    assert entries[-1]["messages"] == [{"id": "a", "topic": "orders.x", "keys": ["key-a"]}]
    events = [(one["actor"], one["action"], one["ids"]) for one in logs if one["event"] == "audit"]
    assert events == [("shop", "cancel", ["a"]), ("shop", "cancel", ["b"]), ("press", "redrive", ["dead"])]
    samples = (await door.ask("boss", "GET", "/metrics")).text
    assert "delayq_audit_entries_total 4.0" in samples


async def test_a_key_sees_what_concerns_topics_that_it_reads(door: Door, worker: Worker) -> None:
    for id, topic in (("a", "orders.x"), ("c", "news")):
        await door.given(id, topic, 0)
        worker.bury(id)
    await door.ask("boss", "POST", "/v1/dead-letters:redrive", {"ids": ["a", "c"]})
    await door.ask("boss", "GET", "/v1/queues")
    assert sorted(id for _, _, ids in told(await door.audit("boss")) for id in ids) == ["a", "c"]
    assert told(await door.audit("shop")) == [("boss", "redrive", ["a"])]
    page = (await door.ask("press", "GET", "/v1/audit?limit=1")).json()
    assert [one["messages"][0]["id"] for one in page["entries"]] == ["c"]
    for query in ("?id=c", "?key=key-c", "?topic=n*", "?topic=news&actor=boss&action=redrive&from=0"):
        assert told(await door.audit("boss", query)) == [("boss", "redrive", ["c"])]
    assert await door.audit("boss", "?to=1000") == []
    assert_refused(await door.ask("press", "GET", f"/v1/audit?pageToken={page['nextPageToken'][::-1]}"))


async def test_a_token_of_an_audit_is_of_that_one_and_whole(door: Door) -> None:
    for id in "abc":
        await door.given(id, "orders.x")
        await door.ask("shop", "DELETE", f"/v1/messages/{id}")
    assert (await door.ask("boss", "GET", "/v1/messages/a")).json()["endedBy"] == "shop"
    token = (await door.ask("boss", "GET", "/v1/audit?limit=1&action=cancel")).json()["nextPageToken"]
    assert len(await door.audit("boss", f"?action=cancel&pageToken={token}")) == 2
    for n in range(len(token)):
        wrong = token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :]
        answer = await door.ask("boss", "GET", f"/v1/audit?action=cancel&pageToken={wrong}")
        assert assert_refused(answer)["field"] == "pageToken"
    assert_refused(await door.ask("boss", "GET", f"/v1/audit?action=redrive&pageToken={token}"))
    await door.given("d", "orders.x")
    for reason in ("x" * 201, "two\nlines"):
        body = {"ids": ["d"], "reason": reason}
        assert assert_refused(await door.ask("shop", "POST", "/v1/messages:cancel", body))["field"] == "reason"
    await door.ask("boss", "DELETE", "/v1/messages/d")
    ended = (await door.ask("boss", "GET", "/v1/messages/d")).json()
    assert (ended["state"], ended["endedBy"]) == ("cancelled", "boss"), "though its cancels are not in the audit"
    assert await door.audit("boss", "?id=d") == []


async def test_what_is_changed_in_the_console_is_done_by_hand_and_what_changes_nothing_is_not_told(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    for id in "abcdefg":
        await api.post("/v1/messages", json={"topic": "orders", "delayTime": HOUR, "id": id, "keys": ["k"]})
    for id in ("dead", "redriven"):
        await api.post("/v1/messages", json={"topic": "orders", "delayTime": 0, "id": id})
        worker.bury(id)
    page = {"sec-fetch-site": "same-origin"}
    plain = {"origin": "http://delayq.internal:8080"}  # over plain HTTP it is all that browsers say
    calls: list[tuple[str, str, Any, dict[str, str]]] = [
        ("PATCH", "/v1/messages/a", {"expectDate": "2033-05-18T03:33:20Z"}, page),
        ("POST", "/v1/messages/a:deliverNow", {}, page),
        ("POST", "/v1/messages:deliverNow", {"ids": ["a", "b", "nobody"]}, page),
        ("DELETE", "/v1/messages/b", None, page),
        ("POST", "/v1/messages:cancel", {"ids": ["b", "c"], "reason": "the shop is closed"}, page),
        ("DELETE", "/v1/messages/d", None, plain),
        ("DELETE", "/v1/messages/e", None, {}),
        ("DELETE", "/v1/messages/f", None, {"sec-fetch-site": "none"}),
        ("DELETE", "/v1/messages/g", None, plain | {"sec-fetch-site": "cross-site"}),
        ("DELETE", "/v1/dead-letters/dead", None, page),
        ("POST", "/v1/dead-letters:discard", {"ids": ["dead"]}, page),
        ("POST", "/v1/dead-letters:redrive", {"ids": ["redriven"]}, {"delayq-reason": "naïve"}),
    ]
    with capture_logs() as logs:
        for method, path, body, headers in calls:
            given = [(name.encode(), value.encode()) for name, value in headers.items()]
            for _ in range(2):
                answer = await api.request(method, path, json=body, headers=given)
                assert answer.status_code in (200, 202), answer.text
    events = [(one["action"], one["ids"][0], one.get("reason", "")) for one in logs if one["event"] == "audit"]
    assert events == [
        ("reschedule", "a", ""), ("deliverNow", "a", ""), ("deliverNow", "b", ""), ("cancel", "b", ""),
        ("cancel", "c", "the shop is closed"), ("cancel", "d", ""), ("discard", "dead", ""), ("redrive", "redriven", "naïve"),
    ]  # fmt: skip
    entries = (await api.get("/v1/audit")).json()["entries"]
    found = [(one["action"], one["messages"][0]["id"], one.get("reason", "")) for one in entries]
    assert sorted(found) == sorted(events)
    assert {one["actor"] for one in entries} == {"anybody"}
    assert f"delayq_audit_entries_total {len(events)}.0" in (await api.get("/metrics")).text


@pytest.mark.parametrize(("ago", "entries"), [(0, 1), (3_700_000, 2), (-3_700_000, 2)])
async def test_requests_that_say_that_they_are_one_act_are_one_entry_for_an_hour(
    api: httpx2.AsyncClient, worker: Worker, ago: int, entries: int
) -> None:
    act = {"Delayq-Act": f"{SystemClock().now() - ago}-00c0ffee"}
    for queue in (0, 1):
        id = await bring_into("dead", api, worker, queue)
        answer = await api.post("/v1/dead-letters:redrive", json={"ids": [id]}, headers=act)
        assert answer.json()["results"][0]["result"] == "scheduled"
    found = (await api.get("/v1/audit")).json()["entries"]
    assert [len(one["messages"]) for one in found] == [2 // entries] * entries


async def test_many_messages_by_one_request_are_one_entry_with_their_number(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    ids = [await bring_into("dead", api, worker, queue) for queue in range(6)]
    await api.post("/v1/dead-letters:discard", json={"ids": ids, "reason": "a test"})
    (entry,) = (await api.get("/v1/audit")).json()["entries"]
    assert (sorted(one["id"] for one in entry["messages"]), "queue" in entry) == (sorted(ids), False)
