"""`python -m workers` as a process: killed, asked to stop, started wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from delayq.client.client import Client
from delayq.client.operations import Scheduled
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.message import Message
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
LOG_ROUTE = '[{"name": "log", "target": "log:"}]'
QUEUES, WINDOW = 4, 100
TOTAL = 6_000


class Workers:
    """Worker processes that write what they forward into one file."""

    def __init__(self, url: str, out: Path) -> None:
        self.url = url
        self.out = out
        self.made: list[subprocess.Popen[bytes]] = []

    def start(self, settings: dict[str, str] | None = None, *, ignore_sigint: bool = False) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELAYQ_")}
        given = {
            "redis_url": self.url,
            "routes": LOG_ROUTE,
            "queues": str(QUEUES),
            "window": str(WINDOW),
            "node": "w",
        } | (settings or {})
        environment |= {f"DELAYQ_{name.upper()}": value for name, value in given.items()}
        command = [sys.executable, "-m", "workers"]
        if ignore_sigint:  # as a shell without job control does for what runs in the background
            code = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
            command = [sys.executable, "-c", code, *command]
        with self.out.open("ab") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.PIPE)
        self.made.append(process)
        return process

    def forwarded(self) -> list[str]:
        """The ids in the file, in order; a line that was cut off by a kill is left out."""
        ids = []
        for line in self.out.read_bytes().split(b"\n"):
            try:
                ids.append(msgspec.json.decode(line)["id"])
            except msgspec.DecodeError:
                continue
        return ids

    def lines(self) -> int:
        return self.out.read_bytes().count(b"\n") if self.out.exists() else 0

    def end(self, process: subprocess.Popen[bytes], number: signal.Signals) -> tuple[int, str]:
        """Send the signal; the exit status and what was said."""
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        return process.returncode, said.decode()

    def close(self) -> None:
        for process in self.made:
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=10)


@pytest.fixture
def workers(own_valkey: EmbeddedServer, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(own_valkey.url, tmp_path / "forwarded.jsonl")
    yield made
    made.close()


def load(url: str) -> Client:
    """A client that has scheduled TOTAL messages."""
    client = Client(settings=load_settings(redis_url=url, routes=LOG_ROUTE, queues=QUEUES))
    messages = [Message(topic="t", id=f"m{i}", delay_time=i // 2) for i in range(TOTAL)]
    assert all(isinstance(answer, Scheduled) for answer in client.schedule_many(messages))
    return client


def nothing_left(client: Client) -> bool:
    return all(queue.scheduled + queue.parked == 0 for queue in client.stats())


@pytest.mark.slow
def test_after_kill_9_everything_is_forwarded_and_at_most_the_window_twice(workers: Workers) -> None:
    with load(workers.url) as client:
        for part in (1, 2):
            process = workers.start()
            eventually(lambda part=part: workers.lines() >= part * TOTAL // 4, "some are forwarded")  # type: ignore[misc]
            process.kill()
            process.communicate(timeout=10)
            assert not nothing_left(client)
        workers.start()
        eventually(lambda: nothing_left(client), "everything is forwarded", 60)
    counts = Counter(workers.forwarded())
    # A line may be cut off by the kill and the next glued to it: such a message is forwarded again, whole.
    assert set(counts) == {f"m{i}" for i in range(TOTAL)}
    assert sum(counts.values()) - TOTAL <= 2 * QUEUES * WINDOW


@pytest.mark.slow
def test_sigterm_in_the_middle_of_a_load_ends_with_0_and_makes_no_duplicates(workers: Workers) -> None:
    with load(workers.url) as client:
        process = workers.start()
        eventually(lambda: workers.lines() >= TOTAL // 4, "some are forwarded")
        status, said = workers.end(process, signal.SIGTERM)
        assert status == 0, said
        assert "Traceback" not in said
        assert not nothing_left(client)
        process = workers.start()
        eventually(lambda: nothing_left(client), "everything is forwarded", 60)
        assert workers.end(process, signal.SIGTERM)[0] == 0
    assert sorted(workers.forwarded()) == sorted(f"m{i}" for i in range(TOTAL))


@pytest.mark.slow
def test_sigint_stops_a_worker_that_inherited_it_as_ignored(workers: Workers) -> None:
    process = workers.start(ignore_sigint=True)
    with Client(settings=load_settings(redis_url=workers.url, queues=QUEUES)) as client:
        eventually(lambda: "w" in client.nodes(), "the worker has written its line")
        status, said = workers.end(process, signal.SIGINT)
        assert status == 0, said
        assert client.nodes() == {}


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"max_attempts": "0"}, "DELAYQ_MAX_ATTEMPTS"),
        ({"routes": "[{"}, "DELAYQ_ROUTES"),
        ({"routes": '[{"name": "x", "target": "nowhere://x"}]'}, "nowhere"),
        ({"redis_url": "http://x"}, "Redis URL"),
        ({"send_timeout": "soon"}, "DELAYQ_SEND_TIMEOUT"),
        ({"queues": "5"}, "queues"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_setting_is_answered_with_one_sentence_and_exit_2(
    workers: Workers, settings: dict[str, str], word: str
) -> None:
    if "queues" in settings:
        with load_small(workers.url):
            pass
    process = workers.start(settings)
    _, said = process.communicate(timeout=30)
    sentences = [line for line in said.decode().splitlines() if line.startswith("delayq worker: ")]
    assert process.returncode == 2, said
    assert len(sentences) == 1
    assert word in sentences[0]
    assert "Traceback" not in said.decode()


def load_small(url: str) -> Client:
    """A client that has agreed with Redis on QUEUES queues."""
    client = Client(settings=load_settings(redis_url=url, queues=QUEUES))
    client.schedule(Message(topic="later", delay_time=600_000))
    return client
