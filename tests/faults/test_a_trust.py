"""Redis is full, or was changed so that it cannot be trusted, or somebody's hand was in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Client, ConfigError, Message
from delayq.store.keys import queue_keys
from delayq.testing import MemoryTarget
from testbed.process import standing_still
from tests.docs.blocks import blocks_of
from tests.faults.flow import delayq, drained, refused
from tests.faults.rig import QUEUES, Rig, rig
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT, OneProcess
from tests.support.waiting import eventually
from workers.node.alarms import Alarms

pytestmark = pytest.mark.long
HOUR = 3_600_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("trust")) as made:
        yield made


@pytest.fixture
def on(shared: Rig) -> Iterator[Rig]:
    """The rig, its settings as they were."""
    yield shared
    shared.admin.config_set("maxmemory", 0)
    shared.admin.config_set("maxmemory-policy", "noeviction")


# -- full ----------------------------------------------------------------------------------------------------------------


def test_a6_a_full_redis_takes_nothing_new_and_empties_itself(on: Rig) -> None:
    (cancelled,) = on.schedule("sink.a6", 1, delay=HOUR)
    with standing_still(on.service.workers[0].pid):  # so that it stays full until it was seen to be
        ids = on.schedule("sink.a6", 400, delay=1_500, body="x" * 4_000)
        streamed = on.schedule("a6", 20, delay=1_500)
        on.admin.config_set("maxmemory", on.admin.info("memory")["used_memory"] - 200_000)
        told = refused(on.service.schedule("sink.a6", delayTime="1s", id="new"), 507)
        assert "nothing was scheduled" in told["detail"]
        message = {"topic": "sink.a6", "delayTime": "1s"}
        batch = on.http.post("/v1/messages:batch", json={"messages": [message, message]})
        assert [result["status"] for result in batch.json()["results"]] == [507, 507]
        assert on.http.delete(f"/v1/messages/{cancelled}").json()["result"] == "cancelled"
    on.expect("sink.a6", [cancelled, *ids], cancelled=[cancelled])
    on.expect("a6", streamed)
    drained(on.service)
    eventually(lambda: on.service.schedule("sink.a6", delayTime=0, id="new").status_code == 201, "accepting again")
    on.expect("sink.a6", [cancelled, *ids, "new"], cancelled=[cancelled])


def test_a8_scripts_that_a_full_redis_would_stop_are_refused_at_the_start(on: Rig, tmp_path: Path) -> None:
    for part in ("delayq", "workers", "coordinator", "api"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    ack = tmp_path / "delayq" / "store" / "lua" / "owner" / "ack.lua"
    ack.write_text(ack.read_text().replace("-- @flags allow-oom\n", ""))
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "DELAYQ_REDIS_URL": on.redis.url}
    for service in ("workers", "api"):
        command = [sys.executable, "-m", service]
        ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 2
        assert "a full Redis would refuse ack" in ran.stderr
        assert "Traceback" not in ran.stderr


# -- not to be trusted ---------------------------------------------------------------------------------------------------


def test_a7_an_eviction_policy_that_is_changed_at_run_time_is_told_and_refused(on: Rig, tmp_path: Path) -> None:
    eventually(on.service.ready, "the API is ready")
    on.admin.config_set("maxmemory-policy", "allkeys-lru")
    (missing,) = refused(on.http.get("/readyz"))["missing"]
    assert "maxmemory-policy is allkeys-lru" in missing
    assert delayq(on.redis.url, "doctor").returncode == 1
    late = OneProcess("late", [sys.executable, "-m", "workers"], {"redis_url": on.redis.url}, tmp_path / "late.log")
    late.start()
    eventually(lambda: not late.alive, "another worker does not start")
    assert late.returncode == 2
    assert "maxmemory-policy is allkeys-lru" in late.said()
    with Client(on.redis.url) as client, pytest.raises(ConfigError, match="maxmemory-policy is allkeys-lru"):
        client.schedule(Message(topic="a7", delay_time=HOUR))
    on.admin.config_set("maxmemory-policy", "noeviction")
    assert on.service.ready()


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks more often."""
    monkeypatch.setattr("workers.node.alarms.EVERY", 100)
    monkeypatch.setattr("workers.node.janitor.EVERY", 100)
    monkeypatch.setattr("workers.node.node.ROUND", 50)


@pytest.fixture
def server(valkey: ServerUnderTest) -> Iterator[ServerUnderTest]:
    """A server that can be trusted."""
    yield valkey
    valkey.admin.config_set("maxmemory-policy", "noeviction")


