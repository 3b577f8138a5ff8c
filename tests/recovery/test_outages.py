"""Redis dies, is away or is the wrong one, and a pull job fails: nothing accepted is lost, and all go on by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq import Client
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from delayq.errors import LayoutMismatch
from delayq.testing import MemoryTarget
from tests.recovery.conftest import pending, schedule_all, stream_ids
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from workers.queue import in_flight
from workers.queue.in_flight import InFlight

Clients = Callable[..., Client]

ROOT = Path(__file__).resolve().parents[2]


# -- killed under load ---------------------------------------------------------------------------------------------------


def test_what_the_target_confirmed_while_redis_was_away_is_acked_first_and_not_sent_again(
    own_valkey: EmbeddedServer, target: MemoryTarget, clients: Clients
) -> None:
    client = clients(own_valkey.url)
    with RunningNode(settings_for(own_valkey.url, target)):
        target.answer("hang", times=1)
        ids = schedule_all(client, "m.t", 20)
        target.wait_for_hanging()
        own_valkey.kill()
        target.release()
        target.wait_for_ids(ids)
        own_valkey.start()
        eventually(lambda: pending(client) == 0, "everything is acked")
        assert sorted(target.ids) == sorted(ids)


# -- away ----------------------------------------------------------------------------------------------------------------


def test_a_worker_that_starts_before_redis_waits_for_it(tmp_path: Path, target: MemoryTarget, clients: Clients) -> None:
    server = EmbeddedServer(data_dir=tmp_path / "data", port=free_port())
    with RunningNode(settings_for(server.url, target), wait=False) as running:
        try:
            assert not running.node.ready
            server.start()
            target.wait_for_ids(schedule_all(clients(server.url), "m.t", 10))
        finally:
            running.node.stop()
            running.wait_for_the_end()
            server.stop()


def test_a_worker_that_waits_for_redis_can_be_stopped(target: MemoryTarget) -> None:
    with RunningNode(settings_for(f"redis://127.0.0.1:{free_port()}/0", target), wait=False) as running:
        running.node.stop()
        assert running.wait_for_the_end() is None


# -- exceptions ----------------------------------------------------------------------------------------------------------


def test_a_pull_job_survives_exceptions_and_loses_nothing(
    valkey: ServerUnderTest, target: MemoryTarget, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([True, False, True, True, False, False] * 3)
    for room, name in ((InFlight, "accept"), (in_flight, "judge"), (InFlight, "send_waiting")):
        original = getattr(room, name)

        def sometimes(*args: object, original: Callable[..., object] = original, **more: object) -> object:
            if next(failures, False):
                raise RuntimeError("as if it were broken")
            return original(*args, **more)

        monkeypatch.setattr(room, name, sometimes)
    client = clients(valkey.url)
    with RunningNode(settings_for(valkey.url, target)) as running:
        ids = schedule_all(client, "m.t", 200), schedule_all(client, "s", 200)
        target.wait_for_ids(ids[0])
        eventually(lambda: pending(client) == 0, "everything is delivered")
        assert all(job.alive for job in running.node.jobs.values())
    assert next(failures, None) is None
    assert sorted(stream_ids(valkey, "s")) == sorted(ids[1])


# -- what cannot be trusted is refused at the start ------------------------------------------------------------------------


def test_a_redis_that_throws_messages_away_is_refused_in_one_sentence(tmp_path: Path) -> None:
    extra = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]
    with EmbeddedServer(data_dir=tmp_path, extra=extra) as server:
        env = {**os.environ, "DELAYQ_REDIS_URL": server.url, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "workers"]
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 2
    *log, sentence = ran.stderr.strip().splitlines()
    assert all(line.startswith("{") for line in log), ran.stderr
    assert sentence.startswith("delayq worker: ")
    assert "maxmemory-policy is allkeys-lru" in sentence
    assert "CONFIG SET maxmemory-policy noeviction" in sentence


def test_a_worker_that_disagrees_about_the_number_of_queues_is_refused(
    valkey: ServerUnderTest, target: MemoryTarget, clients: Clients
) -> None:
    clients(valkey.url).context()
    with RunningNode(settings_for(valkey.url, target, queues=3), wait=False) as running:
        error = running.wait_for_the_end()
        running.error = None
    assert isinstance(error, LayoutMismatch)
    assert "\n" not in str(error)
