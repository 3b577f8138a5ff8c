"""What a policy says of a topic holds for requests: 429 for more than may wait, and the answer says what was spread."""

from __future__ import annotations

import httpx2

from delayq import Client
from delayq.config import Settings
from delayq.store.keys import spread
from tests.support.policies import put_policy

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
