from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx2
import pytest

from delayq.base.times import parse_instant
from delayq.client import async_client
from tests.api.conftest import HOUR, Worker, assert_refused, bring_into


async def post(api: httpx2.AsyncClient, **message: Any) -> httpx2.Response:
    return await api.post("/v1/messages", json={"topic": "orders", "delayTime": HOUR} | message)


async def test_each_way_to_say_when_gives_the_due_time_that_it_means(api: httpx2.AsyncClient) -> None:
    for due, delay in (
        ({"delayTime": 0}, 0), ({"delayTime": 1500}, 1500), ({"delayTime": "30m"}, 1_800_000),
        ({"delayTime": "PT30M"}, 1_800_000), ({"delayTime": None, "delayLevel": 1}, 1_000),
        ({"delayTime": None, "delayLevel": 18}, 7_200_000), ({"delayTime": None, "delayLevel": 99}, 7_200_000),
        ({"delayTime": None, "expectDate": "2001-01-01T00:00:00Z"}, 0),
    ):  # fmt: skip
        before = parse_instant((await api.get("/v1/queues")).json()["now"])
        scheduled = (await post(api, **due)).json()
        after = parse_instant((await api.get("/v1/queues")).json()["now"])
        assert before <= scheduled["dueMs"] - delay <= after, due
    for date in (1_900_000_000_123, "2030-03-17T17:46:40.123Z", "2030-03-17T19:46:40.123+02:00"):
        scheduled = (await post(api, delayTime=None, expectDate=date)).json()
        assert (scheduled["dueMs"], scheduled["dueTime"]) == (1_900_000_000_123, "2030-03-17T17:46:40.123Z")


async def test_a_body_comes_back_as_it_was_given(api: httpx2.AsyncClient) -> None:
    for body in (
        "", "text", "naïve 🎉 \u0000 ~ \r\n \u2028", None, True, 0, -1.5, [], {}, {"a": [1, {"b": None}]}, ["x", 2]
    ):  # fmt: skip
        id = (await post(api, body=body)).json()["id"]
        message = (await api.get(f"/v1/messages/{id}")).json()["message"]
        assert message["body"] == body
        assert type(message["body"]) is type(body)


