"""A change whose reply was lost is answered again as it was, though the message has been delivered meanwhile."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from delayq.testing import MemoryTarget
from tests.api.conftest import Worker, assert_refused, in_process, schedule
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

HOUR = 3_600_000


@pytest.mark.parametrize("change", ["a delay", "a date", "now", "now, by key"])
async def test_a_named_change_that_is_repeated_after_the_delivery_gets_the_answer_of_the_first(
    valkey: ServerUnderTest, change: str
) -> None:
    target = MemoryTarget()
    settings = settings_for(valkey.url, target)
    with RunningNode(settings):
        async with in_process(settings) as api:
            soon = "2020-01-01T00:00:00Z"

            async def ask(**call: str) -> Any:
                if change == "now":
                    return await api.post("/v1/messages/m:deliverNow", json=call)
                if change == "now, by key":
                    return await api.post("/v1/messages:deliverNow", json={"keys": ["k"], **call})
                due = {"delayTime": 1} if change == "a delay" else {"expectDate": soon}
                return await api.patch("/v1/messages/m", json=due | call)

            await api.post("/v1/messages", json={"topic": "m.t", "id": "m", "delayTime": HOUR, "keys": ["k"]})
            first = await ask(call="one")
            target.wait_for_ids(["m"], PATIENCE)
            again = await ask(call="one")
            assert (first.status_code, again.status_code) == (200, 200)
            assert again.json() == first.json()
            for other in ({}, {"call": "two"}):
                told = await ask(**other)
                found = told.json()["results"][0]["messages"][0] if change == "now, by key" else told.json()
                assert (found.get("result") or found["state"]) in ("inFlight", "delivered"), "a call of its own"


async def test_a_named_redrive_that_is_repeated_gets_the_answer_of_the_first(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    async def redrive(**call: str) -> str:
        answer = await api.post("/v1/dead-letters:redrive", json={"ids": ["m"], **call})
        result: str = answer.json()["results"][0]["result"]
        return result

    await schedule(api, id="m", delayTime=0)
    worker.bury("m")
    assert await redrive(call="one") == "scheduled"
    worker.bury("m")
    assert await redrive(call="one") == "scheduled", "the answer of the first"
    assert (await api.get("/v1/messages/m")).json()["state"] == "dead", "which changes nothing now"
    assert await redrive(call="two") == "scheduled"
    worker.deliver("m")
    assert [await redrive(call="one"), await redrive(call="two"), await redrive()] == [
        "scheduled",
        "scheduled",
        "notDead",
    ]


async def test_a_name_of_a_call_that_is_none_is_refused(api: httpx2.AsyncClient) -> None:
    paths = ("/v1/messages/m:deliverNow", "/v1/messages:deliverNow", "/v1/dead-letters:redrive")
    for call in ("", "a b", "a:b", "ä", "x" * 65):
        answers = [await api.post(path, json={"ids": ["m"], "call": call}) for path in paths[1:]]
        answers.append(await api.post(paths[0], json={"call": call}))
        answers.append(await api.patch("/v1/messages/m", json={"delayTime": 1, "call": call}))
        for answer in answers:
            assert assert_refused(answer)["field"] == "call"
