from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from api.app import Application
from api.routes.openapi import VERSION
from api.service import SHARED
from delayq.config import Settings
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from tests.api.conftest import Worker, in_process, schedule
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH
from tests.support.timeouts import REDIS_TIMEOUT


def app_of(api: httpx2.AsyncClient) -> Application:
    transport: Any = api._transport
    app: Application = transport.app
    return app


async def test_what_is_wrong_is_told_to_programs_and_beside_readiness(api: httpx2.AsyncClient, worker: Worker) -> None:
    await schedule(api, id="m")
    now = worker.store.run(commands.redis_now())
    line = {"node": "node-1", "seen": now, "queues": {str(queue): EPOCH for queue in range(16)}}
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
    assert (await api.get("/v1/status")).json() == {"findings": []}
    assert (await api.get("/readyz")).json() == {"status": "ready"}
    line |= {"complaints": ["queue 3 is stuck"]}
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
    app_of(api).service.facts._began -= SHARED
    (stuck,) = findings = (await api.get("/v1/status")).json()["findings"]
    assert stuck == {
        "severity": "critical",
        "code": "worker",
        "runbook": "docs/runbook.md#delayqstuckqueue",
        "text": "node-1: queue 3 is stuck; see the log of node-1",
        "node": "node-1",
    }
    assert (await api.get("/readyz")).json()["findings"] == findings


async def test_a_setting_that_does_nothing_is_a_finding_that_names_it(api: httpx2.AsyncClient, worker: Worker) -> None:
    now = worker.store.run(commands.redis_now())
    routes: list[dict[str, Any]] = [
        {"name": "all", "match": "*", "target": "https://h.example", "unused": ["maxLength"]},
        {"name": "late", "match": "mail.*", "target": "redis+stream:", "stream": "{topic}"},
    ]
    line = {"seen": now, "queues": {str(queue): EPOCH for queue in range(16)}, "routes": routes, "policies": ""}
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
    for name, fields in (("first", {"order": 1, "window": 5}), ("second", {"window": 5})):
        assert (await api.put(f"/v1/policies/{name}", json={"match": "a.*", **fields})).status_code == 200
    assert (await api.put("/v1/policies/kept", json={"match": "b", "retentionAge": "1h"})).status_code == 200
    findings = (await api.get("/v1/status")).json()["findings"]
    assert {(one["code"], one["severity"]) for one in findings} == {("noEffect", "warning")}
    told = " ".join(one["text"] for one in findings)
    for named in (
        "route all has maxLength",
        "route late with mail.*",
        "policy second for a.*",
        "policy kept for b has",
    ):
        assert named in told


@pytest.mark.parametrize(
    ("form", "key", "why"),
    [
        ("invoice-{}.2026", None, "most of its ids end in a dot and four digits of 0-9 a-f"),
        ("host-{}.cafe", None, "most of its ids end in a dot and four digits of 0-9 a-f"),
        ("order-{}", "one", "most of its messages have ordering keys"),
        ("invoice-{}-2026", None, None),
        (None, None, None),
    ],
)
async def test_a_queue_that_has_most_messages_by_the_form_of_their_ids_is_a_finding(
    api: httpx2.AsyncClient, worker: Worker, form: str | None, key: str | None, why: str | None
) -> None:
    now = worker.store.run(commands.redis_now())
    line = {"node": "node-1", "seen": now, "queues": {str(queue): EPOCH for queue in range(16)}}
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
    fields: dict[str, Any] = {"topic": "t", "delayTime": "1h"} | ({} if key is None else {"orderingKey": key})
    for step in range(2):
        ids = [{} if form is None else {"id": form.format(step * 600 + number)} for number in range(600)]
        answer = await api.post("/v1/messages:batch", json={"messages": [fields | one for one in ids]})
        assert answer.status_code == 200
    findings = (await api.get("/v1/status")).json()["findings"]
    assert [(one["code"], one["severity"]) for one in findings] == [("fullQueue", "warning")] * (why is not None)
    if why is not None:
        assert "has 1200 messages, far more than its share" in findings[0]["text"]
        assert why in findings[0]["text"]


async def test_a_redis_that_is_away_is_a_finding_since_it_went(settings: Settings) -> None:
    gone = settings.replace(redis_url=f"redis://{LOCALHOST}:{free_port()}/0", redis_timeout=REDIS_TIMEOUT)
    async with in_process(gone) as api:
        told = []
        for _ in range(2):
            told += (await api.get("/v1/status")).json()["findings"]
            app_of(api).service.facts._began -= SHARED
        assert [(one["severity"], one["code"]) for one in told] == 2 * [("critical", "redis")]
        assert told[0]["since"] == told[1]["since"]
        assert (await api.get("/readyz")).json()["findings"][0]["code"] == "redis"