async def test_bodies_are_stored_byte_by_byte(api: httpx2.AsyncClient, worker: Worker) -> None:
    body = '{"price":0.10000000000000000000000001,"big":123456789012345678901234567890,"e":1.50E+2}'
    text = '{"topic": "orders", "delayTime": 5000, "body": ' + body.replace(",", " , ") + "}"
    answer = await api.post("/v1/messages", content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 201
    id = answer.json()["id"]
    assert worker.record(id).payload.decode() == body
    assert f'"body":{body}' in (await api.get(f"/v1/messages/{id}")).text
    raw = bytes(range(256))
    id = (await post(api, bodyBase64=base64.b64encode(raw).decode())).json()["id"]
    assert worker.record(id).payload == raw
    message = (await api.get(f"/v1/messages/{id}")).json()["message"]
    assert base64.b64decode(message["bodyBase64"]) == raw
    assert "body" not in message
    id = (await post(api)).json()["id"]
    assert (await api.get(f"/v1/messages/{id}")).json()["message"]["body"] == ""


async def test_every_field_comes_back(api: httpx2.AsyncClient) -> None:
    given = {
        "tags": "unpaid", "keys": ["order-42", "customer-ü"], "properties": {"trace": "a~b", "empty": ""},
        "orderingKey": "order 42", "maxAttempts": 3, "expireAfter": 60_000,
    }  # fmt: skip
    answer = await post(api, **given, body="b")
    assert (answer.status_code, answer.headers["content-type"]) == (201, "application/json")
    scheduled = answer.json()
    assert scheduled["state"] == "scheduled"
    assert parse_instant(scheduled["dueTime"]) == scheduled["dueMs"]
    found = (await api.get(f"/v1/messages/{scheduled['id']}")).json()
    assert found | scheduled == found
    message = found["message"]
    assert message["body"] == "b"
    assert {name: message[name] for name in given} == given
    assert message["topic"] == "orders"
    id = (await post(api, expireAfter="1h30m")).json()["id"]
    assert (await api.get(f"/v1/messages/{id}")).json()["message"]["expireAfter"] == 5_400_000
    # Null means that a field is not given.
    assert (await post(api, **dict.fromkeys([*given, "id", "expectDate", "bodyBase64"]))).status_code == 201


async def test_the_same_call_again_changes_nothing_and_says_so(api: httpx2.AsyncClient) -> None:
    first = await post(api, id="order-42", body={"a": 1})
    again = await post(api, id="order-42", body={"a": 1})
    text = b'{"topic":"orders","delayTime":3600000,"id":"order-42","body":{ "a" : 1 }}'  # white space does not count
    spaced = await api.post("/v1/messages", content=text, headers={"content-type": "application/json"})
    assert [one.status_code for one in (first, again, spaced)] == [201, 200, 200]
    assert again.json() == spaced.json() == first.json()
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 1
    problem = assert_refused(await post(api, id="order-42", body="c"), 409)
    assert (problem["field"], problem["id"]) == ("id", "order-42")
    assert (await api.get("/v1/messages/order-42")).json()["message"]["body"] == {"a": 1}


async def test_the_same_call_after_its_end_says_how_it_ended_and_schedules_nothing(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    """F5 (retry after delivery): 200 with `delivered`, as long as the id is remembered; nothing is sent again."""
    for queue, (state, status) in enumerate({
        "delivered": 200, "dead": 200, "cancelled": 409, "removedInFlight": 409, "discarded": 409
    }.items()):  # fmt: skip
        id = await bring_into(state, api, worker, queue)
        again = await api.post("/v1/messages", json={"topic": "orders", "delayTime": 0, "id": id})
        assert (again.status_code, again.json()["state"]) == (status, state)
        if state == "delivered":
            ended = {"id": id, "queue": queue, "state": state, "dueTime": None, "dueMs": None}
            assert again.json() == ended
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 0


async def test_many_single_calls_at_once_each_get_their_own_outcome(api: httpx2.AsyncClient) -> None:
    await post(api, id="taken", body="first")
    calls: list[tuple[int, dict[str, Any]]] = [(201, {"body": f"b{i}"}) for i in range(60)]
    calls += [(409, {"id": "taken", "body": "second"}), (200, {"id": "taken", "body": "first"})]
    calls += [(400, {"topic": "no spaces"}), (201, {"orderingKey": "k"}), (400, {"maxAttempts": 0})]
    answers = await asyncio.gather(*[post(api, **message) for _, message in calls])
    assert [answer.status_code for answer in answers] == [status for status, _ in calls]
    assert (await api.get("/v1/queues")).json()["total"]["depth"] == 62


async def test_a_message_is_refused_while_too_much_waits(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "WAITING", 0)
    answer = await post(api, id="a")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:delayq:problem:overloaded")
    assert answer.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert (await api.get("/v1/messages/a")).status_code == 404


async def test_what_was_cancelled_before_it_could_be_delivered_is_scheduled_again_if_that_is_asked_for(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    for queue, (state, status) in enumerate((
        ("cancelled", 201), ("removedInFlight", 409), ("delivered", 409), ("discarded", 409), ("scheduled", 409),
    )):  # fmt: skip
        id = await bring_into(state, api, worker, queue)
        new = {"topic": "orders", "delayTime": HOUR, "id": id, "body": "new"}
        assert (await api.post("/v1/messages", json=new)).status_code == 409
        answer = await api.post("/v1/messages", json=new | {"again": True})
        assert answer.status_code == status, state
        (result,) = (await api.post("/v1/messages:batch", json={"messages": [new | {"again": True}]})).json()["results"]
        assert result["status"] == (200 if status == 201 else 409), state  # repeated, it makes no second one
    assert_refused(await api.post("/v1/messages", json={"topic": "orders", "delayTime": HOUR, "again": True}))
