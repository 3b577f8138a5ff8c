"""Data that come from elsewhere: an older backup, an older server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq.embedded import EmbeddedServer
from tests.faults.flow import delayq, drained
from tests.faults.rig import SETTINGS, Rig, rig
from tests.support.servers import NO_REDIS, REDIS_SERVER
from tests.support.service import ROOT, Service
from tests.support.sink import real_sink

pytestmark = pytest.mark.long
HOUR = 3_600_000


def stop_workers(service: Service) -> None:
    """From now on nothing is forwarded."""
    for one in service.workers:
        if one.alive:
            one.stop()


def stop(on: Rig) -> None:
    """Stop the worker, the API and Redis in order."""
    stop_workers(on.service)
    on.service.api.stop()
    on.redis.stop()


def start(on: Rig) -> None:
    """Start what was stopped."""
    on.redis.start()
    on.service.start()


def cancel(url: str, *ids: str) -> str:
    """`delayq cancel`, as a process; what it printed."""
    command = [sys.executable, "-m", "delayq.cli", "cancel", "--redis-url", url, *ids]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout


def test_a20_an_older_backup_brings_back_what_was_delivered_since_but_for_what_is_cancelled(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        stop_workers(on.service)
        before = {topic: on.schedule(topic, 20, delay=500) for topic in ("sink.a20", "a20")}
        later = on.schedule("sink.a20.later", 20, delay=HOUR)
        stop(on)
        shutil.copytree(tmp_path / "valkey", tmp_path / "backup")
        start(on)
        for topic, ids in before.items():
            on.expect(topic, ids)
        since = on.schedule("sink.a20.since", 10, delay=HOUR)
        stop(on)
        shutil.rmtree(tmp_path / "valkey")
        shutil.copytree(tmp_path / "backup", tmp_path / "valkey")
        on.redis.start()
        # Before any worker runs: what is known to have been handled is taken out.
        handled = before["sink.a20"][:15]
        assert cancel(on.redis.url, *handled).count("in_flight") == 15
        on.service.start()
        on.expect("sink.a20", before["sink.a20"], twice=5)
        drained(on.service, pending=20)
        streamed = [entry[b"id"].decode() for _, entry in on.admin.xrange("a20")]
        assert sorted(streamed) == sorted(before["a20"])  # the stream was restored, too
        assert [on.http.get(f"/v1/messages/{id}").status_code for id in since] == [404] * 10
        assert {on.http.get(f"/v1/messages/{id}").json()["state"] for id in later} == {"scheduled"}
        again = [one.id for one in on.sink.arrivals("sink.a20")][20:]
        assert sorted(again) == sorted(before["sink.a20"][15:])
        ran = delayq(on.redis.url, "doctor")
        assert ran.returncode == 0, ran.stdout


@contextmanager
def service_on(redis: EmbeddedServer, folder: Path, routes: str, **settings: str) -> Iterator[Service]:
    folder.mkdir()
    with Service(folder, redis.url, **SETTINGS | {"routes": routes} | settings) as made:
        yield made


def test_a21_data_of_redis_7_are_served_by_valkey_with_the_same_results(tmp_path: Path) -> None:
    if REDIS_SERVER is None:
        pytest.skip(NO_REDIS)
    with real_sink() as sink:
        with (
            EmbeddedServer(data_dir=tmp_path / "data", binary=Path(REDIS_SERVER)) as old,
            service_on(old, tmp_path / "old", sink.routes) as service,
        ):
            on = Rig(old, sink, service)
            done = on.schedule("sink.a21.done", 10)
            on.expect("sink.a21.done", done)
            given = on.service.schedule("sink.a21.given", delayTime=0, id="given")
            assert given.status_code == 201
            on.expect("sink.a21.given", ["given"])
            stop_workers(service)
            ids = {topic: on.schedule(topic, 30, delay=500, keys=["k"]) for topic in ("sink.a21", "a21")}
            (cancelled,) = on.schedule("sink.a21", 1, delay=HOUR)
            assert on.http.delete(f"/v1/messages/{cancelled}").json()["result"] == "cancelled"
            on.server.close()
        with (
            EmbeddedServer(data_dir=tmp_path / "data", extra=["--appendfsync", "always"]) as new,
            service_on(new, tmp_path / "new", sink.routes, fsync="always") as service,
        ):
            on = Rig(new, sink, service)
            assert on.admin.info("server")["server_name"] == "valkey"
            assert on.http.delete(f"/v1/messages/{cancelled}").json()["result"] == "cancelled"
            assert on.service.schedule("sink.a21.given", delayTime=0, id="given").json()["state"] == "delivered"
            for topic, accepted in ids.items():
                on.expect(topic, accepted)
            ran = delayq(new.url, "doctor")
            assert ran.returncode == 0, ran.stdout
            on.server.close()
