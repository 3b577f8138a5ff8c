"""The service on a Redis that a test may do anything to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from tests.support.waiting import eventually

__all__ = ["QUEUES", "SETTINGS", "WINDOW", "Group", "Rig", "behind", "fail_over", "group_on", "rig"]

QUEUES = 4
#: Of a group behind sentinels.
WINDOW = 100
#: How long the services wait for a reply of Redis is short, so that a fault shows soon.
SETTINGS: dict[str, Any] = {"queues": str(QUEUES), "redis_timeout": "1000", "retry_base": "100", "retry_cap": "500"}


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
            drained(self.service)


@contextmanager
def rig(folder: Path, *, extra: Sequence[str] = (), **settings: Any) -> Iterator[Rig]:
    """A rig whose service runs."""
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedServer(data_dir=folder / "valkey", extra=[*KEPT, *extra]))
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
            self.sink.expect(topic, accepted, cancelled=cancelled, maybe=maybe, twice=twice)
        drained(self.service)


@contextmanager
def group_on(folder: Path, url: str, **settings: Any) -> Iterator[Group]:
    """A group whose service runs."""
    with real_sink() as sink, Service(folder, url, **SETTINGS | {"routes": sink.routes} | settings) as service:
        yield Group(service, sink)


@contextmanager
def behind(sentinels: SentinelsUnderTest, folder: Path, replicas: int, **settings: str) -> Iterator[Group]:
    """A group behind sentinels: every change waits for so many replicas, and a primary that lost them takes none.

    Its processes are never started again.
    """
    sentinels.heal()
    sentinels.flush()
    for one in sentinels.members:
        for name, value in ({"min-replicas-to-write": replicas} | settings).items():
            one.admin.config_set(name, value)
    with group_on(folder, sentinels.url, min_replicas=str(replicas), window=str(WINDOW)) as made:
        pids = [one.pid for one in made.service.processes]
        yield made
        assert [one.pid for one in made.service.processes if one.alive] == pids
    for one in sentinels.members:
        one.admin.config_set("min-replicas-to-write", 0)


def fail_over(sentinels: SentinelsUnderTest, how: Callable[[], object]) -> None:
    """Do something to the primary, and wait until another one is in its place."""
    old = sentinels.primary
    how()
    eventually(lambda: sentinels.primary is not old and sentinels.primary.is_primary, "another one is primary")
