"""A worker as a process: what it does when it stands still, or Redis does, and when it is told to stop; and one with thousands of
topics."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq import Client, Message
from delayq.config import load_settings
from delayq.domain.nodes import LINE_AGE
from delayq.domain.policies import Policy
from delayq.embedded import EmbeddedServer
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from testbed.process import stand_still
from tests.faults.flow import delayq
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import KEPT, ServerUnderTest
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

WORKER = [sys.executable, "-m", "workers"]
#: As a shell without job control does for what runs in the background.
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def test_sigint_stops_a_worker_that_inherited_it_as_ignored(valkey: ServerUnderTest, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IGNORING, *WORKER]
    process = OneProcess("w", command, {"redis_url": valkey.url, "node": "w"}, tmp_path / "log")
    process.start()
    try:
        with Client(settings=load_settings(redis_url=valkey.url)) as client:
            eventually(lambda: "w" in client.nodes(), "the worker has written its line")
            process.signal(signal.SIGINT)
            eventually(lambda: not process.alive, "it has ended")
            assert process.returncode == 0, process.said()
            assert client.nodes() == {}
    finally:
        process.kill()


@contextmanager
def worker(url: str, folder: Path, **settings: str) -> Iterator[OneProcess]:
    """A worker that owns the queues of this Redis."""
    process = OneProcess("w", WORKER, {"redis_url": url, "node": "w", **settings}, folder / "log")
    process.start()
    try:
        with Client(url) as client:
            eventually(lambda: "w" in client.nodes() and len(client.nodes()["w"].queues) > 0, "it owns queues")
        yield process
    finally:
        process.kill()


def test_a_command_without_settings_waits_for_the_longest_send_of_a_worker(
    valkey: ServerUnderTest, tmp_path: Path
) -> None:
    """The worker stands still: it may have begun a send in the last moment."""
    hooks = '[{"name": "hooks", "match": "*", "target": "http://hooks.example/"}]'

    def paused_after(seconds: int) -> tuple[str, int | None]:
        """What `pause` says when nobody has heard of the worker for so long."""
        line = json.loads(valkey.admin.hget(KEYS.nodes, "w"))
        line["seen"] = int(time.time() * 1000) - 1_000 * seconds
        valkey.admin.hset(KEYS.nodes, "w", json.dumps(line))
        _, said = delayq(valkey.url, "pause", "orders.*", "--wait", "0", "--json")
        answer = json.loads(said)
        return answer["state"], answer["inFlight"]

    with worker(valkey.url, tmp_path, routes=hooks, send_timeout="120s") as process:
        process.signal(signal.SIGSTOP)
        assert paused_after(0) == ("pausing", None)
        assert paused_after(2 * LINE_AGE // 1_000 + 60) == ("pausing", None), "sends take 30 s by default"
        assert paused_after(2 * LINE_AGE // 1_000 + 125) == ("paused", 0)


def test_a_pause_made_after_redis_lost_another_one_is_read_by_the_worker(
    valkey: ServerUnderTest, tmp_path: Path
) -> None:
    """Both would have the same version if versions only counted."""
    admin = valkey.admin
    with worker(valkey.url, tmp_path) as process, Client(valkey.url) as client:
        client.pause("first.*", wait=60_000)
        before = {key: admin.dump(key) for key in admin.scan_iter()}
        assert client.pause("lost.*", wait=60_000).state == "paused"
        process.signal(signal.SIGSTOP)
        for key in list(admin.scan_iter()):
            admin.delete(key)
        for key, value in before.items():
            admin.restore(key, 0, value)
        client.pause("second.*", wait=0)
        process.signal(signal.SIGCONT)
        eventually(lambda: client.pause("second.*", wait=60_000).state == "paused", "the worker has confirmed it")
        assert client.policies().paused == ("first.*", "second.*")
        for topic in ("second.t", "first.t", "lost.t"):
            client.schedule(Message(topic=topic, body="b", delay_time=0))
        eventually(lambda: admin.xlen("lost.t") == 1, "what is not paused any more goes")
        assert [admin.xlen(topic) for topic in ("first.t", "second.t")] == [0, 0]


def test_a_pull_that_stood_in_a_redis_that_stood_still_appends_nothing_that_has_expired(tmp_path: Path) -> None:
    """However the pull and the stall meet: no entry is later than its message may be."""
    with EmbeddedServer(data_dir=tmp_path / "data", extra=KEPT) as redis:
        server = ServerUnderTest("valkey", redis.url)
        with worker(redis.url, tmp_path, queues="2") as process, Client(redis.url) as client:
            for n in range(20):  # so that pulls know the topic
                client.schedule(Message(topic="t", id=f"w{n}", body="b", delay_time=0))
            eventually(lambda: server.admin.xlen("t") == 20, "they have gone")
            due = int(time.time() * 1000) + 1_500
            for n in range(20):
                client.schedule(Message(topic="t", id=f"m{n}", body="b", expect_date=due, expire_after=300))
            pid = server.admin.info("server")["process_id"]
            time.sleep(max(0.0, (due - 60) / 1_000 - time.time()))
            stand_still(pid)
            time.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
            eventually(lambda: sum(one.scheduled for one in client.queues()) == 0, "each has ended")
            entries = {fields[b"id"].decode(): int(at.partition(b"-")[0]) for at, fields in server.admin.xrange("t")}
            late = {id: at - due for id, at in entries.items() if id[0] == "m"}
            assert max(late.values(), default=0) < 300
            assert len(late) + sum(one.dead for one in client.queues()) == 20
            assert process.alive
        server.close()


def test_2500_topics_that_were_paused_all_go_under_a_rate_for_each(valkey: ServerUnderTest) -> None:
    target, count = MemoryTarget(), 2_500
    settings = settings_for(valkey.url, target, redis_timeout=30_000)
    with Client(settings=settings) as client:
        client.pause("m.*", wait=0)
        client.put_policy(Policy(name="each", match="m.*", rate=1_000))
        with RunningNode(settings):
            client.schedule_many([Message(topic=f"m.{n}", body=n, delay_time=0) for n in range(count)])
            eventually(lambda: sum(one.parked for one in client.queues()) == count, "all are held")
            assert not target.deliveries
            client.resume("m.*")
            eventually(lambda: len(target.deliveries) == count, "all went")
