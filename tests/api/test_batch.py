from __future__ import annotations

from typing import Any

import httpx2

from delayq.config import Settings
from tests.api.conftest import HOUR, Serving


def message(**more: Any) -> dict[str, Any]:
    return {"topic": "orders", "delayTime": HOUR} | more


async def batch(api: httpx2.AsyncClient, *messages: Any) -> list[dict[str, Any]]:
    answer = await api.post("/v1/messages:batch", json={"messages": messages})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert len(results) == len(messages)
    return results


async def test_each_message_of_the_largest_batch_gets_its_result_in_order(api: httpx2.AsyncClient) -> None:
    results = await batch(api, *[message(id=f"m{i}", delayTime=HOUR + i) for i in range(1_000)])
    assert [result["id"] for result in results] == [f"m{i}" for i in range(1_000)]
    assert {result["status"] for result in results} == {201}
    first = results[0]
    assert set(first) == {"status", "id", "queue", "state", "dueTime", "dueMs"}
    found = (await api.get("/v1/messages/m0")).json()
    assert (found["dueMs"], found["dueTime"], found["queue"]) == (first["dueMs"], first["dueTime"], first["queue"])
    made = await batch(api, *[message()] * 1_000)
    assert len({result["id"] for result in made if result["status"] == 201}) == 1_000
    answer = await api.post("/v1/messages:batch", json={"messages": [message()] * 1_001})
    assert (answer.status_code, answer.json()["field"]) == (400, "messages")
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 2_000


async def test_invalid_ones_are_refused_by_themselves_and_the_others_scheduled(api: httpx2.AsyncClient) -> None:
    assert await batch(api) == []
    await batch(api, message(id="taken", body="first"))
    await batch(api, message(id="gone"))
    assert (await api.delete("/v1/messages/gone")).status_code == 200
    table: list[tuple[Any, int, str | None]] = [
        (message(), 201, None), (message(topic="two words"), 400, "topic"), (message(delayTime="soon"), 400, "delayTime"),
        (message(id="taken", body="second"), 409, "id"), (7, 400, None), (message(id="taken", body="first"), 200, None),
        (message(body=1, bodyBase64="YQ=="), 400, "bodyBase64"), (message(id="gone"), 409, "id"),
        (message(keys=["a", 1]), 400, "keys[1]"), (message(orderingKey="k"), 201, None),
        ({"topic": "orders", "expectDate": True}, 400, "expectDate"), (message(id="own"), 201, None), (None, 400, None),
        (message(id="own"), 200, None), (message(id="own", body="other"), 409, "id"),
    ]  # fmt: skip
    results = await batch(api, *[one for one, _, _ in table])
    told = [(result["status"], result.get("problem", {}).get("field")) for result in results]
    assert told == [(status, field) for _, status, field in table]
    assert [results[7]["id"], results[7]["problem"]["state"]] == ["gone", "cancelled"]
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 4


async def test_a_body_over_its_limit_is_too_large_by_itself(settings: Settings, asgi: Serving) -> None:
    async with asgi(settings.replace(body_limit=100)) as api:
        results = await batch(api, message(body="x" * 100), message(body="x" * 101), message(body=["x" * 97]))
        assert [result["status"] for result in results] == [201, 413, 413]
        assert results[1]["problem"]["field"] == "body"
