"""docs/operations.md: a backup that is taken under load, and restored into another server."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from delayq import Client, Message
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from tests.docs.blocks import ROOT, blocks_of
from tests.support.load import Load
from tests.support.servers import NO_REDIS, REDIS_SERVER
from tests.support.service import Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = pytest.mark.release

(BACKUP, RESTORE) = (
    block.text
    for block in blocks_of(ROOT / "docs" / "operations.md")
    if block.note == "run by tests/recovery/test_backup.py"
)
PORT = "6390"
HOUR = 3_600_000


def run(script: str, folder: Path, url: str) -> None:
    """What the page says, with the port that is free here."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
    command = ["bash", "-euo", "pipefail", "-c", script]
    env |= {"DELAYQ_REDIS_URL": url}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def restored(folder: Path) -> Iterator[str]:
    """The server that the page starts; its URL."""
    port = str(free_port())
    try:
        run(RESTORE.replace(PORT, port), folder, "")
        yield f"redis://{LOCALHOST}:{port}/0"
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((folder / "restored" / "redis.pid").read_text()), signal.SIGTERM)


@contextmanager
def service(folder: Path, url: str) -> Iterator[Service]:
    """An API and a worker."""
    folder.mkdir()
    with Service(folder, url, queues="2", redis_timeout=str(REDIS_TIMEOUT)) as running:
        yield running


def state(client: Client, id: str) -> str:
    found = client.get(id)
    assert found is not None, f"{id} is lost"
    return found.state


def arrived(url: str) -> set[str]:
    with redis.Redis.from_url(url, decode_responses=True) as admin:
        return {fields["id"] for _, fields in admin.xrange("orders")}


def test_what_was_accepted_before_the_backup_is_there_after_it_and_what_was_cancelled_stays_so(tmp_path: Path) -> None:
    """A20: A message that was delivered after the backup is pending again, and is delivered again, unless it is
    cancelled before workers start."""
    if REDIS_SERVER is None:
        pytest.skip(NO_REDIS)
    with (
        EmbeddedServer(binary=Path(REDIS_SERVER), data_dir=tmp_path / "first") as first,
        service(tmp_path / "before", first.url) as before,
        Client(first.url) as client,
    ):
        waiting = [f"waiting-{number}" for number in range(200)]
        client.schedule_many(Message(topic="orders", id=id, delay_time=HOUR) for id in waiting)
        with Load(before.url, "orders", latest=200) as load:
            eventually(lambda: len(load.cancelled) >= 5, "there is some load")
            accepted, cancelled = set(load.accepted["orders"]), set(load.cancelled)
            run(BACKUP, tmp_path, first.url)
            load.wait_for(50)
        # What happens after the backup the restored server cannot know: cancels, deliveries, new messages.
        late, delivered, handled, since = (
            waiting[:10],
            waiting[10:30],
            waiting[30:40],
            [f"since-{n}" for n in range(10)],
        )
        assert {one.result for one in client.cancel_many(late)} == {"cancelled"}
        for id in (*delivered, *handled):
            client.reschedule(id, delay_time=0)
        eventually(lambda: {*delivered, *handled} <= arrived(first.url), "they are delivered")
        client.schedule_many(Message(topic="orders", id=id, delay_time=HOUR) for id in since)
    accepted |= set(waiting)
    with restored(tmp_path) as url, Client(url) as client:
        # Before any worker runs, what is known to have been handled is taken out.
        assert {one.result for one in client.cancel_many(handled)} == {"cancelled"}
        assert client.get_many(since) == [None] * len(since)
        with service(tmp_path / "after", url):
            assert all(state(client, id) for id in accepted)
            assert {state(client, id) for id in cancelled} == {"cancelled"}
            assert {state(client, id) for id in waiting if id not in handled} == {"scheduled"}
            # What is due by now comes, and what was to come later comes then: here, at once.
            assert {one.result for one in client.cancel_many(late)} == {"cancelled"}
            for id in set(waiting) - {*late, *handled}:
                client.reschedule(id, delay_time=0)
            # What was cancelled when the copy was taken, or after it, may come or not: the copy alone knows.
            due = accepted - load.cancelled - load.in_flight - {*late, *handled}
            eventually(lambda: due <= arrived(url), "all that was due has come")
            assert not arrived(url) & (cancelled | {*late, *handled})
            # It goes on as any other: it takes new messages, and keeps an append-only file.
            client.schedule(Message(topic="orders", id="new", delay_time=0))
            eventually(lambda: "new" in arrived(url), "a new one comes")
            assert list((tmp_path / "restored").glob("appendonlydir/*.manifest"))
