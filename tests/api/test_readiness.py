from __future__ import annotations

from pathlib import Path

from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from tests.api.conftest import Serving, assert_away


async def test_what_a_redis_lacks_is_said_in_words(tmp_path: Path, asgi: Serving) -> None:
    lax = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    with EmbeddedServer(data_dir=tmp_path / "valkey", appendonly=False, extra=lax) as server:
        async with asgi(load_settings(redis_url=server.url)) as api:
            missing = assert_away(await api.get("/readyz"))["missing"]
            assert len(missing) == 2
            assert any("append-only" in reason for reason in missing)
            assert any("noeviction" in reason for reason in missing)


async def test_another_layout_is_refused(own_valkey: EmbeddedServer, asgi: Serving) -> None:
    async with asgi(load_settings(redis_url=own_valkey.url, queues=16)) as api:
        assert (await api.get("/readyz")).status_code == 200
    async with asgi(load_settings(redis_url=own_valkey.url, queues=8)) as api:
        assert "16 queues" in assert_away(await api.get("/readyz"))["missing"][0]
        for answer in (
            await api.post("/v1/messages", json={"topic": "orders", "delayTime": 60_000}),
            await api.post("/v1/messages:batch", json={"messages": [{"topic": "orders", "delayTime": 60_000}]}),
            await api.get("/v1/stats"),
        ):
            assert "16 queues" in assert_away(answer)["detail"]
