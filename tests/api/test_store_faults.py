"""Redis away, full, or silent: what the API says, and that it goes on by itself."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from delayq import AsyncClient, LayoutMismatch, NotReady, PoliciesChanged, StoreFull, StoreUnavailable
from delayq.config import Settings, load_settings
from delayq.store.connect import server_state
from delayq.store.keys import KEYS
from tests.api.conftest import HOUR, Serving, assert_away, assert_refused
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually


def message(**more: Any) -> dict[str, Any]:
    return {"topic": "orders", "delayTime": HOUR} | more


async def test_a_change_that_was_given_up_is_not_made_behind_a_newer_one(
    proxy: FaultProxy, valkey: ServerUnderTest, settings: Settings, asgi: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B10: A change that was answered 503 is not made after newer ones were confirmed."""
    monkeypatch.setattr(server_state, "ASK_EVERY", 3_600_000)  # the change is sent, and not first a question
    # Short, since this time-out itself is the subject: the proxy holds the change for longer, however slow the machine is.
    cut = load_settings(redis_url=proxy.url, redis_timeout=300)
    async with asgi(cut) as behind, asgi(settings) as beside:
        made = await behind.post("/v1/messages", json=message(id="a"))
        while made.status_code == 503:  # there is no fault yet, but a busy machine may take longer than it waits
            made = await behind.post("/v1/messages", json=message(id="a"))
        assert made.status_code in (200, 201)
        valkey.admin.config_resetstat()
        proxy.hold()
        problem = assert_away(await behind.patch("/v1/messages/a", json={"delayTime": "2h"}))
        assert "the outcome is unknown" in problem["detail"]
        moved = await beside.patch("/v1/messages/a", json={"delayTime": "3h"})
        assert moved.status_code == 200
        proxy.release()
        refused = partial(valkey.admin.info, "errorstats")
        eventually(lambda: "errorstat_EXPIRED" in refused(), "what was held has arrived, and was refused")
        assert (await beside.get("/v1/messages/a")).json()["dueMs"] == moved.json()["dueMs"]


async def test_a_change_that_was_never_sent_is_told_as_not_done(proxy: FaultProxy, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=proxy.url, redis_timeout=REDIS_TIMEOUT)) as api:
        assert (await api.post("/v1/messages", json=message(id="a"))).status_code == 201
        proxy.refuse()
        assert_away(await api.get("/v1/messages/a"))  # that connection is gone
        problem = assert_away(await api.post("/v1/messages", json=message(id="b")))
        assert "nothing was done. Repeat with the same id, b" in problem["detail"]
        problem = assert_away(await api.delete("/v1/messages/a"))
        assert "nothing was done" in problem["detail"]


@pytest.mark.parametrize("known", [True, False], ids=["lost", "never there"])
async def test_a_batch_that_failed_as_a_whole_has_the_ids_to_repeat_with_and_what_is_wrong_is_so(
    proxy: FaultProxy, asgi: Serving, known: bool
) -> None:
    async with asgi(load_settings(redis_url=proxy.url, redis_timeout=REDIS_TIMEOUT)) as api:
        if known:
            assert (await api.get("/v1/queues")).status_code == 200
        proxy.refuse()
        messages = [message(body=1), message(id="mine"), message(orderingKey="k", id="keyed")]
        problem = assert_away(await api.post("/v1/messages:batch", json={"messages": messages}))
        ids = [result["id"] for result in problem["results"]]
        assert ids[1] == "mine"
        assert ids[2].startswith("keyed.")
        assert all("Repeat with the same id" in result["problem"]["detail"] for result in problem["results"])
        mixed = await api.post("/v1/messages:batch", json={"messages": [message(), message(topic="")]})
        assert mixed.status_code == 200
        assert [result["status"] for result in mixed.json()["results"]] == [503, 400]
        for wrong in (message(topic="two words"), message(delayTime=-1), message(id="a b"), message(body=1, x=2)):
            assert (await api.post("/v1/messages", json=wrong)).status_code == 400
        proxy.heal()
        again = [one | {"id": id} for one, id in zip(messages, ids, strict=True)]
        results = (await api.post("/v1/messages:batch", json={"messages": again})).json()["results"]
        assert [(result["status"], result["id"]) for result in results] == [(201, id) for id in ids]


async def test_a_lost_reply_of_a_cancel_tells_the_truth_all_the_same(proxy: FaultProxy, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=proxy.url, redis_timeout=REDIS_TIMEOUT)) as api:
        assert (await api.post("/v1/messages", json=message(id="m"))).status_code == 201
        proxy.drop_reply("cancel", times=2)
        assert "Repeat the same request" in assert_away(await api.delete("/v1/messages/m"))["detail"]
        assert (await api.delete("/v1/messages/m")).json()["result"] == "cancelled"


async def test_an_error_that_nobody_expects_is_told(valkey: ServerUnderTest, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=valkey.url, redis_timeout=REDIS_TIMEOUT)) as api:
        assert (await api.get("/v1/queues")).status_code == 200
        for queue in range(16):
            valkey.admin.set(KEYS.queue(queue).pool, "this is no hash")
        problem = assert_away(await api.post("/v1/messages", json=message()))
        assert "WRONGTYPE" in problem["detail"]
        assert problem["id"]
        assert "WRONGTYPE" in assert_away(await api.get("/v1/messages/a"))["detail"]


async def test_each_error_is_a_problem_of_its_kind_and_a_fault_shows_nothing_of_itself(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, kind, status, retry_after in (
        (StoreFull("canary"), "full", 507, "1"),
        (StoreUnavailable("canary"), "unavailable", 503, "1"),
        (LayoutMismatch("16 queues"), "not-ready", 503, "1"),
        (NotReady("node-1 cannot do it"), "not-ready", 409, None),
        (PoliciesChanged("somebody changed them"), "changed", 412, None),
        (RuntimeError("canary"), "internal", 500, None),
        (MemoryError("canary"), "overloaded", 503, "1"),
    ):
        monkeypatch.setattr(AsyncClient, "get", AsyncMock(side_effect=error))
        answer = await api.get("/v1/messages/a")
        assert assert_refused(answer, status)["type"] == f"urn:delayq:problem:{kind}"
        assert answer.headers.get("retry-after") == retry_after
        assert "canary" not in answer.text
