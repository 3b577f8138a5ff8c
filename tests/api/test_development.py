"""The time of a development server, moved over HTTP. A test with a worker is tests/house/test_moved_time.py."""

from __future__ import annotations

import httpx2

from tests.api.conftest import HOUR, assert_refused
from tests.support.servers import ServerUnderTest


async def test_the_time_of_a_development_server_moves_and_messages_count_from_there(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    valkey.admin.hset("delayq:meta", "advanced", 0)
    moved = (await api.post("/v1/dev:advance", json={"time": "1h"})).json()
    assert moved["ahead"] == HOUR
    scheduled = await api.post("/v1/messages", json={"topic": "t", "body": "x", "id": "m", "delayTime": "30m"})
    assert scheduled.json()["dueMs"] >= moved["nowMs"] + HOUR // 2
    assert (await api.post("/v1/dev:advance", json={"time": 60_000})).json()["ahead"] == HOUR + 60_000


async def test_what_is_due_and_not_delivered_is_told(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    valkey.admin.hset("delayq:meta", "advanced", 0)
    await api.post("/v1/messages", json={"topic": "t", "body": "x", "id": "m", "delayTime": "30m"})
    refused = await api.post("/v1/dev:advance", json={"time": "1h"})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:delayq:problem:still-due"
    assert "1 queues have messages that are due" in refused.json()["detail"]


async def test_any_other_server_refuses_and_does_nothing(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    await api.post("/v1/messages", json={"topic": "t", "body": "x", "id": "m", "delayTime": "30m"})
    refused = await api.post("/v1/dev:advance", json={"time": "1h"})
    assert refused.status_code == 409
    assert refused.json()["type"] == "urn:delayq:problem:not-development"
    assert not valkey.admin.hexists("delayq:meta", "advanced")
    assert_refused(await api.post("/v1/dev:advance", json={"time": "soon"}))
