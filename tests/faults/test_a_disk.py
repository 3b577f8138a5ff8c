"""The disk under Redis: syncs that hang, a power cut, a file that is damaged, no space left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from delayq import Client, Message, Settings, StoreError, StoreUnavailable
from delayq.client.operations import Scheduled
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import free_port
from delayq.testing import MemoryTarget
from tests.docs.blocks import blocks_of
from tests.faults.flow import delayq, refused
from tests.faults.rig import SETTINGS, Rig, rig
from tests.support.fsync import Disk, cut_off, slow_disk
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import NO_REDIS, REDIS_SERVER
from tests.support.service import ROOT, Service
from tests.support.sink import real_sink
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
HOUR = 3_600_000


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with slow_disk(tmp_path, monkeypatch) as made:
        yield made


def binary_of(kind: str) -> Path | None:
    """The program of a kind of server."""
    if kind == "redis7" and REDIS_SERVER is None:
        pytest.skip(NO_REDIS)
    return Path(str(REDIS_SERVER)) if kind == "redis7" else None


def server(kind: str, data: Path) -> EmbeddedServer:
    """One that keeps DELAYQ_FSYNC=always."""
    return EmbeddedServer(data_dir=data, binary=binary_of(kind), extra=["--appendfsync", "always"])


def client_of(redis: EmbeddedServer, **given: Any) -> Client:
    return Client(redis.url, settings=Settings(redis_timeout=1_000, **given))


def accept(client: Client, *ids: str) -> list[str]:
    """Schedule messages one after the other; the ids of those that were accepted."""
    accepted = []
    for id in ids:
        with suppress(StoreUnavailable):
            accepted.append(client.schedule(Message(topic="t", id=id, delay_time=HOUR)).id)
    return accepted


def still_there(redis: EmbeddedServer, ids: list[str]) -> set[str]:
    """Which of the messages a server that was started again has."""
    with client_of(redis) as client:
        return {one.id for one in client.get_many(ids) if one is not None}


KINDS = ("valkey", "redis7")


@pytest.mark.parametrize("kind", KINDS)
def test_a2_a_redis_that_is_killed_while_its_disk_hangs_loses_nothing_of_what_was_to_be_on_disk(
    kind: str, tmp_path: Path, disk: Disk
) -> None:
    redis = server(kind, tmp_path / "data")
    with redis, client_of(redis, fsync="always") as client:
        accepted = accept(client, *(f"before{number}" for number in range(20)))
        assert len(accepted) == 20
        disk.take()
        with pytest.raises(StoreUnavailable):
            client.schedule(Message(topic="t", id="during", delay_time=HOUR))
        eventually(lambda: disk.waiting, "a sync hangs")
        redis.kill()
        disk.take(0)
        redis.start()
        assert still_there(redis, accepted) == set(accepted)
        assert client.schedule(Message(topic="t", id="during", delay_time=HOUR)).state == "scheduled"


def test_a2_without_fsync_only_what_redis_has_not_written_for_two_seconds_can_be_lost(
    tmp_path: Path, disk: Disk
) -> None:
    redis = EmbeddedServer(data_dir=tmp_path / "data")
    admin: Any = Redis(port=redis.port, protocol=2)
    with redis, client_of(redis) as client:
        disk.take()
        accept(client, "first")
        eventually(lambda: disk.waiting, "a sync hangs")
        accepted = accept(client, *(f"during{number}" for number in range(20)))
        assert len(accepted) == 20  # a sync that hangs stops nobody
        eventually(lambda: admin.info("persistence")["aof_delayed_fsync"], "Redis writes, though the sync hangs")
        eventually(lambda: not admin.info("persistence")["aof_buffer_length"], "everything is written")
        redis.kill()
        disk.take(0)
        redis.start()
        assert still_there(redis, ["first", *accepted]) == {"first", *accepted}
    admin.close()


def test_a2_what_a_redis_that_was_killed_while_its_disk_hung_has_lost_is_told(tmp_path: Path, disk: Disk) -> None:
    redis = EmbeddedServer(data_dir=tmp_path / "data")
    target = MemoryTarget()
    settings = settings_for(redis.url, target)
    lost_at_all = 0
    with redis, RunningNode(settings) as running, client_of(redis) as client:
        history = running.node.history
        for round in range(10):
            disk.take()
            accept(client, f"first{round}")
            eventually(lambda: disk.waiting, "a sync hangs")
            seen = len(target.ids)
            due = [
                one.id
                for one in client.schedule_many(Message(topic="m.t", delay_time=0) for _ in range(20))
                if isinstance(one, Scheduled)
            ]
            accepted = accept(client, *(f"round{round}.{number}" for number in range(20)))
            assert len(accepted) == 20
            eventually(lambda seen=seen, due=due: len(target.ids) >= seen + len(due), "its worker looks at the queues")  # type: ignore[misc]  # defaults bind them
            told = history.went_back
            redis.kill()
            disk.take(0)
            redis.start()
            if lost := set(accepted) - still_there(redis, accepted):
                lost_at_all += len(lost)
                eventually(lambda told=told: history.went_back > told, "the loss is told")  # type: ignore[misc]  # a default binds it
                break
    assert lost_at_all  # or Redis wrote before each kill, and there was nothing to see


class Producer:
    """Schedules messages one after the other until it is stopped, and knows which were accepted."""

    def __init__(self, client: Client) -> None:
        self.accepted: list[str] = []
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            with suppress(StoreError):
                self.accepted += [self._client.schedule(Message(topic="t", id=f"m{number}", delay_time=HOUR)).id]

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_power_cut_loses_nothing_that_was_to_be_on_disk(kind: str, tmp_path: Path, disk: Disk) -> None:
    redis = server(kind, tmp_path / "data")
    with redis, client_of(redis, fsync="always") as client, Producer(client) as producer:
        disk.take(20)
        for _ in range(3):
            goal = len(producer.accepted) + 15
            eventually(lambda goal=goal: len(producer.accepted) > goal, "messages are accepted")  # type: ignore[misc]  # a default binds it
            redis.kill()
            accepted = list(producer.accepted)
            cut_off(disk, tmp_path / "data")
            redis.start()
            assert still_there(redis, accepted) == set(accepted)


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_server_that_came_back_without_fsync_confirms_nothing_that_a_power_cut_loses(
    kind: str, tmp_path: Path, disk: Disk
) -> None:
    redis = server(kind, tmp_path / "data")
    with redis, client_of(redis, fsync="always") as client:
        assert accept(client, "always") == ["always"]
        redis.stop()
        lax = EmbeddedServer(data_dir=tmp_path / "data", port=redis.port, binary=redis.binary)
        with lax:
            disk.take()
            confirmed = accept(client, *(f"lost{number}" for number in range(50)))
            eventually(lambda: disk.waiting, "a sync hangs")
            lax.kill()
            cut_off(disk, tmp_path / "data")
            disk.take(0)
            lax.start()
            assert still_there(lax, ["always", "lost0"]) == {"always"}  # so each of them would have been lost
            assert confirmed == []


def test_a3_without_fsync_a_power_cut_loses_only_what_came_after_the_last_sync(tmp_path: Path, disk: Disk) -> None:
    redis = EmbeddedServer(data_dir=tmp_path / "data")
    admin: Any = Redis(port=redis.port, protocol=2)
    with redis, client_of(redis) as client:
        kept = accept(client, *(f"kept{number}" for number in range(50)))
        # While a sync takes long, what was accepted may not be in the file yet.
        eventually(lambda: not admin.info("persistence")["aof_buffer_length"], "everything is written")
        wrote = sum(path.stat().st_size for path in (tmp_path / "data" / "appendonlydir").glob("*.incr.aof"))
        eventually(lambda: max(disk.synced().values(), default=0) >= wrote, "all is synced within a second or so")
        disk.take()
        lost = accept(client, *(f"lost{number}" for number in range(50)))
        eventually(lambda: disk.waiting, "a sync hangs")
        redis.kill()
        took = cut_off(disk, tmp_path / "data")
        disk.take(0)
        redis.start()  # a file that ends in the middle of a command is no hindrance
        assert len(kept) == len(lost) == 50
        assert took > 0
        assert still_there(redis, [*kept, *lost]) == set(kept)
    admin.close()


# -- damaged -------------------------------------------------------------------------------------------------------------


def test_a4_a_damaged_file_stops_redis_and_is_never_taken_for_an_empty_queue(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        ids = on.schedule("sink.a4", 300, delay=1_000)
        on.redis.kill()
        (path,) = (tmp_path / "valkey" / "appendonlydir").glob("*.incr.aof")
        whole = path.read_bytes()
        at = whole.index(b"\r\n*", len(whole) // 2) + 2
        path.write_bytes(whole[:at] + b"\xff\xff" + whole[at + 2 :])
        with pytest.raises(EmbeddedServerError, match="Bad file format"):
            on.redis.start()
        refused(on.http.get("/readyz"))
        refused(on.http.get("/v1/stats"))
        refused(on.http.get(f"/v1/messages/{ids[0]}"))
        refused(on.service.schedule("a4", delayTime="1s", id="new"))
        ran = delayq(on.redis.url, "doctor")
        assert (ran.returncode != 0, "Redis is away" in ran.stderr) == (True, True), ran.stderr
        path.write_bytes(whole)  # a replica's or a backup's copy
        on.redis.start()
        on.expect("sink.a4", ids)


# -- full ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small disk is a tmpfs, and mounting it needs root on Linux: run this test as root there")
    folder = tmp_path / "small"
    folder.mkdir()
    ran = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "delayq", str(folder)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        pytest.skip(f"this system lets nobody mount a tmpfs ({ran.stderr.strip()}): run this test where root may")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that leaves nothing."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4_096)):
            pass
    return path


@contextmanager
def on_disk(folder: Path, logs: Path, *extra: str, kind: str = "valkey") -> Iterator[Rig]:
    """A rig whose Redis has its data here."""
    with (
        EmbeddedServer(data_dir=folder / "valkey", binary=binary_of(kind), extra=extra) as redis,
        real_sink() as sink,
        Service(logs, redis.url, **SETTINGS, routes=sink.routes) as service,
    ):
        yield Rig(redis, sink, service)


def until_refused(on: Rig, topic: str) -> list[str]:
    """Schedule messages until Redis takes no more; the ids of those that were accepted."""
    accepted: list[str] = []

    def full() -> bool:
        id = f"{topic}-{len(accepted)}"
        status = on.service.schedule(topic, delayTime="1s", id=id, body="x" * 10_000).status_code
        if status == 201:
            accepted.append(id)
        return status == 503

    eventually(full, "Redis takes no more")
    return accepted


def test_a5_a_full_disk_stops_everything_until_there_is_room_again(small: Path, tmp_path: Path) -> None:
    with on_disk(small, tmp_path) as on:
        ids = on.schedule("sink.a5", 100, delay=2_000)
        filler = fill(small)
        ids += until_refused(on, "sink.a5")
        eventually(lambda: not on.service.ready(), "the API says so")
        assert on.admin.info("persistence")["aof_last_write_status"] == "err"
        pids = [one.pid for one in on.service.processes]
        filler.unlink()
        eventually(on.service.ready, "it heals by itself")
        last = f"sink.a5-{len(ids) - 100}"  # the one whose outcome was unknown
        assert on.service.schedule("sink.a5", delayTime="1s", id=last, body="x" * 10_000).status_code in (200, 201)
        on.expect("sink.a5", [*ids, last])
        assert [one.pid for one in on.service.processes] == pids
        assert on.redis.pid is not None


def full_for_a_moment(on: Rig, small: Path, topic: str) -> list[str]:
    """A disk that takes half a command of a file that a rewrite began, and is made room on; the ids that were accepted."""
    on.admin.bgrewriteaof()
    eventually(lambda: not on.admin.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
    ids = on.schedule(topic, 20, delay=HOUR)
    filler = fill(small)
    os.truncate(filler, filler.stat().st_size - 4_096)
    accepted = until_refused(on, topic)
    filler.unlink()
    eventually(lambda: on.admin.info("persistence")["aof_last_write_status"] == "ok", "Redis writes again")
    return [*ids, *accepted, *on.schedule(topic, 20, delay=HOUR)]


def file_of(small: Path) -> Path:
    """The newest append-only file."""
    files = (small / "valkey" / "appendonlydir").glob("*.incr.aof")
    return max(files, key=lambda path: int(path.name.split(".")[-3]))


@pytest.mark.parametrize("kind", KINDS)
def test_a5_a_disk_that_was_full_for_a_moment_is_not_ready_before_its_file_was_rewritten(
    kind: str, small: Path, tmp_path: Path
) -> None:
    with on_disk(small, tmp_path, kind=kind) as on:
        (worker,) = on.service.workers
        worker.stop()  # nobody asks for a rewrite
        ids = full_for_a_moment(on, small, "sink.a5.moment")
        (missing,) = refused(on.http.get("/readyz"))["missing"]
        assert "do not restart it before a rewrite" in missing
        assert bytes(1_000) in file_of(small).read_bytes()
        worker.start()
        eventually(on.service.ready, "a worker has had it rewritten")
        assert bytes(1_000) not in file_of(small).read_bytes()
        on.redis.kill()
        on.redis.start()
        assert still_there(on.redis, ids) == set(ids)
        eventually(on.service.ready, "the API is ready")


@pytest.mark.parametrize("kind", KINDS)
def test_a5_a_file_with_a_hole_of_zeros_is_loaded_once_they_are_cut_out(kind: str, small: Path, tmp_path: Path) -> None:
    with on_disk(small, tmp_path, kind=kind) as on:
        for worker in on.service.workers:
            worker.stop()
        ids = full_for_a_moment(on, small, "sink.a5.hole")
        on.redis.kill()
        with pytest.raises(EmbeddedServerError, match="Bad file format"):
            on.redis.start()
        path = file_of(small)
        (block,) = (
            one for one in blocks_of(ROOT / "docs" / "redis.md") if one.note == "run by tests/faults/test_a_disk.py"
        )
        command = [sys.executable, "-c", block.text, str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, "zeros" in ran.stdout) == (0, True), ran.stderr
        path.with_name(f"{path.name}.whole").rename(path)
        on.redis.start()
        assert still_there(on.redis, ids) == set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_a5_what_is_reported_upstream_can_be_seen(kind: str, small: Path, tmp_path: Path) -> None:
    cli = shutil.which("redis-cli")
    if cli is None:
        pytest.skip(NO_REDIS)
    page = ROOT / "docs" / "upstream" / "aof-hole-after-a-short-write.md"
    (block,) = (one for one in blocks_of(page) if one.note == "run by tests/faults/test_a_disk.py")
    binary = binary_of(kind) or EmbeddedServer().binary
    given = {"SERVER": str(binary), "CLI": cli, "PORT": str(free_port()), "DISK": str(tmp_path / "disk")}
    ran = subprocess.run(
        ["bash", "-c", block.text], env=os.environ | given, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Bad file format reading the append only file" in ran.stdout, ran


def test_a5_a_redis_that_a_full_disk_ended_loses_nothing_when_it_is_started_again(small: Path, tmp_path: Path) -> None:
    with on_disk(small, tmp_path, "--appendfsync", "always") as on:
        filler = fill(small)
        ids = until_refused(on, "sink.a5.always")
        eventually(lambda: on.redis.pid is None, "Redis has ended")
        filler.unlink()
        on.redis.start()
        eventually(on.service.ready, "it heals by itself")
        last = f"sink.a5.always-{len(ids)}"
        assert on.service.schedule("sink.a5.always", delayTime="1s", id=last, body="x" * 10_000).status_code in (
            200,
            201,
        )
        on.expect("sink.a5.always", [*ids, last])
