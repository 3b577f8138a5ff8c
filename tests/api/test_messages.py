"""Looking at messages, and giving them another due."""

from __future__ import annotations

import httpx2

from delayq.base.times import parse_instant
from tests.api.conftest import ENDS, HOUR, Worker, assert_refused, bring_into, schedule


async def test_a_message_tells_its_state(api: httpx2.AsyncClient, worker: Worker) -> None:
    for method, path, body in (
        ("GET", "messages", None), ("DELETE", "messages", None), ("PATCH", "messages", {"delayTime": 1}),
        ("DELETE", "dead-letters", None),
    ):  # fmt: skip
        answer = await api.request(method, f"/v1/{path}/unknown", json=body)
        assert assert_refused(answer, 404)["id"] == "unknown"
    reasons = {"dead": "nobody wants it", "parked": "no live worker reports that it owns its queue"}
    for queue, state in enumerate(("scheduled", "due", "inFlight", "parked", "dead", *ENDS)):
        id = await bring_into(state, api, worker, queue)
        found = (await api.get(f"/v1/messages/{id}")).json()
        assert found["state"] == state
        ended = state in ENDS
        assert (found["message"] is None) == ended
        assert (found["dueMs"] is None) == (ended or state in ("dead", "parked"))
        assert (found["endedTime"] is not None) == (ended or state == "dead")
        assert found["reason"] == reasons.get(state)
        assert found["attempts"] == (1 if state == "dead" else 0)


async def test_a_business_key_finds_its_messages_by_due(api: httpx2.AsyncClient) -> None:
    for name, delay in (("late", 3 * HOUR), ("soon", HOUR), ("middle", 2 * HOUR)):
        await schedule(api, id=name, delayTime=delay, keys=["order-42", name])
    await schedule(api, id="m", keys=["größe/7?&=%+"])
    found = (await api.get("/v1/messages", params={"key": "order-42"})).json()["messages"]
    assert [one["id"] for one in found] == ["soon", "middle", "late"]
    assert found[0]["message"]["keys"] == ["order-42", "soon"]
    found = (await api.get("/v1/messages", params={"key": "größe/7?&=%+"})).json()["messages"]
    assert [one["id"] for one in found] == ["m"]
    assert (await api.get("/v1/messages?key=nobody")).json()["messages"] == []


async def test_a_message_gets_another_due(api: httpx2.AsyncClient) -> None:
    id = await schedule(api, body="b")
    answer = await api.patch(f"/v1/messages/{id}", json={"expectDate": "2030-01-01T00:00:00Z"})
    assert answer.status_code == 200
    changed = answer.json()
    assert changed["dueMs"] == parse_instant("2030-01-01T00:00:00Z")
    found = (await api.get(f"/v1/messages/{id}")).json()
    assert found | changed == found
    assert found["message"]["body"] == "b"
    for due in ({"delayTime": "2h"}, {"delayTime": 5_000}, {"delayLevel": 3}, {"expectDate": 1_900_000_000_000}):
        assert (await api.patch(f"/v1/messages/{id}", json=due)).status_code == 200


async def test_a_message_is_explained_if_that_is_asked_for(api: httpx2.AsyncClient) -> None:
    await schedule(api, id="m", delayTime=0)
    assert "explain" not in (await api.get("/v1/messages/m")).json()
    explained = (await api.get("/v1/messages/m?explain=true")).json()["explain"]
    assert explained == explained | {"waitsFor": "owner", "since": None, "until": None, "owner": None}
    assert "has no owner" in explained["text"]


async def test_a_message_that_may_be_on_its_way_keeps_its_due_time(api: httpx2.AsyncClient, worker: Worker) -> None:
    for queue, state in enumerate(("due", "inFlight", "parked", "dead", *ENDS)):
        id = await bring_into(state, api, worker, queue)
        problem = assert_refused(await api.patch(f"/v1/messages/{id}", json={"delayTime": "2h"}), 409)
        assert problem["state"] == ("inFlight" if state == "due" else state)


async def test_head_is_get_without_its_body(api: httpx2.AsyncClient) -> None:
    id = await schedule(api)
    for path in (f"/v1/messages/{id}", "/v1/queues", "/livez"):
        answer = await api.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 10