async def test_the_overview_has_what_there_is_and_the_pauses(api: httpx2.AsyncClient, worker: Worker) -> None:
    for number in range(6):
        await schedule(api, id=f"m{number}", delayTime=0 if number < 4 else 3_600_000)
    worker.bury("m0")
    worker.park("m1")
    worker.park("m2", "h:orders")
    until = "2030-01-01T00:00:00.000Z"
    for match, reason in (("sms.*", "down"), ("mail", "")):
        given = {"match": match, "reason": reason, "until": until}
        assert (await api.post("/v1/topics:pause?wait=0", json=given)).status_code == 200
    found = (await api.get("/v1/overview")).json()
    figures = {name: found[name]["count"] for name in ("scheduled", "due", "held", "parked", "dead")}
    assert figures == {"scheduled": 2, "due": 1, "held": 1, "parked": 1, "dead": 1}
    assert found["held"]["asOf"] == found["now"]
    assert (found["traffic"], found["liveNodes"]) == (None, 0)
    assert found["memory"]["bytes"] > 0
    assert (found["memory"]["maxBytes"], found["memory"]["policy"]) == (0, "noeviction")
    assert found["findings"] == (await api.get("/v1/status")).json()["findings"]
    assert found["pauses"] == (await api.get("/v1/policies")).json()["pauses"]
    told = [(one["match"], one.get("reason"), one["until"]) for one in found["pauses"]]
    assert told == [("sms.*", "down", until), ("mail", None, until)]


async def test_an_answer_that_many_ask_for_is_made_once(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = app_of(api).service
    clock = ManualClock()
    monkeypatch.setattr(service.facts, "_clock", clock)
    asked = AsyncMock(side_effect=service.facts._find)
    monkeypatch.setattr(service.facts, "_find", asked)
    for path, one in (("/v1/overview", service.overview), ("/v1/status", service.status)):
        made: list[object] = []
        make: Any = one._make
        monkeypatch.setattr(one, "_make", lambda of, make=make, made=made: made.append(of) or make(of))
        clock.advance(SHARED)
        asked.reset_mock()
        answers = await asyncio.gather(*(api.get(path) for _ in range(20)))
        assert (len({answer.content for answer in answers}), len(made), asked.await_count) == (1, 1, 1)
        clock.advance(SHARED)
        await api.get(path)
        assert (len(made), asked.await_count) == (2, 2)


async def test_dead_letters_are_grouped_for_those_who_may_read_them(
    settings: Settings, tmp_path: Path, worker: Worker
) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    boss, shop = keys.add("boss"), keys.add("shop", {"orders": ["read"]})
    async with in_process(keys.settings(settings)) as api:
        for number in range(5):
            topic = "orders" if number < 3 else "news"
            body = {"topic": topic, "delayTime": 0, "id": f"m{number}"}
            assert (await api.post("/v1/messages", json=body, headers=boss)).status_code == 201
            worker.bury(f"m{number}", f"order {number}00017 is gone" if number else "answered 404")
        found = (await api.get("/v1/dead-letters:groups", headers=boss)).json()
        told = [(one["topic"], one["reason"], one["count"]) for one in found["groups"]]
        assert told == [("news", "order # is gone", 2), ("orders", "order # is gone", 2), ("orders", "answered 404", 1)]
        assert (found["looked"], found["complete"], sorted(found["groups"][1]["examples"])) == (5, True, ["m1", "m2"])
        mine = (await api.get("/v1/dead-letters:groups?limit=1", headers=shop)).json()
        assert ([one["topic"] for one in mine["groups"]], mine["looked"]) == (["orders"], 3)


async def test_who_asks_is_told_what_it_may(
    settings: Settings, tmp_path: Path, api: httpx2.AsyncClient, worker: Worker
) -> None:
    mine = (await api.get("/v1/me")).json()
    everything = {"*": ["schedule", "cancel", "read", "receive", "admin"]}
    assert mine == {"name": None, "scopes": everything, "version": VERSION, "console": "yes", "session": False}
    keys = KeyFile(tmp_path / "keys.yaml")
    boss, shop = keys.add("boss"), keys.add("shop", {"orders": ["read"]})
    now = worker.store.run(commands.redis_now())
    worker.store.run(commands.publish_node(KEYS, "gone", b'{"node":"gone","seen":%d,"queues":{}}' % (now - 20_000)))
    worker.store.run(commands.layout(KEYS, 16))
    async with in_process(keys.settings(settings)) as guarded:
        mine = (await guarded.get("/v1/me", headers=shop)).json()
        assert (mine["name"], mine["scopes"], mine["session"]) == ("shop", {"orders": ["read"]}, False)
        told = (await guarded.get("/readyz")).json()["findings"]  # who needs no key is told no words
        assert {name for one in told for name in one} == {"severity", "code", "runbook"}
        findings = (await guarded.get("/v1/status", headers=boss)).json()["findings"]
        assert [one["code"] for one in findings] == [one["code"] for one in told]
