"""A big backlog is appended exactly once, whoever dies or cancels in the middle."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.testing import MemoryTarget
from tests.recovery.conftest import pending, schedule_all, stream_ids
from tests.support.nodes import QUEUES, RunningNode, settings_for
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
Clients = Callable[..., Client]


@pytest.mark.parametrize("who", ["worker", "server"])
def test_whoever_is_killed_in_the_middle_every_message_is_appended_exactly_once(
    own_valkey: EmbeddedServer, clients: Clients, tmp_path: Path, who: str
) -> None:
    ids = schedule_all(clients(own_valkey.url), "s", 90_000)
    server = ServerUnderTest("valkey", own_valkey.url)
    settings = {"redis_url": own_valkey.url, "queues": str(QUEUES), "redis_timeout": "500"}
    worker = OneProcess("worker", [sys.executable, "-m", "workers"], settings, tmp_path / "worker.log")
    in_the_middle = []
    try:
        worker.start()
        for part in (1, 2, 3):
            eventually(lambda part=part: server.admin.xlen("s") > part * 20_000, "some are appended")  # type: ignore[misc]  # a default binds it
            (worker if who == "worker" else own_valkey).kill()
            (worker if who == "worker" else own_valkey).start()
            in_the_middle.append(server.admin.xlen("s") < len(ids))
        eventually(lambda: server.admin.xlen("s") >= len(ids), "all are appended", seconds=30)
        worker.stop()
    finally:
        worker.kill()
    appended = stream_ids(server, "s")
    left = pending(clients(own_valkey.url))
    server.close()
    assert any(in_the_middle)
    assert sorted(appended) == sorted(ids)
    assert left == 0


def test_replies_that_are_lost_double_nothing(
    valkey: ServerUnderTest, proxy: FaultProxy, target: MemoryTarget, clients: Clients
) -> None:
    client = clients(valkey.url)
    ids = schedule_all(client, "s", 10_000)
    proxy.drop_reply("pull", times=2)
    with RunningNode(settings_for(proxy.url, target)):
        eventually(lambda: pending(client) == 0, "everything is appended", seconds=30)
    assert set(proxy.dropped) == {"pull"}  # of two in one packet the first takes the other one along
    assert sorted(stream_ids(valkey, "s")) == sorted(ids)


def test_what_is_cancelled_while_it_is_appended_is_either_or(
    real: ServerUnderTest, target: MemoryTarget, clients: Clients
) -> None:
    client, chance = clients(real.url), random.Random(5)
    ids = schedule_all(client, "s", 20_000)
    answers: dict[str, str] = {}
    with RunningNode(settings_for(real.url, target)):
        while pending(client) > 0:
            for id in chance.sample(ids, 40):
                answers.setdefault(id, client.cancel(id).result)
    found = Counter(stream_ids(real, "s"))
    assert max(found.values()) == 1
    assert [id for id in ids if id not in found and answers.get(id) != "in_flight"] == []
    assert [id for id in found if answers.get(id, "") in ("in_flight", "cancelled")] == []
    assert "in_flight" in answers.values()
