"""DELAYQ_MIN_REPLICAS and DELAYQ_FSYNC over HTTP."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from delayq.client import handshake
from delayq.config import Settings
from delayq.domain.api_keys import SCOPES
from delayq.embedded import EmbeddedServer
from delayq.store import commands
from delayq.store.connect.durability import Durability
from tests.api.conftest import HOUR, Serving, Worker, assert_away
from tests.support.clusters import Member
from tests.support.keys import KeyFile

THERE = {"topic": "t.t", "delayTime": HOUR, "id": "there", "keys": ["order-1"]}
CHANGES = [
    ("POST", "/v1/messages", {"topic": "t.t", "delayTime": HOUR, "id": "a"}),
    ("POST", "/v1/messages:batch", {"messages": [{"topic": "t.t", "delayTime": HOUR, "id": "a"}]}),
    ("DELETE", "/v1/messages/there", None),
    ("PATCH", "/v1/messages/there", {"delayTime": 2 * HOUR}),
    ("POST", "/v1/messages:cancel", {"ids": ["there"]}),
    ("POST", "/v1/dead-letters:redrive", {"ids": ["dead"]}),
    ("POST", "/v1/messages:cancel", {"keys": ["order-1"]}),
    ("DELETE", "/v1/dead-letters/dead", None),
]


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what no replica will confirm; any other reply may take a busy machine longer."""
    monkeypatch.setattr(handshake, "Durability", lambda **given: Durability(**given | {"timeout": 200}))


@pytest.mark.parametrize("topics", ["*", "t.*"])
async def test_a_change_that_no_replica_confirms_is_503_whatever_the_key_may_touch(
    settings: Settings, short_wait: None, asgi: Serving, worker: Worker, tmp_path: Path, topics: str
) -> None:
    """A11: no cancel is untrue, whichever key asks."""
    file = KeyFile(tmp_path / "keys.yaml")
    key = file.add("someone", {topics: SCOPES})
    async with asgi(settings) as api, asgi(file.settings(settings.replace(min_replicas=1))) as careful:
        for method, path, body in CHANGES:
            await api.post("/v1/messages", json=THERE)
            await api.post("/v1/messages", json={"topic": "t.t", "delayTime": 0, "id": "dead"})
            worker.bury("dead")
            answer = await careful.request(method, path, json=body, headers=key)
            assert "did not confirm in time that 1 replicas have it" in answer.text, (method, path)
            assert_away(answer)
            found = await careful.get("/v1/messages/dead", headers=key)
            assert found.status_code in (200, 404)  # reading waits for nobody
            worker.store.run(commands.plain("FLUSHALL", read=lambda reply: reply))


async def test_the_problem_names_the_id_to_repeat_with(settings: Settings, short_wait: None, asgi: Serving) -> None:
    async with asgi(settings.replace(min_replicas=1)) as api:
        answer = await api.post("/v1/messages", json={"topic": "t", "delayTime": HOUR})
        problem = assert_away(answer)
        assert f"Repeat with the same id, {problem['id']}" in problem["detail"]
        missing = (await api.get("/readyz")).json()["missing"]
        assert any("only 0 replicas are connected" in one for one in missing)


async def test_a_disk_that_cannot_be_waited_for_is_told(settings: Settings, asgi: Serving) -> None:
    async with asgi(settings.replace(fsync="always")) as api:
        (missing,) = (await api.get("/readyz")).json()["missing"]
        assert missing.startswith("DELAYQ_FSYNC=always needs appendfsync always")
        answer = await api.post("/v1/messages", json={"topic": "t", "delayTime": HOUR})
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:delayq:problem:not-ready")


async def test_a_disk_that_is_waited_for_no_more_is_503_and_not_ready(
    own_valkey: EmbeddedServer, settings: Settings, asgi: Serving
) -> None:
    """A3: A server that returns without `appendfsync always`, or is changed while it runs, confirms nothing."""
    with closing(Member(own_valkey).admin) as admin:
        async with asgi(settings.replace(redis_url=own_valkey.url, fsync="always")) as api:
            for method, path, body in CHANGES:
                admin.flushall()
                admin.config_set("appendfsync", "always")
                assert (await api.get("/readyz")).status_code == 200
                assert (await api.post("/v1/messages", json=THERE)).status_code == 201  # the disk has it
                admin.config_set("appendfsync", "everysec")
                answer = await api.request(method, path, json=body)
                assert "did not confirm in time that it is on the disk" in answer.text, (method, path)
                assert_away(answer)
                (missing,) = assert_away(await api.get("/readyz"))["missing"]
                assert "with appendfsync everysec: no change can be confirmed" in missing
