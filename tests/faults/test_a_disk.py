"""The disk under Redis: syncs that hang, a power cut, a file that is damaged, no space left, a file of an older server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from delayq import Client, Message, Settings, StoreError, StoreUnavailable
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import free_port
from delayq.testing import MemoryTarget
from tests.api.conftest import in_process
from tests.docs.blocks import blocks_of
from tests.faults.flow import answered, delayq, refused
from tests.support.fsync import Disk, cut_off, slow_disk
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import KEPT, NO_REDIS, REDIS_SERVER
from tests.support.service import ROOT
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
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
    return Client(redis.url, settings=Settings(**{"redis_timeout": REDIS_TIMEOUT} | given))


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
    """A2: With `DELAYQ_FSYNC=always` no answer is 2xx before its change is on the disk."""
    redis = server(kind, tmp_path / "data")
    with redis, client_of(redis, fsync="always") as client:
        accepted = accept(client, *(f"before{number}" for number in range(20)))
        assert len(accepted) == 20
        disk.take()
        # The reply never comes, so the timeout alone ends this call.
        with client_of(redis, fsync="always", redis_timeout=500) as hurried, pytest.raises(StoreUnavailable):
            hurried.schedule(Message(topic="t", id="during", delay_time=HOUR))
        eventually(lambda: disk.waiting, "a sync hangs")
        redis.kill()
        disk.take(0)
        redis.start()
        assert still_there(redis, accepted) == set(accepted)
        assert client.schedule(Message(topic="t", id="during", delay_time=HOUR)).state == "scheduled"


def test_a2_without_fsync_only_what_redis_has_not_written_for_two_seconds_can_be_lost(
    tmp_path: Path, disk: Disk
) -> None:
    """A2: With `everysec` a hanging disk stops nobody, and unwritten changes of up to 2 s are lost.

    The first answer of each queue that lost some makes its worker report `went_back`.
    """
    redis = EmbeddedServer(data_dir=tmp_path / "data")
    with redis, client_of(redis) as client:
        disk.take()
        accept(client, "first")
        eventually(lambda: disk.waiting, "a sync hangs")
        accepted = accept(client, *(f"during{number}" for number in range(20)))
        assert len(accepted) == 20  # a sync that hangs stops nobody
        eventually(lambda: persistence(redis)["aof_delayed_fsync"], "Redis writes, though the sync hangs")
        eventually(lambda: not persistence(redis)["aof_buffer_length"], "everything is written")
        redis.kill()
        disk.take(0)
        redis.start()
        assert still_there(redis, ["first", *accepted]) == {"first", *accepted}


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
        self._thread.join()


@pytest.mark.parametrize("kind", KINDS)
def test_a3_a_power_cut_loses_nothing_that_was_to_be_on_disk(kind: str, tmp_path: Path, disk: Disk) -> None:
    """A3: A file that ends within a command is loaded up to that command."""
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


def test_a3_without_fsync_a_power_cut_loses_only_what_came_after_the_last_sync(tmp_path: Path, disk: Disk) -> None:
    redis = EmbeddedServer(data_dir=tmp_path / "data")
    with redis, client_of(redis) as client:
        kept = accept(client, *(f"kept{number}" for number in range(50)))
        # While a sync takes long, what was accepted may not be in the file yet.
        eventually(lambda: not persistence(redis)["aof_buffer_length"], "everything is written")
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


# -- damaged -------------------------------------------------------------------------------------------------------------


async def test_a4_a_damaged_file_stops_redis_and_is_never_taken_for_an_empty_queue(tmp_path: Path) -> None:
    """A4 (AOF corrupt in the middle): Redis refuses to start: 503. A damaged file never counts as an empty queue."""
    with EmbeddedServer(data_dir=tmp_path / "data", extra=KEPT) as redis:
        async with in_process(load_settings(redis_url=redis.url)) as api:
            for number in range(200):
                message = {"topic": "t", "id": f"a4-{number}", "delayTime": HOUR}
                assert (await api.post("/v1/messages", json=message)).status_code == 201
            redis.kill()
            (path,) = (tmp_path / "data" / "appendonlydir").glob("*.incr.aof")
            whole = path.read_bytes()
            at = whole.index(b"\r\n*", len(whole) // 2) + 2
            path.write_bytes(whole[:at] + b"\xff\xff" + whole[at + 2 :])
            with pytest.raises(EmbeddedServerError, match="Bad file format"):
                redis.start()
            for asked in ("/readyz", "/v1/queues", "/v1/messages/a4-0"):
                refused(await api.get(asked))
            refused(await api.post("/v1/messages", json={"topic": "t", "id": "new", "delayTime": HOUR}))
            status, text = delayq(redis.url, "doctor")
            assert (status != 0, "Redis is unreachable" in text) == (True, True), text
            path.write_bytes(whole)  # a replica's or a backup's copy
            redis.start()
            assert (await api.get("/v1/queues")).json()["total"]["depth"] == 200


# -- full ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small disk is a tmpfs, and mounting it needs root on Linux: run this test as root there")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "delayq", str(folder)]
    ran = subprocess.run(mount, capture_output=True, text=True, check=False)
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


def until_refused(client: Client, name: str) -> list[str]:
    """Schedule messages until Redis takes no more; the ids of those that were accepted."""
    accepted: list[str] = []
    while True:
        try:
            message = Message(topic="t", id=f"{name}-{len(accepted)}", body="x" * 10_000, delay_time=HOUR)
            accepted.append(client.schedule(message).id)
        except StoreError:
            return accepted


def persistence(redis: EmbeddedServer) -> dict[str, Any]:
    """What the server tells of its file."""
    with Redis(port=redis.port, protocol=2) as admin:
        told: Any = admin.info("persistence")
        return dict(told)


def full_for_a_moment(redis: EmbeddedServer, client: Client, small: Path) -> list[str]:
    """A disk that takes half a command of a file that a rewrite began, and is made room on; the ids that were accepted."""
    with Redis(port=redis.port, protocol=2) as admin:
        admin.bgrewriteaof()
    eventually(lambda: not persistence(redis)["aof_rewrite_in_progress"], "it is rewritten")
    ids = accept(client, *(f"first-{number}" for number in range(20)))
    filler = fill(small)
    os.truncate(filler, filler.stat().st_size - 4_096)
    ids += until_refused(client, "full")
    filler.unlink()
    eventually(lambda: persistence(redis)["aof_last_write_status"] == "ok", "Redis writes again")
    return ids + accept(client, *(f"then-{number}" for number in range(20)))


def file_of(small: Path) -> Path:
    """The newest append-only file."""
    files = (small / "valkey" / "appendonlydir").glob("*.incr.aof")
    return max(files, key=lambda path: int(path.name.split(".")[-3]))


async def test_a5_a_disk_that_was_full_for_a_moment_is_not_ready_before_its_file_was_rewritten(small: Path) -> None:
    """A5 (disk full): Nothing accepted is lost.

    Redis takes no writes (503) or ends (`always`). Workers rewrite a file with a hole of zeros; nothing is ready
    before.

    A5: With `everysec` the API answers 503, workers pull nothing, and all recover by themselves when there is room.
    The file may then have a hole of zeros, with which Redis would not start again.
    """
    target = MemoryTarget()
    with EmbeddedServer(data_dir=small / "valkey") as redis:
        settings = settings_for(redis.url, target)
        async with in_process(settings) as api:
            client = Client(settings=settings)
            assert (await api.get("/readyz")).status_code == 200
            filler = fill(small)
            until_refused(client, "full")
            refused(await api.get("/readyz"))
            refused(await api.post("/v1/messages", json={"topic": "m.t", "id": "during", "delayTime": 0}))
            filler.unlink()
            eventually(lambda: persistence(redis)["aof_last_write_status"] == "ok", "Redis writes again")
            ids = full_for_a_moment(redis, client, small)
            (missing,) = refused(await api.get("/readyz"))["missing"]
            assert "do not restart it before a rewrite" in missing
            assert bytes(1_000) in file_of(small).read_bytes()
            with RunningNode(settings):  # it asks for a rewrite
                await answered(api, "/readyz", 200)
                assert bytes(1_000) not in file_of(small).read_bytes()
                message = {"topic": "m.t", "id": "during", "delayTime": 0}
                assert (await api.post("/v1/messages", json=message)).status_code in (200, 201)
                target.wait_for_ids(["during"], PATIENCE)
            client.close()
        redis.kill()
        redis.start()
        assert still_there(redis, ids) == set(ids)


def test_a5_a_file_with_a_hole_of_zeros_is_loaded_once_they_are_cut_out(small: Path) -> None:
    """A5: A Redis that is killed before the rewrite loses nothing either, once the zeros are cut out."""
    with EmbeddedServer(data_dir=small / "valkey") as redis, client_of(redis) as client:
        ids = full_for_a_moment(redis, client, small)
        redis.kill()
        with pytest.raises(EmbeddedServerError, match="Bad file format"):
            redis.start()
        path = file_of(small)
        command = [sys.executable, "-c", block_of("redis.md"), str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (ran.returncode, "zeros" in ran.stdout) == (0, True), ran.stderr
        path.with_name(f"{path.name}.whole").rename(path)
        redis.start()
        assert still_there(redis, ids) == set(ids)


def block_of(page: str) -> str:
    """The commands of a page that are run here."""
    (block,) = (one for one in blocks_of(ROOT / "docs" / page) if one.note == "run by tests/faults/test_a_disk.py")
    return block.text


@pytest.mark.parametrize("kind", KINDS)
def test_a5_what_is_reported_upstream_can_be_seen(kind: str, small: Path, tmp_path: Path) -> None:
    cli = shutil.which("redis-cli")
    if cli is None:
        pytest.skip(NO_REDIS)
    binary = binary_of(kind) or EmbeddedServer().binary
    given = {"SERVER": str(binary), "CLI": cli, "PORT": str(free_port()), "DISK": str(tmp_path / "disk")}
    script = ["bash", "-c", block_of("upstream/aof-hole-after-a-short-write.md")]
    ran = subprocess.run(script, env=os.environ | given, capture_output=True, text=True, check=False)
    assert "Bad file format reading the append only file" in ran.stdout, ran


def test_a5_a_redis_that_a_full_disk_ended_loses_nothing_when_it_is_started_again(small: Path) -> None:
    """A5: With `always` Redis ends, and continues when it is started again."""
    redis = EmbeddedServer(data_dir=small / "valkey", extra=["--appendfsync", "always"])
    with redis, client_of(redis, fsync="always") as client:
        filler = fill(small)
        ids = until_refused(client, "always")
        eventually(lambda: redis.pid is None, "Redis has ended")
        filler.unlink()
        redis.start()
        assert still_there(redis, ids) == set(ids)
        assert accept(client, f"always-{len(ids)}")


# -- from elsewhere ------------------------------------------------------------------------------------------------------


def test_a21_data_of_redis_7_are_served_by_valkey_with_the_same_results(tmp_path: Path) -> None:
    binary, target = binary_of("redis7"), MemoryTarget()
    rows = {name: Message(topic="m.t", id=name, delay_time=0) for name in ("done", "due")}
    with EmbeddedServer(data_dir=tmp_path / "data", binary=binary, extra=KEPT) as old:
        settings = settings_for(old.url, target)
        with Client(settings=settings) as client:
            with RunningNode(settings):
                client.schedule(rows["done"])
                target.wait_for_ids(["done"], PATIENCE)
            client.schedule(rows["due"])
            client.schedule(Message(topic="m.t", id="cancelled", delay_time=HOUR, keys=("k",)))
            client.schedule(Message(topic="m.t", id="far", delay_time=HOUR, keys=("k",)))
            assert client.cancel("cancelled").result == "cancelled"
    with EmbeddedServer(data_dir=tmp_path / "data", extra=KEPT) as new:
        settings = settings_for(new.url, target)
        with Client(settings=settings) as client:
            assert client.cancel("cancelled").result == "cancelled"
            assert client.schedule(rows["done"]).state == "delivered"
            with RunningNode(settings):
                target.wait_for_ids(["due"], PATIENCE)
            assert [one.id for one in client.find("k")] == ["far"]
    assert target.ids == ["done", "due"]
