"""The service on a Redis that a test may do anything to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from delayq.embedded import EmbeddedServer
from tests.support.load import Load
from tests.support.sentinels import SentinelsUnderTest
from tests.support.servers import ServerUnderTest
from tests.support.service import ROOT, Service
from tests.support.sink import Sink, real_sink
from tests.support.waiting import eventually

__all__ = [
    "QUEUES", "SETTINGS", "Group", "Rig", "doctor", "fail_over", "group_on", "refused", "rig", "schedule", "wait_until_done",
]  # fmt: skip

QUEUES = 4
#: How long the services wait for a reply of Redis is short, so that a fault shows soon.
SETTINGS: dict[str, Any] = {"queues": str(QUEUES), "redis_timeout": "1000", "retry_base": "100", "retry_cap": "500"}


def schedule(service: Service, topic: str, count: int, delay: int = 0, **fields: Any) -> list[str]:
    """Schedule messages over HTTP in one batch; their ids."""
    messages = [{"topic": topic, "delayTime": delay, "body": str(number)} | fields for number in range(count)]
    answer = service.http.post("/v1/messages:batch", json={"messages": messages})
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert {result["status"] for result in results} == {201}, results
    return [result["id"] for result in results]


def refused(answer: httpx2.Response, status: int = 503) -> dict[str, Any]:
    """The problem of an answer that says when to ask again."""
    assert answer.status_code == status, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    told: dict[str, Any] = answer.json()
    return told


def wait_until_done(service: Service, seconds: float = 40, pending: int = 0) -> None:
    """Until nothing is pending, or only so many."""

    def done() -> bool:
        answer = service.http.get("/v1/stats")
        return answer.status_code == 200 and answer.json()["depth"] + answer.json()["parked"] == pending

    eventually(done, "everything is acked", seconds)


def doctor(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`delayq doctor`, as a process."""
    command = [sys.executable, "-m", "delayq.cli", "doctor", "--redis-url", url, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


class Rig:
    """Redis, a sink, and the service. Topics 'sink.*' take the general path, others the pull script's own."""

    def __init__(self, redis: EmbeddedServer, sink: Sink, service: Service) -> None:
        self.redis = redis
        self.server = ServerUnderTest("valkey", redis.url)
        self.admin: Any = self.server.admin
        self.sink = sink
        self.service = service
        self.http = service.http

    def schedule(self, topic: str, count: int, delay: int = 0, **fields: Any) -> list[str]:
        """Schedule messages over HTTP in one batch; their ids."""
        return schedule(self.service, topic, count, delay, **fields)

    def load(self, row: str, **options: Any) -> Load:
        """A producer of messages of both paths."""
        return Load(self.service.url, f"sink.{row}", row, **options)

    def expect(self, topic: str, accepted: Sequence[str], **options: Any) -> None:
        """`Sink.expect`, wherever the topic goes."""
        self.sink.expect(topic, accepted, at=None if topic.startswith("sink.") else self.server, **options)

    def expect_all(self, load: Load, twice: int = 0) -> None:
        """Every accepted message arrives, none early, none after a certain cancel; then nothing more comes."""
        for _ in range(2):
            for topic, accepted in load.accepted.items():
                cancelled, maybe = load.cancelled & set(accepted), load.in_flight & set(accepted)
                again = twice if topic.startswith("sink.") else 0  # the script that appends removes, too
                self.expect(topic, accepted, cancelled=cancelled, maybe=maybe, twice=again)
            wait_until_done(self.service)


@contextmanager
def rig(folder: Path, *, extra: Sequence[str] = (), **settings: Any) -> Iterator[Rig]:
    """A rig whose service runs."""
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedServer(data_dir=folder / "valkey", extra=extra))
        sink = stack.enter_context(real_sink())
        service = Service(folder, redis.url, **SETTINGS | {"routes": sink.routes} | settings)
        stack.enter_context(service)
        made = Rig(redis, sink, service)
        stack.callback(made.server.close)
        yield made


class Group:
    """The service on servers whose primary changes; all topics go to a sink, which stays."""

    def __init__(self, service: Service, sink: Sink) -> None:
        self.service = service
        self.sink = sink

    def load(self, row: str) -> Load:
        """A producer of messages of two topics."""
        return Load(self.service.url, f"sink.{row}", f"sink.{row}.too")

    def expect_all(self, load: Load, twice: int) -> None:
        """Every accepted message arrives, none early, none after a certain cancel."""
        for topic, accepted in load.accepted.items():
            cancelled, maybe = load.cancelled & set(accepted), load.in_flight & set(accepted)
            self.sink.expect(topic, accepted, cancelled=cancelled, maybe=maybe, twice=twice, seconds=60)
        wait_until_done(self.service)


@contextmanager
def group_on(folder: Path, url: str, **settings: Any) -> Iterator[Group]:
    """A group whose service runs."""
    with real_sink() as sink, Service(folder, url, **SETTINGS | {"routes": sink.routes} | settings) as service:
        yield Group(service, sink)


def fail_over(sentinels: SentinelsUnderTest, how: Callable[[], object]) -> None:
    """Do something to the primary, and wait until another one is in its place."""
    old = sentinels.primary
    how()
    eventually(
        lambda: sentinels.primary is not old and sentinels.primary.is_primary, "another one is primary", seconds=40
    )
