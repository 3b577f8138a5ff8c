"""The servers and proxies that tests ask for by name."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import structlog

from delayq.embedded import EmbeddedServer
from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from testbed.kafka import Kafka
from testbed.rabbitmq import RabbitMQ
from testbed.rocketmq import RocketMQ
from testbed.zookeeper import ZooKeeperServer
from tests.support.amounts import ALL, amount
from tests.support.certificates import Authority
from tests.support.clusters import ClusterUnderTest, real_cluster
from tests.support.cpu_budget import CpuBudget
from tests.support.proxy import FaultProxy
from tests.support.receiver import Receiver
from tests.support.running import running
from tests.support.sentinels import SentinelsUnderTest, real_sentinels
from tests.support.servers import KEPT, ServerUnderTest, real_server
from tests.support.timeouts import PATIENCE
from tests.support.zookeeper import real_zookeeper

# No example has a deadline: on a busy machine any may take long, and pytest's timeout ends a test that hangs. The examples
# are the same in every run, except before a release.
hypothesis.settings.register_profile(
    "delayq",
    deadline=None,
    derandomize=not ALL,
    max_examples=amount(25, 200),
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("delayq")

# Threads log while pytest empties the stream that it captures, and writing to that stream then ends the process with a
# segmentation fault. So every event goes to the log, which pytest keeps for each test, and nothing to a stream.
logging.getLogger().addHandler(logging.NullHandler())
_EVENTS = logging.getLogger("delayq.events")
_EVENTS.setLevel(logging.DEBUG)
structlog.configure(
    processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(key_order=["event"])],
    logger_factory=lambda *_: _EVENTS,
    wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
)

#: The embedded Valkey, and in the long layer the Redis of the system.
SERVERS = ("valkey", pytest.param("redis7", marks=pytest.mark.long))


@pytest.fixture(scope="session")
def session_valkey() -> Iterator[ServerUnderTest]:
    with real_server("valkey") as server:
        yield server


@pytest.fixture(scope="session")
def session_redis7() -> Iterator[ServerUnderTest]:
    with real_server("redis7") as server:
        yield server


@pytest.fixture(scope="session")
def session_cluster() -> Iterator[ClusterUnderTest]:
    with real_cluster() as server:
        yield server


@pytest.fixture(scope="session")
def session_sentinels() -> Iterator[SentinelsUnderTest]:
    with real_sentinels() as group:
        yield group


@pytest.fixture
def cluster(session_cluster: ClusterUnderTest) -> ClusterUnderTest:
    """A Redis Cluster, whole and empty."""
    session_cluster.heal()
    session_cluster.flush()
    return session_cluster


@pytest.fixture
def sentinels(session_sentinels: SentinelsUnderTest) -> SentinelsUnderTest:
    """A primary and two replicas behind three sentinels, whole and empty."""
    session_sentinels.heal()
    session_sentinels.flush()
    return session_sentinels


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> ServerUnderTest:
    """Each kind of server in turn, empty."""
    found: ServerUnderTest = request.getfixturevalue(f"session_{request.param}")
    found.flush()
    return found


@pytest.fixture
def valkey(session_valkey: ServerUnderTest) -> ServerUnderTest:
    """The embedded Valkey, empty."""
    session_valkey.flush()
    return session_valkey


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(valkey: ServerUnderTest) -> Iterator[Store]:
    made = Store(valkey.url, timeout=PATIENCE)
    yield made
    made.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of webhooks."""
    with Receiver() as one:
        yield one


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for all tests; each of them takes a root of its own (`zookeeper_root`)."""
    with real_zookeeper() as server:
        yield server


@pytest.fixture
def zookeeper_root() -> str:
    """A path in ZooKeeper that no other test uses."""
    return f"/delayq-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Issues the certificates of servers that all tests share."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def kafka(authority: Authority) -> Iterator[Kafka]:
    """A Kafka for all tests; each of them takes topics with names of its own."""
    with running(Kafka(certificate=authority.issue("kafka").both)) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    """A RabbitMQ for all tests; each of them takes names of its own."""
    with running(RabbitMQ()) as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketMQ]:
    """A RocketMQ for all tests; each of them takes topics of its own."""
    with running(RocketMQ()) as server:
        yield server


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """An embedded Valkey with its append-only file, for one test alone, which may kill it and start it again."""
    with EmbeddedServer(data_dir=tmp_path / "valkey", extra=KEPT) as running:
        yield running


@pytest.fixture
def proxy(valkey: ServerUnderTest) -> Iterator[FaultProxy]:
    """A proxy in front of the embedded Valkey."""
    with FaultProxy(valkey.port) as running:
        yield running


#: Fixtures that start processes. pytest ends a test with one of them, or of a file with the mark `processes`, after 600 s.
PROCESSES = frozenset({"cluster", "kafka", "own_valkey", "rabbitmq", "rocketmq", "sentinels", "zookeeper"})
PROCESSES_TIMEOUT = 600
#: Fixtures of servers that take long to start. The files that use one run in one process, so that it starts once.
SHARED = ("session_cluster", "session_sentinels", "zookeeper")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process, and give processes the time that they take on a busy machine."""
    fixtures: dict[Path, set[str]] = {}
    for item in items:
        fixtures.setdefault(item.path, set()).update(getattr(item, "fixturenames", ()))
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            shared = (name for name in SHARED if name in fixtures[item.path])
            item.add_marker(pytest.mark.xdist_group(next(shared, item.nodeid.partition("::")[0])))
        marked = any(map(item.get_closest_marker, ("long", "release", "processes")))
        if marked or not PROCESSES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(PROCESSES_TIMEOUT))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Draw the product's jitter from the same seed in every run of a test, except before a release."""
    if not ALL:
        random.seed(item.name)


def pytest_configure(config: pytest.Config) -> None:
    """Count the CPU time of each test."""
    config.pluginmanager.register(CpuBudget(config), "cpu_budget")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the layers that did not run."""
    if "not long" in config.option.markexpr:
        terminalreporter.write_line("Only the default layer ran. The others: ./dev test --long, ./dev test --all")
