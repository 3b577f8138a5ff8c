"""The whole service as processes, which the tests of fault rows share: a test asks for `house` and gets it healed."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.process import standing_still
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import arrivals, drained, patiently, schedule
from tests.support.load import Load
from tests.support.proxy import FaultProxy
from tests.support.receiver import Receiver
from tests.support.servers import KEPT, ServerUnderTest
from tests.support.service import OneProcess, Service
from tests.support.sink import Sink, real_sink
from tests.support.timeouts import DRAIN_TIMEOUT, HTTP_TIMEOUT, REDIS_TIMEOUT, SEND_TIMEOUT, SESSION_TIMEOUT
from tests.support.unread import unread
from tests.support.waiting import settled
from tests.support.zookeeper import ZooKeeperProxy, end_session, real_zookeeper

QUEUES, WINDOW = 8, 100
#: One thread of each worker sends, so that a test knows what each of them may have begun to send.
SETTINGS = {
    "queues": str(QUEUES), "window": str(WINDOW), "senders": "1", "retry_base": "50", "retry_cap": "500",
    "redis_timeout": str(REDIS_TIMEOUT), "send_timeout": str(SEND_TIMEOUT), "drain_timeout": str(DRAIN_TIMEOUT),
    "session_timeout": str(SESSION_TIMEOUT), "egress_allow": "127.0.0.0/8",
}  # fmt: skip
WORKER = [sys.executable, "-m", "tests.faults.worker"]


class House:
    """Redis, a sink, a ZooKeeper, an API and the workers w0, w1 and w2.

    The API and w0 reach Redis through a proxy each, and each worker reaches ZooKeeper through one. Topics 'sink.*' are
    sent to the sink, 'hook.*' to the receiver, all others are streams in Redis.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.redis = stack.enter_context(EmbeddedServer(data_dir=folder / "valkey", extra=KEPT))
        self.server = ServerUnderTest("valkey", self.redis.url)
        stack.callback(self.server.close)
        self.admin: Any = self.server.admin
        self.sink: Sink = stack.enter_context(real_sink())
        self.keeper: ZooKeeperServer = stack.enter_context(real_zookeeper())
        self.to_api, self.to_worker = (stack.enter_context(FaultProxy(self.redis.port)) for _ in range(2))
        self.links = [stack.enter_context(ZooKeeperProxy(self.keeper.hosts)) for _ in range(3)]
        self.receiver = stack.enter_context(Receiver())
        routes = f'[{{"name": "hook", "match": "hook.*", "target": "{self.receiver.url()}"}}, '
        routes += self.sink.routes.removeprefix("[")
        self.service = Service(
            folder, self.redis.url, workers=3, zookeeper=self.keeper.hosts, routes=routes, **SETTINGS
        )
        self.service.api.settings["redis_url"] = self.to_api.url
        self.workers = self.service.workers
        self.workers[0].settings["redis_url"] = self.to_worker.url
        for worker, link in zip(self.workers, self.links, strict=True):
            worker.command = WORKER
            worker.settings |= {"zookeeper": link.hosts, "worker_port": str(free_port())}
        self.http = self.service.http
        self._seen: dict[str, int] = {}
        stack.enter_context(self.service)

    def heal(self) -> None:
        """Everything passes, all run, and every worker owns its share of the queues."""
        for proxy in (self.to_api, self.to_worker, *self.links):
            proxy.heal()
        self.redis.start()
        self.keeper.start()
        for one in self.service.processes:
            one.signal(signal.SIGCONT)
            one.start()
        patiently(self.service.ready, "the API is ready")
        patiently(self.evenly_owned, "every worker owns its share of the queues")
        self._seen = {one.name: len(one.said()) for one in self.workers}

    def said(self, worker: OneProcess) -> str:
        """What a worker has said since the house was healed."""
        return worker.said()[self._seen.get(worker.name, 0) :]

    # -- queues --------------------------------------------------------------------------------------------------------

    def evenly_owned(self) -> bool:
        """Whether every worker owns its share of the queues: from then on none changes hands by itself."""
        shares = Counter(self.service.owners().values())
        return self.service.owned() and max(shares.values()) - min(shares.values()) <= 1

    def of(self, worker: OneProcess) -> set[int]:
        """The queues that a worker owns."""
        return {queue for queue, owner in self.service.owners().items() if owner == worker.name}

    def session_of(self, worker: OneProcess) -> Any:
        """The session with ZooKeeper that a worker began last."""
        return self.links[self.workers.index(worker)].client_id

    def end_session(self, session: Any) -> None:
        """End it, as ZooKeeper does when it has not heard of a worker for long."""
        end_session(self.keeper.hosts, session)

    def kill(self, worker: OneProcess) -> None:
        """SIGKILL, and its session ends at once."""
        worker.kill()
        self.end_session(self.session_of(worker))

    def wait_until_taken_over(self, queues: set[int], before: dict[int, str | None]) -> None:
        """Until these are owned under greater epochs."""

        def greater() -> bool:
            now = self.service.epochs()
            return bool(now) and all((now[queue] or "") > (before[queue] or "") for queue in queues)

        patiently(greater, "others, or the same anew, own the queues")

    # -- messages ------------------------------------------------------------------------------------------------------

    def load(self, row: str, **options: Any) -> Load:
        """A producer of messages into the sink and into a stream."""
        return Load(self.service.url, f"sink.{row}", row, **options)

    def schedule(self, topic: str, count: int, delay: int = 0, **fields: Any) -> list[str]:
        """Schedule messages over HTTP in one batch; their ids."""
        return schedule(self.service, topic, count, delay, **fields)

    def server_of(self, topic: str) -> ServerUnderTest:
        """The server that has the stream of a topic."""
        return self.sink.server if topic.startswith("sink.") else self.server

    def arrived(self, *topics: str) -> dict[str, list[int]]:
        """When each message arrived, Unix ms by the clock of the server that took it."""
        found: dict[str, list[int]] = {}
        for topic in topics:
            found |= arrivals(self.server_of(topic).admin, topic)
        return found

    def expect(self, load: Load, *, twice: int = 0) -> None:
        """Everything that a load scheduled arrived; at most `twice` came again by the general path, none into a stream.

        It is looked at once more when all is acked.
        """
        for _ in range(2):
            for topic, accepted in load.accepted.items():
                general = topic.startswith("sink.")
                self.sink.expect(
                    topic,
                    accepted,
                    cancelled=load.cancelled,
                    maybe=load.in_flight,
                    twice=twice if general else 0,  # the script that appends removes, too
                    at=None if general else self.server,
                )
            self.wait_until_done()

    def wait_until_done(self) -> None:
        """Until nothing is pending: all is acked."""
        drained(self.service)

    @contextmanager
    def sink_paused(self) -> Iterator[None]:
        """The sink keeps its connections and answers nothing."""
        pid = self.sink.server.admin.info("server")["process_id"]
        with standing_still(pid):
            yield

    def wait_until_sent_to(self, senders: int) -> None:
        """While the sink is paused: until so many connections have sent it something, and all of what they send now."""
        port = self.sink.server.port

        def waiting() -> dict[str, int]:
            found = {end: count for end, count in unread(port).items() if count}
            return found if len(found) >= senders else {}

        settled(waiting, f"{senders} workers send to the sink")


def readiness(worker: OneProcess) -> tuple[int, str]:
    """What its /readyz answers; 0 when it does not."""
    with suppress(httpx2.HTTPError):
        url = f"http://{LOCALHOST}:{worker.settings['worker_port']}/readyz"
        answer = httpx2.get(url, timeout=HTTP_TIMEOUT)
        return answer.status_code, answer.text
    return 0, ""


@contextmanager
def new_house(folder: Path) -> Iterator[House]:
    """A house, started."""
    with ExitStack() as stack:
        yield House(folder, stack)