def watch_of(running: RunningNode) -> Alarms:
    """What looks after Redis in a node."""
    eventually(lambda: running.node.watch is not None, "it watches")
    assert running.node.watch is not None
    return running.node.watch


@pytest.mark.usefixtures("watchful")
def test_a7_a_worker_that_runs_raises_the_alarm_and_goes_on(server: ServerUnderTest) -> None:
    target = MemoryTarget()
    settings = settings_for(server.url, target)
    with RunningNode(settings) as running, Client(settings=settings) as client:
        watch = watch_of(running)
        client.context()  # what begins later is refused
        server.admin.config_set("maxmemory-policy", "volatile-ttl")
        eventually(lambda: any("volatile-ttl" in text for text in watch.alarms.values()), "the alarm")
        client.schedule(Message(topic="m.t", id="a", delay_time=0))
        target.wait_for_ids(["a"])
        server.admin.config_set("maxmemory-policy", "noeviction")
        eventually(lambda: not watch.alarms, "the end of the alarm")


# -- hands in Redis ------------------------------------------------------------------------------------------------------


def test_a16_the_documented_user_may_not_delete_anything(server: ServerUnderTest) -> None:
    page = ROOT / "docs" / "operations.md"
    (block,) = (one for one in blocks_of(page) if one.note == "run by tests/docs/test_redis.py")
    server.admin.execute_command(*block.text.split())
    denied: tuple[str, ...] = (
        "FLUSHALL",
        "FLUSHDB",
        "DEL delayq:{0}:pool",
        "UNLINK delayq:{0}:pool",
        "CONFIG SET maxmemory 1",
    )
    denied += ("KEYS *", "SHUTDOWN", "REPLICAOF NO ONE", "SCRIPT FLUSH", "RENAME delayq:{0}:pool a")
    user: Any = redis.Redis.from_url(server.url.replace("redis://", "redis://delayq:secret@"), protocol=2)
    try:
        assert user.ping()
        for words in denied:
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(*words.split())
    finally:
        user.close()
        server.admin.execute_command("ACL", "DELUSER", "delayq")


def test_a16_deleted_messages_are_noticed_until_written_off_and_a_flush_until_a_restart(on: Rig) -> None:
    ids = on.schedule("a16", 40, delay=HOUR)
    eventually(on.service.ready, "the API is ready")
    pool = queue_keys(on.http.get(f"/v1/messages/{ids[0]}").json()["queue"]).pool
    gone = on.admin.hlen(pool)
    on.admin.delete(pool)
    eventually(lambda: not on.service.ready(), "it is noticed")
    (missing,) = refused(on.http.get("/readyz"))["missing"]
    assert missing.startswith(f"{gone} messages are missing from queue ")
    ran = delayq(on.redis.url, "doctor")
    assert (ran.returncode, f"{gone} messages are missing from queue " in ran.stdout) == (1, True)
    assert f"wrote off {gone} messages" in delayq(on.redis.url, "doctor", "--repair").stdout
    eventually(on.service.ready, "what is written off is over")

    on.admin.flushall()
    eventually(lambda: not on.service.ready(), "it is noticed")
    (missing,) = refused(on.http.get("/readyz"))["missing"]
    assert missing.startswith(f"{QUEUES} queues (0 and others) are not what this process has seen before")
    on.service.api.stop()
    on.service.api.start()
    eventually(on.service.ready, "an API that starts again goes on without")
    on.expect("a16.new", on.schedule("a16.new", 20))


@pytest.mark.usefixtures("watchful")
def test_a16_a_worker_notices_what_is_gone_and_gives_tickets_back(server: ServerUnderTest) -> None:
    target = MemoryTarget()
    settings = settings_for(server.url, target)
    with RunningNode(settings) as running, Client(settings=settings) as client:
        watch = watch_of(running)
        ids = [client.schedule(Message(topic="m.t", id=f"{n}.0000", delay_time=1_000)).id for n in range(20)]
        server.admin.delete(queue_keys(0).queue)
        target.wait_for_ids(ids)
        assert watch.alarms == {}
        client.schedule(Message(topic="m.t", id="lost.0001", delay_time=HOUR))
        server.admin.delete(queue_keys(1).pool)
        eventually(lambda: watch.missing == 1, "a message is missing")
        server.admin.flushall()
        eventually(lambda: "gone" in watch.alarms, "all is gone")
    assert sorted(target.ids) == sorted(ids)
