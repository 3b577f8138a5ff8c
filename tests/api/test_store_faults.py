"""Redis away, full, or silent: what the API says, and that it goes on by itself."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delayq.config import Settings, load_settings
from delayq.embedded import EmbeddedServer
from delayq.store.connect import peer
from delayq.store.keys import queue_keys
from tests.api.conftest import Serving, assert_away
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

HOUR = 3_600_000
AWAY = [
    ("GET", "/v1/messages/a", None),
    ("GET", "/v1/messages?key=a", None),
    ("DELETE", "/v1/messages/a", None),
    ("PATCH", "/v1/messages/a", {"delayTime": 1}),
    ("POST", "/v1/messages:cancel", {"ids": ["a", "b"]}),
    ("POST", "/v1/messages:cancel", {"keys": ["a", "b"]}),
    ("GET", "/v1/queues", None),
    ("GET", "/v1/nodes", None),
    ("GET", "/v1/routes", None),
    ("GET", "/v1/stats", None),
    ("GET", "/v1/dead-letters", None),
    ("POST", "/v1/dead-letters:redrive", {"ids": ["a"]}),
    ("DELETE", "/v1/dead-letters/a", None),
    ("GET", "/readyz", None),
]


def message(**more: Any) -> dict[str, Any]:
    return {"topic": "orders", "delayTime": HOUR} | more


async def test_a_redis_that_is_down_at_start_is_told_and_found_when_it_comes(tmp_path: Path, asgi: Serving) -> None:
    server = EmbeddedServer(data_dir=tmp_path / "valkey")
    async with asgi(load_settings(redis_url=server.url)) as api:
        assert (await api.get("/livez")).status_code == 200
        problem = assert_away(await api.get("/readyz"))
        assert "Redis is away" in problem["missing"][0]
        problem = assert_away(await api.post("/v1/messages", json=message(body="b")))
        assert "repeat with the same id" in problem["detail"]
        server.start()
        try:
            assert (await api.get("/readyz")).status_code == 200
            again = await api.post("/v1/messages", json=message(body="b", id=problem["id"]))
            assert again.status_code == 201
            assert again.json()["id"] == problem["id"]
        finally:
            server.stop()


async def test_a_redis_that_was_killed_is_found_again_with_everything_in_it(
    own_valkey: EmbeddedServer, asgi: Serving
) -> None:
    async with asgi(load_settings(redis_url=own_valkey.url)) as api:
        assert (await api.post("/v1/messages", json=message(id="before"))).status_code == 201
        own_valkey.kill()
        problem = assert_away(await api.post("/v1/messages", json=message(id="while")))
        assert problem["id"] == "while"
        own_valkey.start()
        assert (await api.post("/v1/messages", json=message(id="while"))).status_code == 201
        assert (await api.get("/v1/messages/before")).json()["state"] == "scheduled"


@pytest.mark.parametrize(("method", "path", "body"), AWAY, ids=[f"{one[0]} {one[1]} {one[2]}" for one in AWAY])
@pytest.mark.parametrize("known", [True, False], ids=["lost", "never there"])
async def test_every_path_says_that_redis_is_away(
    proxy: FaultProxy, asgi: Serving, known: bool, method: str, path: str, body: Any
) -> None:
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        if known:
            assert (await api.get("/v1/stats")).status_code == 200
        proxy.refuse()
        problem = assert_away(await api.request(method, path, json=body))
        if body is not None and "ids" in body:
            assert [result["id"] for result in problem["results"]] == body["ids"]
        proxy.heal()
        assert (await api.get("/v1/stats")).status_code == 200


async def test_a_change_that_was_given_up_is_not_made_behind_a_newer_one(
    proxy: FaultProxy, valkey: ServerUnderTest, settings: Settings, asgi: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "ASK_EVERY", 3_600_000)  # the change is sent, and not first a question
    cut = load_settings(redis_url=proxy.url, redis_timeout=300)
    async with asgi(cut) as behind, asgi(settings) as beside:
        assert (await behind.post("/v1/messages", json=message(id="a"))).status_code == 201
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
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        assert (await api.post("/v1/messages", json=message(id="a"))).status_code == 201
        proxy.refuse()
        assert_away(await api.get("/v1/messages/a"))  # that connection is gone
        problem = assert_away(await api.post("/v1/messages", json=message(id="b")))
        assert "nothing was done: repeat with the same id, b" in problem["detail"]
        problem = assert_away(await api.delete("/v1/messages/a"))
        assert "nothing was done" in problem["detail"]


async def test_a_wrong_message_is_wrong_also_while_redis_is_away(proxy: FaultProxy, asgi: Serving) -> None:
    proxy.refuse()
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        for wrong in (message(topic="two words"), message(delayTime=-1), message(id="a b"), message(body=1, x=2)):
            assert (await api.post("/v1/messages", json=wrong)).status_code == 400


@pytest.mark.parametrize("known", [True, False], ids=["lost", "never there"])
async def test_a_batch_that_failed_as_a_whole_has_the_ids_to_repeat_with(
    proxy: FaultProxy, asgi: Serving, known: bool
) -> None:
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        if known:
            assert (await api.get("/v1/stats")).status_code == 200
        proxy.refuse()
        messages = [message(body=1), message(id="mine"), message(orderingKey="k", id="keyed")]
        problem = assert_away(await api.post("/v1/messages:batch", json={"messages": messages}))
        ids = [result["id"] for result in problem["results"]]
        assert ids[1] == "mine"
        assert ids[2].startswith("keyed.")
        assert all("repeat with the same id" in result["problem"]["detail"] for result in problem["results"])
        mixed = await api.post("/v1/messages:batch", json={"messages": [message(), message(topic="")]})
        assert mixed.status_code == 200
        assert [result["status"] for result in mixed.json()["results"]] == [503, 400]
        proxy.heal()
        again = [one | {"id": id} for one, id in zip(messages, ids, strict=True)]
        results = (await api.post("/v1/messages:batch", json={"messages": again})).json()["results"]
        assert [(result["status"], result["id"]) for result in results] == [(201, id) for id in ids]


async def test_a_lost_reply_makes_no_second_message(proxy: FaultProxy, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        proxy.drop_reply("schedule")
        answer = await api.post("/v1/messages", json=message())
        assert answer.status_code in (200, 201)
        proxy.drop_reply("schedule", times=2)
        problem = assert_away(await api.post("/v1/messages", json=message(body="b")))
        assert "repeat with the same id" in problem["detail"]
        again = await api.post("/v1/messages", json=message(body="b", id=problem["id"]))
        assert (again.status_code, again.json()["id"]) == (200, problem["id"])
        assert (await api.get("/v1/stats")).json()["depth"] == 2


async def test_a_lost_reply_of_a_cancel_tells_the_truth_all_the_same(proxy: FaultProxy, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=proxy.url)) as api:
        assert (await api.post("/v1/messages", json=message(id="m"))).status_code == 201
        proxy.drop_reply("cancel", times=2)
        assert "repeating" in assert_away(await api.delete("/v1/messages/m"))["detail"]
        assert (await api.delete("/v1/messages/m")).json()["result"] == "cancelled"


async def test_a_redis_that_is_silent_is_away_after_its_time_out(proxy: FaultProxy, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=proxy.url, redis_timeout=100)) as api:
        assert (await api.get("/v1/stats")).status_code == 200
        proxy.black_hole()
        answers = await asyncio.gather(*[api.post("/v1/messages", json=message()) for _ in range(10)])
        assert len({assert_away(answer)["id"] for answer in answers}) == 10
        proxy.heal()
        assert (await api.post("/v1/messages", json=message())).status_code == 201


async def test_a_full_redis_refuses_what_is_new_and_cancels_what_it_has(tmp_path: Path, asgi: Serving) -> None:
    with EmbeddedServer(data_dir=tmp_path / "valkey", maxmemory="8mb") as server:
        async with asgi(load_settings(redis_url=server.url)) as api:
            ids: list[str] = []
            for _ in range(100):
                answer = await api.post("/v1/messages", json=message(body="x" * 200_000))
                if answer.status_code != 201:
                    break
                ids.append(answer.json()["id"])
            problem = assert_away(answer, 507)
            assert problem["id"] in problem["detail"]
            assert (await api.get("/readyz")).status_code == 200
            batch = {"messages": [message(body="x" * 200_000), message(body="x" * 200_000)]}
            whole = assert_away(await api.post("/v1/messages:batch", json=batch), 507)
            assert [result["status"] for result in whole["results"]] == [507, 507]
            assert (await api.get(f"/v1/messages/{ids[0]}")).json()["state"] == "scheduled"
            for id in ids[:20]:
                assert (await api.delete(f"/v1/messages/{id}")).json()["result"] == "cancelled"
            assert (await api.post("/v1/messages", json=message(body="x"))).status_code == 201


async def test_an_error_that_nobody_expects_is_told(valkey: ServerUnderTest, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=valkey.url)) as api:
        assert (await api.get("/v1/stats")).status_code == 200
        for queue in range(16):
            valkey.admin.set(queue_keys(queue).pool, "this is no hash")
        problem = assert_away(await api.post("/v1/messages", json=message()))
        assert "WRONGTYPE" in problem["detail"]
        assert problem["id"]
        assert "WRONGTYPE" in assert_away(await api.get("/v1/messages/a"))["detail"]
