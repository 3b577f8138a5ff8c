from __future__ import annotations

from contextlib import closing
from pathlib import Path

from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from tests.api.conftest import Serving, assert_away
from tests.support.clusters import Member
from tests.support.timeouts import REDIS_TIMEOUT


async def test_what_a_redis_lacks_is_said_in_words(tmp_path: Path, asgi: Serving) -> None:
    lax = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    with EmbeddedServer(data_dir=tmp_path / "valkey", appendonly=False, extra=lax) as server:
        async with asgi(load_settings(redis_url=server.url, redis_timeout=REDIS_TIMEOUT)) as api:
            missing = assert_away(await api.get("/readyz"))["missing"]
            assert len(missing) == 2
            assert any("append-only" in reason for reason in missing)
            assert any("noeviction" in reason for reason in missing)


async def test_what_a_redis_would_lose_is_not_taken(tmp_path: Path, asgi: Serving) -> None:
    with EmbeddedServer(data_dir=tmp_path / "valkey") as server, closing(Member(server).admin) as admin:
        for name, lax, strict in (("appendonly", "no", "yes"), ("maxmemory-policy", "allkeys-lru", "noeviction")):
            admin.config_set(name, lax)
            async with asgi(load_settings(redis_url=server.url, redis_timeout=REDIS_TIMEOUT)) as api:
                answer = await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000})
                assert "cannot be trusted" in assert_away(answer)["detail"]
                assert (await api.get("/v1/messages/there")).status_code == 404  # reading is answered
            assert keys_of(server) == []
            admin.config_set(name, strict)


def keys_of(server: EmbeddedServer) -> list[bytes]:
    with closing(Member(server).admin) as admin:
        found: list[bytes] = admin.keys("*")
        return found


async def test_another_layout_is_refused(own_valkey: EmbeddedServer, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=own_valkey.url, redis_timeout=REDIS_TIMEOUT, queues=16)) as api:
        assert (await api.get("/readyz")).status_code == 200
        assert (await api.get("/v1/queues")).json()["total"]["depth"] == 0
        assert keys_of(own_valkey) == []  # it is asked without writing
        assert (await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000})).status_code == 201
    async with asgi(load_settings(redis_url=own_valkey.url, redis_timeout=REDIS_TIMEOUT, queues=8)) as api:
        assert "16 queues" in assert_away(await api.get("/readyz"))["missing"][0]
        for answer in (
            await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000}),
            await api.post("/v1/messages:batch", json={"messages": [{"topic": "orders", "delayTime": 60_000}]}),
            await api.get("/v1/queues"),
        ):
            assert "16 queues" in assert_away(answer)["detail"]
