from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from api.app import Application
from api.service import SHARED
from delayq.config import Settings
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from tests.api.conftest import Worker, in_process, schedule
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH


def app_of(api: httpx2.AsyncClient) -> Application:
    transport: Any = api._transport
    app: Application = transport.app
    return app


async def test_what_is_wrong_is_told_to_programs_and_beside_readiness(api: httpx2.AsyncClient, worker: Worker) -> None:
    await schedule(api, id="m")
    now = worker.store.run(commands.redis_now())
    line = {"node": "node-1", "seen": now, "queues": {}, "complaints": ["queue 3 is stuck"]}
    worker.store.run(commands.publish_node("node-1", json.dumps(line).encode()))
    findings = (await api.get("/v1/status")).json()["findings"]
    (stuck,) = [one for one in findings if one["code"] == "worker"]
    assert stuck == {
        "severity": "critical",
        "code": "worker",
        "runbook": "docs/runbook.md#delayqstuckqueue",
        "text": "node-1: queue 3 is stuck; see the log of node-1",
        "node": "node-1",
    }
    assert findings[0]["severity"] == "critical"
    assert (await api.get("/readyz")).json()["findings"] == findings


async def test_who_needs_no_key_to_ask_is_told_no_words(settings: Settings, tmp_path: Path, worker: Worker) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    boss = keys.add("boss")
    async with in_process(keys.settings(settings)) as api:
        now = worker.store.run(commands.redis_now())
        worker.store.run(commands.publish_node("gone", b'{"node":"gone","seen":%d,"queues":{}}' % (now - 20_000)))
        worker.store.run(commands.layout(16))
        told = (await api.get("/readyz")).json()["findings"]
        assert {name for one in told for name in one} == {"severity", "code", "runbook"}
        assert [one["code"] for one in (await api.get("/v1/status", headers=boss)).json()["findings"]] == [
            one["code"] for one in told
        ]


async def test_when_all_is_well_it_says_no_more_than_that(api: httpx2.AsyncClient, worker: Worker) -> None:
    await schedule(api, id="m")
    now = worker.store.run(commands.redis_now())
    line = {"node": "node-1", "seen": now, "queues": {str(queue): EPOCH for queue in range(16)}}
    worker.store.run(commands.publish_node("node-1", json.dumps(line).encode()))
    assert (await api.get("/v1/status")).json() == {"findings": []}
    assert (await api.get("/readyz")).json() == {"status": "ready"}


async def test_many_who_ask_cost_one(api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    service = app_of(api).service
    asked = AsyncMock(return_value=[])
    monkeypatch.setattr(service.client, "status", asked)
    await asyncio.gather(*(api.get("/v1/status") for _ in range(20)))
    assert asked.await_count == 1
    service.findings._began -= SHARED
    await api.get("/v1/status")
    assert asked.await_count == 2


async def test_a_redis_that_is_away_is_a_finding_since_it_went(settings: Settings) -> None:
    gone = settings.replace(redis_url=f"redis://{LOCALHOST}:{free_port()}/0", redis_timeout=500)
    async with in_process(gone) as api:
        told = []
        for _ in range(2):
            told += (await api.get("/v1/status")).json()["findings"]
            app_of(api).service.findings._began -= SHARED
        assert [(one["severity"], one["code"]) for one in told] == 2 * [("critical", "redis")]
        assert told[0]["since"] == told[1]["since"]
        assert (await api.get("/readyz")).json()["findings"][0]["code"] == "redis"
