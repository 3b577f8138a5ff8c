"""A real RocketMQ 5 of one's own: a name server, and a broker with its proxy."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from delayq.embedded.processes import LOCALHOST, free_port
from testbed import jars, loopback
from testbed.errors import ServerError, ServerMissing
from testbed.process import Server, ServerProcess
from testbed.rocketmq_remoting import ask

NAME: Final = "rocketmq"
GROUP: Final = "delayq"  # of `./dev brokers up`; consumers of one that there is not are refused
START_SECONDS: Final = 300.0
_CLUSTER: Final = "DefaultCluster"
_JAVA: Final = ("-XX:+UseSerialGC", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true")
#: The further options of its two processes.
NAMES_JAVA: Final = ("-Xmx96m", "-XX:TieredStopAtLevel=1")
BROKER_JAVA: Final = (
    "-Xmx384m", "-XX:MaxDirectMemorySize=128m",
    # The broker would refuse messages on a machine whose disk is nine tenths full.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99", "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
)  # fmt: skip
_NAMES_MAIN: Final = "org.apache.rocketmq.namesrv.NamesrvStartup"
_PROXY_MAIN: Final = "org.apache.rocketmq.proxy.ProxyStartup"
# Small files; on a busy machine a message may wait in the broker instead of being refused.
_BROKER_SETTINGS: Final = {
    "brokerClusterName": _CLUSTER, "brokerName": "broker", "brokerId": 0, "brokerIP1": LOCALHOST,
    "bindAddress": LOCALHOST, "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 100_000, "maxIndexNum": 400_000, "mappedFileSizeTimerLog": 4 << 20, "diskMaxUsedSpaceRatio": 99,
    "waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 30_000,
}  # fmt: skip
# A topic that was created after a request for it is found within a second instead of twenty. A consumer without messages gets
# its answer at once instead of after five seconds.
_PROXY_SETTINGS: Final = {
    "rocketMQClusterName": _CLUSTER, "localServeAddr": LOCALHOST, "topicRouteServiceCacheRefreshSeconds": 1,
    "topicConfigCacheRefreshSeconds": 1, "grpcClientConsumerMinLongPollingTimeoutMillis": 100,
}  # fmt: skip
# Requests of the remoting protocol, and the permission to read and to write.
_QUERY_MESSAGE: Final = 12
_MAKE_TOPIC: Final = 17
_CLUSTER_INFO: Final = 106
_MAKE_GROUP: Final = 200
_DELETE_TOPIC: Final = 215
_READ_AND_WRITE: Final = 6


def available() -> None:
    """Raise ServerMissing, with the way to get it, unless a RocketMQ can be started here."""
    jars.find_java("RocketMQ")
    if absent := jars.missing(NAME):
        raise ServerMissing(
            f"RocketMQ's classes are not here ({len(absent)} are missing): ./dev brokers up fetches them, 90 MB"
        )


class RocketMQ(Server):
    """A name server, and a broker behind a proxy: two processes, as the proxy has the broker in its own.

    Ports and data stay the same over `kill` and `start`.
    All of it listens on 127.0.0.1. `kill`, `pause` and `resume` are for the proxy with its broker; the name server goes
    on. Not for several threads.
    """

    def __init__(self, *, data_dir: Path | None = None, stay: bool = False) -> None:
        super().__init__("rocketmq", data_dir, stay=stay)
        self._ports = Ports()
        self._names: ServerProcess | None = None
        self._broker: ServerProcess | None = None

    @property
    def url(self) -> str:
        """A target URL for a route."""
        return f"rocketmq://{self.endpoints}"

    @property
    def endpoints(self) -> str:
        """Where the proxy listens, for clients."""
        return f"{LOCALHOST}:{self._ports.grpc}"

    @property
    def broker_address(self) -> str:
        """Where the broker behind the proxy listens, for what speaks the remoting protocol."""
        return f"{LOCALHOST}:{self._ports.broker}"

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [one.pid for one in (self._names, self._broker) if one is not None and one.pid is not None]

    def start(self) -> None:
        """Start what does not run and wait until it serves. Raises ServerMissing or ServerError."""
        available()
        if self._names is None or self._broker is None:
            self._names, self._broker = self._make(self._folder())
        try:
            self._names.start()
            # A broker that finds no name server registers ten seconds later.
            self._names.wait(lambda: _listens(self._ports.names), START_SECONDS)
            self._broker.start()
            self._broker.wait(self._serves, START_SECONDS)
        except ServerError:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both in order; remove a temporary folder."""
        for one in (self._broker, self._names):
            if one is not None:
                one.kill() if self._temporary else one.stop()  # in order takes ten seconds, for data that nobody wants
        if self._remove_temporary():
            self._names = self._broker = None

    def _processes(self, numbers: Sequence[int]) -> list[ServerProcess]:
        return [self._broker] if self._broker is not None else []

    # -- what an administrator does ------------------------------------------------------------------------------------

    def create_topic(self, name: str, *, fifo: bool = False, queues: int = 4) -> None:
        """Make a topic for ordinary messages, or for those with a message group."""
        fields = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues,
            "perm": _READ_AND_WRITE, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
            "attributes": f"+message.type={'FIFO' if fifo else 'NORMAL'}",
        }  # fmt: skip
        ask(self._ports.broker, _MAKE_TOPIC, fields)

    def create_group(self, name: str, *, fifo: bool = False) -> None:
        """Make a consumer group: consumers of one that there is not are refused."""
        group = {"groupName": name, "consumeMessageOrderly": fifo, "retryQueueNums": 1, "retryMaxTimes": 16}
        ask(self._ports.broker, _MAKE_GROUP, body=json.dumps(group).encode())

    def make_topic(self, topic: str) -> None:
        """Make the topic to which delayq sends what goes to this one, and a group to consume it as: RocketMQ has no dots."""
        self.create_topic(topic.replace(".", "-"))
        self.create_group(GROUP)

    def delete_topic(self, name: str) -> None:
        """Remove it from the broker."""
        ask(self._ports.broker, _DELETE_TOPIC, {"topic": name})

    def find_by_key(self, topic: str, key: str) -> bytes:
        """The messages that a search for a business key finds, as the broker has stored them."""
        now = int(time.time() * 1000)
        fields = {
            "topic": topic, "key": key, "maxNum": 32, "beginTimestamp": now - 3_600_000,
            "endTimestamp": now + 3_600_000,
        }  # fmt: skip
        with contextlib.suppress(ServerError):  # there is none
            return ask(self._ports.broker, _QUERY_MESSAGE, fields)
        return b""

    # -- starting ------------------------------------------------------------------------------------------------------

    def _make(self, folder: Path) -> tuple[ServerProcess, ServerProcess]:
        names, broker = folder / "names", folder / "broker"
        configured = configure_names(names, self._ports)
        of_broker, of_proxy = configure_broker(broker, self._ports)
        return (
            self._process(names, *NAMES_JAVA, _NAMES_MAIN, "-c", str(configured)),
            self._process(
                broker,
                *BROKER_JAVA,
                _PROXY_MAIN,
                "-pm",
                "local",
                "-n",
                self._ports.names_address,
                "-bc",
                str(of_broker),
                "-pc",
                str(of_proxy),
            ),
        )

    def _process(self, home: Path, *words: str) -> ServerProcess:
        return ServerProcess(
            f"RocketMQ's {home.name}",
            [*java(home), *words],
            log=home / "out.log",
            stay=self._stay,
            environment={name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"},
        )

    def _serves(self) -> bool:
        """Whether the proxy listens and the name server knows the broker."""
        try:
            known = ask(self._ports.names, _CLUSTER_INFO, seconds=2)
        except (OSError, ServerError):
            return False
        return f"{LOCALHOST}:{self._ports.broker}".encode() in known and _listens(self._ports.grpc)


def java(home: Path) -> list[str]:
    """Java with RocketMQ's classes and the options of all its programs: their home and the folder of their logs."""
    folder = jars.cache(NAME)
    classes = f"{loopback.write(home / 'classes', folder)}{os.pathsep}{folder}{os.sep}*"
    where = (f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", classes)
    return [str(jars.find_java("RocketMQ")), *_JAVA, *where]


def configure_names(home: Path, ports: Ports) -> Path:
    """Write what a name server goes by; its file."""
    return _write(
        home / "conf" / "namesrv.conf",
        {
            "listenPort": ports.names,
            "bindAddress": LOCALHOST,
            "kvConfigPath": home / "kv.json",
            "configStorePath": home / "stored.conf",
        },
    )


def configure_broker(home: Path, ports: Ports) -> tuple[Path, Path]:
    """Write the settings of a broker and its proxy to the places that they read. Return the files."""
    of_broker = _write(
        home / "conf" / "broker.conf",
        {
            **_BROKER_SETTINGS,
            "namesrvAddr": ports.names_address,
            "listenPort": ports.broker,
            "haListenPort": ports.replication,
            "storePathRootDir": home / "store",
            "storePathCommitLog": home / "store" / "commitlog",
        },
    )
    of_proxy = home / "conf" / "rmq-proxy.json"
    settings = {
        **_PROXY_SETTINGS, "namesrvAddr": ports.names_address, "grpcServerPort": ports.grpc,
        "remotingListenPort": ports.remoting,
    }  # fmt: skip
    of_proxy.write_text(json.dumps(settings, indent=1))
    return of_broker, of_proxy


class Ports:
    """Free ones. A broker listens on the port two below its own, too."""

    def __init__(self) -> None:
        self.names, self.replication, self.grpc, self.remoting = (free_port() for _ in range(4))
        self.broker = free_port(-2)

    @property
    def names_address(self) -> str:
        return f"{LOCALHOST}:{self.names}"


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOCALHOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _write(file: Path, settings: Mapping[str, object]) -> Path:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
