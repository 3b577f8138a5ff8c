"""The service behind proxies: one that the API's way to Redis takes, and one for the first worker's."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from delayq.embedded import EmbeddedServer
from testbed.process import standing_still
from tests.faults.flow import drained, schedule
from tests.support.load import Load
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.service import Service
from tests.support.sink import Sink, real_sink
from tests.support.unread import unread
from tests.support.waiting import eventually, settled

__all__ = ["AWAY", "House", "evenly_owned", "house", "restarted"]

#: How long (ms) the services wait for a reply of Redis.
AWAY = 1_000


class House:
    """Redis, a sink, an API and workers; worker w0 and the API go to Redis each through a proxy of its own."""

    def __init__(
        self, redis: EmbeddedServer, sink: Sink, service: Service, api: FaultProxy, worker: FaultProxy
    ) -> None:
        self.redis = redis
        self.server = ServerUnderTest("valkey", redis.url)
        self.sink = sink
        self.service = service
        self.http = service.http
        self.to_api = api
        self.to_worker = worker

    def heal(self) -> None:
        """Everything passes, and the API says that it is ready."""
        self.to_api.heal()
        self.to_worker.heal()
        eventually(self.service.ready, "the API is ready")

    @contextmanager
    def redis_paused(self) -> Iterator[None]:
        """Redis keeps its connections and says nothing."""
        assert self.redis.pid is not None
        with standing_still(self.redis.pid):
            yield

    @contextmanager
    def sink_paused(self) -> Iterator[None]:
        """The sink keeps its connections and answers nothing."""
        self.sink.server.pause()
        try:
            yield
        finally:
            self.sink.server.resume()

    def wait_until_sent_to(self, senders: int) -> None:
        """While the sink is paused: until so many connections have sent it something, and all of what they send now."""
        port = self.sink.server.port

        def waiting() -> dict[str, int]:
            found = {end: count for end, count in unread(port).items() if count}
            return found if len(found) >= senders else {}

        settled(waiting, f"{senders} workers send to the sink")

    def expect(self, load: Load, *, twice: int = 0) -> None:
        """Everything that a load scheduled into 'sink.*' and into streams arrived; see `Sink.expect`."""
        for topic, accepted in load.accepted.items():
            general = topic.startswith("sink.")
            self.sink.expect(
                topic,
                accepted,
                cancelled=load.cancelled,
                maybe=load.in_flight,
                twice=twice if general else 0,
                at=None if general else self.server,
            )

    def schedule(self, topic: str, count: int, delay: int = 0, **fields: Any) -> list[str]:
        """Schedule messages over HTTP in one batch; their ids."""
        return schedule(self.service, topic, count, delay, **fields)

    def wait_until_done(self) -> None:
        """Until nothing is pending: all is acked."""
        drained(self.service)


def evenly_owned(service: Service) -> bool:
    """Whether every worker owns its share of the queues: from then on none changes hands by itself."""
    shares = Counter(service.owners().values())
    return service.owned() and max(shares.values()) - min(shares.values()) <= 1


@contextmanager
def restarted(service: Service, **settings: str) -> Iterator[None]:
    """All workers, started anew with other settings, and afterwards with those that they had."""

    def start(settings: Sequence[dict[str, str]]) -> None:
        for one in service.workers:
            one.signal(signal.SIGTERM)
        for one, wanted in zip(service.workers, settings, strict=True):
            one.stop()
            one.settings = wanted
        for one in service.workers:
            one.start()
        eventually(lambda: evenly_owned(service), "every worker owns its share of the queues")

    before = [one.settings for one in service.workers]
    start([one | settings for one in before])
    try:
        yield
    finally:
        start(before)


@contextmanager
def house(
    folder: Path, prepare: Callable[[Service], None] = lambda service: None, *, started: bool = True, **options: Any
) -> Iterator[House]:
    """A house; `options` are those of `Service`, which `prepare` may change before it starts, if it is to."""
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedServer(data_dir=folder / "valkey"))
        sink = stack.enter_context(real_sink())
        api, worker = (stack.enter_context(FaultProxy(redis.port)) for _ in range(2))
        settings = {"queues": "4", "redis_timeout": str(AWAY), "window": "100", "routes": sink.routes} | options
        service = Service(folder, redis.url, **settings)
        service.api.settings["redis_url"] = api.url
        service.workers[0].settings["redis_url"] = worker.url
        prepare(service)
        if started:
            stack.enter_context(service)
        else:
            stack.callback(service.stop)
        made = House(redis, sink, service, api, worker)
        stack.callback(made.server.close)
        yield made
