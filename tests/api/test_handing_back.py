"""Handing back delivered messages over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from delayq import Client
from delayq.config import Settings
from tests.api.conftest import Serving, Worker, assert_refused
from tests.support.hand_backs import next_id
from tests.support.keys import KeyFile
from tests.support.servers import ServerUnderTest

TOPIC = "orders.unpaid"


async def hand_back(api: httpx2.AsyncClient, *messages: Any, **more: Any) -> list[dict[str, Any]]:
    answer = await api.post("/v1/messages:handBack", json={"messages": messages}, **more)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["results"])


def item(id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"id": id, "topic": TOPIC, "handBacks": 0, "delayTime": "1h"} | fields


async def test_a_repeated_hand_back_is_the_same_and_counts_up(api: httpx2.AsyncClient) -> None:
    (first,) = await hand_back(api, item(body={"order": 42}, reason="stock API 503"))
    assert (first["status"], first["id"], first["state"], first["handBacks"]) == (201, next_id("a", 1), "scheduled", 1)
    (again,) = await hand_back(api, item(body={"order": 42}, reason="another reason", delayTime="2h"))
    assert again == first | {"status": 200}
    found = (await api.get(f"/v1/messages/{next_id('a', 1)}")).json()
    assert (found["dueTime"], found["message"]["body"]) == (first["dueTime"], {"order": 42})
    (second,) = await hand_back(
        api, item(next_id("a", 1), handBacks=1, properties=found["message"]["properties"], body="x")
    )
    assert (second["id"], second["handBacks"]) == (next_id("a", 2), 2)


async def test_repeated_after_the_delivery_it_gets_the_first_due_time(api: httpx2.AsyncClient, worker: Worker) -> None:
    (first,) = await hand_back(api, item(delayTime=0, reason="why"))
    worker.deliver(next_id("a", 1))
    for reason in ("why", "another"):
        assert await hand_back(api, item(reason=reason)) == [first | {"status": 200, "state": "delivered"}]


async def test_above_the_most_it_is_a_dead_letter_with_all_reasons(api: httpx2.AsyncClient) -> None:
    given = item(
        next_id("a", 16), handBacks=16, reason="last", properties={"delayq-origin": "a", "delayq-reasons": "first"}
    )
    for _ in range(2):
        assert await hand_back(api, given) == [
            {"status": 200, "id": next_id("a", 17), "state": "dead", "handBacks": 17, "dueTime": None, "dueMs": None}
        ]
    (letter,) = (await api.get("/v1/dead-letters")).json()["deadLetters"]
    assert (letter["id"], letter["reason"]) == (next_id("a", 17), "first; last")


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"id": "a", "topic": TOPIC}, 400, "handBacks"),
        (item(handBacks=-1), 400, "handBacks"),
        (item(handBacks="1"), 400, "handBacks"),
        (item(handBacks=10**6), 400, "handBacks"),
        ({"topic": TOPIC, "handBacks": 0}, 400, "id"),
        (item("two words"), 400, "id"),
        (item(topic="two words"), 400, "topic"),
        (item(delayTime="soon"), 400, "delayTime"),
        (item(delayTime=-1), 400, "delayTime"),
        (item(body="x" * (1024 * 1024 + 1)), 413, "body"),
        (item(body="x", bodyBase64="eA=="), 400, "bodyBase64"),
        (item(bodyBase64="!"), 400, "bodyBase64"),
        (item(properties={"a": "x" * 9_000}), 400, "properties"),
        (item(lease="x"), 400, "lease"),
        (1, 400, "messages[0]"),
    ],
)
async def test_a_wrong_message_is_refused_alone(api: httpx2.AsyncClient, wrong: Any, status: int, field: str) -> None:
    good, bad, other = await hand_back(api, item("x"), wrong, item("y"))
    assert [good["id"], other["id"]] == [next_id("x", 1), next_id("y", 1)]
    assert (bad["status"], bad["problem"]["status"]) == (status, status)
    assert bad["problem"].get("field") in (field, None if field == "messages[0]" else field), bad


async def test_so_many_messages_are_too_many(api: httpx2.AsyncClient) -> None:
    answer = await api.post("/v1/messages:handBack", json={"messages": [item()] * 1_001})
    assert assert_refused(answer)["field"] == "messages"


async def test_a_key_needs_the_scope_schedule(asgi: Serving, settings: Settings, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    consumes = keys.add("consumer", {"orders.*": ["schedule"]})
    reads = keys.add("reader", {"orders.*": ["read", "receive", "cancel"]})
    async with asgi(keys.settings(settings)) as api:
        other, done = await hand_back(api, item(topic="news"), item("m"), headers=consumes)
        assert (other["status"], done["status"], done["id"]) == (403, 201, next_id("m", 1))
        (refused,) = await hand_back(api, item("c"), headers=reads)
        assert (refused["status"], refused["problem"]["field"]) == (403, "topic")


async def test_a_message_of_a_key_with_ids_is_handed_back_by_a_key_with_the_same_ids(
    asgi: Serving, settings: Settings, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    schedules = keys.add("shop", {"orders.*": ["schedule"]}, ids="shop-")
    for name, limits in (("press", {"ids": "press-"}), ("other", {})):
        keys.add(name, {"*": ["schedule", "read"]}, **limits)
    keys.add("shop", {"*": ["schedule"]}, ids="shop-")  # another key of this name
    long = "shop-" + "x" * 120
    given = [
        item("shop-1"),
        item("m", properties={"delayq-origin": "shop-1"}),
        item("shop-1", properties={"delayq-origin": "m"}),
        item(long),
    ]
    async with asgi(keys.settings(settings)) as api:
        for name in ("press", "other"):
            headers = {"authorization": f"Bearer {keys.texts[name]}"}
            results = await hand_back(api, *given, headers=headers)
            assert [one["status"] for one in results] == [403] * 4
            assert [one["problem"]["field"] for one in results] == ["id", "properties", "id", "id"]
            assert "same `ids`" in results[0]["problem"]["detail"]
        results = await hand_back(api, *given, headers={"authorization": f"Bearer {keys.texts['shop']}"})
        assert [(one["status"], one["id"]) for one in results[:2]] == [
            (201, next_id("shop-1", 1)),
            (200, next_id("shop-1", 1)),
        ]
        assert results[3]["id"].startswith(long[:64]), "a shortened id is still one of this key"
        assert len(results[3]["id"]) <= 128
        (first,) = await hand_back(api, item("shop-2"), headers=schedules)
        assert (first["status"], first["id"]) == (201, next_id("shop-2", 1))


async def test_hand_backs_count_for_the_quota_of_the_key(asgi: Serving, settings: Settings, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    headers = keys.add("consumer", {"orders.*": ["schedule"]}, pending=1)
    async with asgi(keys.settings(settings)) as api:
        done, full = await hand_back(api, item("a"), item("b"), headers=headers)
        assert (done["status"], full["status"]) == (201, 429)


async def test_a_full_redis_hands_back_nothing(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    await hand_back(api, item())
    valkey.admin.config_set("maxmemory", 1)
    try:
        answer = await api.post("/v1/messages:handBack", json={"messages": [item("b")]})
        problem = assert_refused(answer, 507)
        assert [one["status"] for one in problem["results"]] == [507]
    finally:
        valkey.admin.config_set("maxmemory", 0)


@pytest.mark.parametrize(
    ("given", "kind", "stored"),
    [
        ({"body": '"order 42"', "contentType": "application/json; charset=utf-8"}, "application/json", b'"order 42"'),
        ({"body": '{"price": 1.0}', "contentType": "Application/JSON"}, "application/json", b'{"price":1.0}'),
        ({"body": {"order": 42}, "contentType": "application/json"}, "application/json", b'{"order":42}'),
        ({"body": '"order 42"', "contentType": "text/plain"}, "text/plain; charset=utf-8", b'"order 42"'),
        ({"body": '"order 42"'}, "text/plain; charset=utf-8", b'"order 42"'),
        ({"bodyBase64": "aGk=", "contentType": "application/json"}, "application/octet-stream", b"hi"),
    ],
    ids=repr,
)
async def test_a_string_with_the_content_type_of_json_is_the_text_of_json(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, given: dict[str, Any], kind: str, stored: bytes
) -> None:
    (done,) = await hand_back(api, item(**given))
    with Client(valkey.url, check_routes=False) as client:
        found = client.get(done["id"])
    assert found is not None and found.record is not None
    assert (found.record.content_type, found.record.payload) == (kind, stored)


async def test_a_string_that_is_no_json_is_refused_with_that_content_type(api: httpx2.AsyncClient) -> None:
    (refused,) = await hand_back(api, item(body="{order", contentType="application/json"))
    assert (refused["status"], refused["problem"]["field"]) == (400, "body")
