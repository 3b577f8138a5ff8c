"""The service on servers whose primary changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from delayq.embedded import EmbeddedServer
from tests.faults.flow import drained, schedule
from tests.support.load import Load
from tests.support.sentinels import SentinelsUnderTest
from tests.support.servers import KEPT, ServerUnderTest
from tests.support.service import Service
from tests.support.sink import Sink, real_sink
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

QUEUES, WINDOW = 4, 100
SETTINGS: dict[str, Any] = {
    "queues": str(QUEUES), "window": str(WINDOW), "redis_timeout": str(REDIS_TIMEOUT), "retry_base": "100", "retry_cap": "500",
}  # fmt: skip


class Group:
    """The service, and a sink, which stays, for topics 'sink.*'."""

    def __init__(self, service: Service, sink: Sink) -> None:
        self.service = service
        self.sink = sink
        self.http = service.http

    def load(self, row: str) -> Load:
        """A producer of messages of two topics."""
        return Load(self.service.url, f"sink.{row}", f"sink.{row}.too")

    def schedule(self, topic: str, count: int, delay: int = 0) -> list[str]:
        """Schedule messages over HTTP in one batch; their ids."""
        return schedule(self.service, topic, count, delay)

    def expect_all(self, load: Load, twice: int) -> None:
        """Every accepted message arrives, none early, none after a certain cancel."""
        for topic, accepted in load.accepted.items():
            cancelled, maybe = load.cancelled & set(accepted), load.in_flight & set(accepted)
            self.sink.expect(topic, accepted, cancelled=cancelled, maybe=maybe, twice=twice)
        drained(self.service)


class Rig(Group):
    """The service on one Redis, which a test may do anything to."""

    def __init__(self, redis: EmbeddedServer, service: Service, sink: Sink) -> None:
        super().__init__(service, sink)
        self.redis = redis
        self.server = ServerUnderTest("valkey", redis.url)
        self.admin: Any = self.server.admin


@contextmanager
def group_on(folder: Path, url: str, **settings: Any) -> Iterator[Group]:
    """A group whose service runs."""
    with real_sink() as sink, Service(folder, url, **SETTINGS | {"routes": sink.routes} | settings) as service:
        yield Group(service, sink)


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """A rig whose service runs."""
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedServer(data_dir=folder / "valkey", extra=KEPT))
        group = stack.enter_context(group_on(folder, redis.url))
        made = Rig(redis, group.service, group.sink)
        stack.callback(made.server.close)
        yield made


@contextmanager
def behind(sentinels: SentinelsUnderTest, folder: Path, replicas: int) -> Iterator[Group]:
    """A group behind sentinels: every change waits for so many replicas, and a primary that lost them takes none.

    Its processes are never started again.
    """
    sentinels.heal()
    sentinels.flush()
    for one in sentinels.members:
        one.admin.config_set("min-replicas-to-write", replicas)
    with group_on(folder, sentinels.url, min_replicas=str(replicas)) as made:
        pids = [one.pid for one in made.service.processes]
        yield made
        assert [one.pid for one in made.service.processes if one.alive] == pids
    sentinels.heal()
    for one in sentinels.members:
        one.admin.config_set("min-replicas-to-write", 0)


def fail_over(sentinels: SentinelsUnderTest, before: Callable[[], object]) -> None:
    """Do something to the primary, and have another one put in its place."""
    old = sentinels.primary
    before()
    sentinels.fail_over()
    eventually(lambda: sentinels.primary is not old and sentinels.primary.is_primary, "another one is primary")
