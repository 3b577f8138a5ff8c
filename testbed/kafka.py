"""A real Kafka of one's own (KRaft): one broker, or a few of which the first is the controller, too."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from delayq.embedded.processes import LOCALHOST, free_port
from testbed.errors import ServerError, ServerMissing
from testbed.jars import cache, find_java, missing
from testbed.process import Server, ServerProcess

NAME: Final = "kafka"
#: The user of the second listener (SASL/PLAIN). Access lists exist for this user alone.
USER: Final = "shop"
PASSWORD: Final = "canary-of-kafka"

START_SECONDS = 300.0
FORMAT_SECONDS = 300.0
_METADATA: Final = 3
_JAVA = (
    "-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true",
    "-Dorg.apache.logging.log4j.level=WARN",
)  # fmt: skip
_USERS: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
# One broker of a laptop: few threads, small buffers, and internal topics without copies. A group's first member is not
# kept waiting. A topic comes into being when it is used.
_FIXED = {
    "auto.create.topics.enable": "true",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": _USERS,
    "listener.name.secure.plain.sasl.jaas.config": _USERS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "controlled.shutdown.max.retries": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "background.threads": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}  # fmt: skip


def available() -> None:
    """Raise ServerMissing unless this machine has what it takes to start one."""
    find_java("Kafka")
    if missing(NAME):
        raise ServerMissing("Kafka's classes are not on this machine: ./dev brokers fetch kafka")


class Kafka(Server):
    """Brokers as child processes on 127.0.0.1; Kafka counts them from 1, and the first is the controller, too.

    `start`, `stop`, `kill`, `pause` and `resume` are for all of them, or for those of these numbers. Ports and data stay
    the same over kill and start. With a `certificate`, a PEM file with a key (PKCS #8) and its certificate, there is a
    listener for TLS, too. Not for several threads.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        stay: bool = False,
        brokers: int = 1,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        certificate: Path | None = None,
    ) -> None:
        super().__init__(NAME, data_dir, stay=stay)
        self._settings = {"num.partitions": str(partitions), **(settings or {})}
        self._certificate = certificate
        self._controller = free_port()
        self._cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._brokers = [_Broker(number) for number in range(1, brokers + 1)]

    @property
    def servers(self) -> str:
        """For clients, as `bootstrap.servers`."""
        return ",".join(f"{LOCALHOST}:{broker.port}" for broker in self._brokers)

    @property
    def login_servers(self) -> str:
        """The same for clients that log in as USER."""
        return ",".join(f"{LOCALHOST}:{broker.login_port}" for broker in self._brokers)

    @property
    def secure_servers(self) -> str:
        """The same by TLS, if there is a certificate."""
        return ",".join(f"{LOCALHOST}:{broker.secure_port}" for broker in self._brokers)

    @property
    def url(self) -> str:
        """The target's URL in a route."""
        return f"kafka://{self.servers}"

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the brokers; None for one that does not run."""
        return [broker.process.pid if broker.process is not None else None for broker in self._brokers]

    def start(self, *numbers: int) -> None:
        """Start those that do not run, of all or of these, and wait until all that run know each other.

        Raises ServerMissing or ServerError.
        """
        available()
        java = str(find_java("Kafka"))
        try:
            for broker in self._at(numbers):
                broker.start(java, self._home(broker), self._settings_of(broker), self._cluster, self._stay)
            wanted = sum(pid is not None for pid in self.pids)
            for broker in self._at(numbers):
                broker.wait(wanted)
        except ServerError:
            self.stop()
            raise

    def make_topic(self, topic: str) -> None:
        """Nothing: a topic comes into being when it is used."""

    def stop(self, *numbers: int) -> None:
        """Stop all in order, or these; without any named a temporary folder is removed."""
        for process in reversed(self._processes(numbers)):  # the controller at last
            process.stop()
        if not numbers and self._remove_temporary():
            for broker in self._brokers:
                broker.process = None

    def _processes(self, numbers: Sequence[int]) -> list[ServerProcess]:
        return [broker.process for broker in self._at(numbers) if broker.process is not None]

    def _at(self, numbers: Sequence[int]) -> list[_Broker]:
        return [self._brokers[number - 1] for number in numbers] if numbers else self._brokers

    def _home(self, broker: _Broker) -> Path:
        return self._folder() / str(broker.number)

    def _settings_of(self, broker: _Broker) -> Mapping[str, str]:
        listeners = f"PLAINTEXT://{LOCALHOST}:{broker.port},LOGIN://{LOCALHOST}:{broker.login_port}"
        tls: dict[str, str] = {}
        if self._certificate is not None:
            listeners += f",SECURE://{LOCALHOST}:{broker.secure_port}"
            keys = {"type": "PEM", "location": str(self._certificate)}
            tls = {f"listener.name.secure.ssl.keystore.{name}": value for name, value in keys.items()}
        first = broker.number == 1
        return {
            **_FIXED,
            **tls,
            "node.id": str(broker.number),
            "process.roles": "broker,controller" if first else "broker",
            "controller.quorum.voters": f"1@{LOCALHOST}:{self._controller}",
            "listeners": f"{listeners},CONTROLLER://{LOCALHOST}:{self._controller}" if first else listeners,
            "advertised.listeners": listeners,
            "log.dirs": str(self._home(broker) / "data"),
            **self._settings,
        }


class _Broker:
    """One broker's process, ports and folder."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.port = free_port()
        self.login_port = free_port()
        self.secure_port = free_port()
        self.process: ServerProcess | None = None

    def start(self, java: str, folder: Path, settings: Mapping[str, str], cluster: str, stay: bool) -> None:
        """Start it unless it runs; its storage is formatted the first time."""
        command = [java, *_JAVA, "-cp", f"{cache(NAME)}/*"]
        file = folder / "server.properties"
        if self.process is None:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            _format(command, file, cluster)
            self.process = ServerProcess(
                f"Kafka {self.number}", [*command, "kafka.Kafka", str(file)], log=folder / "kafka.log", stay=stay
            )
        self.process.start()

    def wait(self, brokers: int) -> None:
        """Until it serves, and knows so many brokers."""
        assert self.process is not None
        self.process.wait(lambda: _count_brokers(self.port) >= brokers, START_SECONDS)


def _format(command: list[str], file: Path, cluster: str) -> None:
    tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", f"--cluster-id={cluster}", "-c", str(file)]
    try:
        done = subprocess.run([*command, *tool], capture_output=True, text=True, timeout=FORMAT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ServerError(f"Kafka's storage was not formatted within {FORMAT_SECONDS:.0f} s") from None
    if done.returncode:
        raise ServerError(f"Kafka's storage cannot be formatted:\n{done.stdout}{done.stderr}")


def _count_brokers(port: int) -> int:
    """The number of brokers by the answer of this port to a Metadata request of version 0; 0 without an answer."""
    request = struct.pack(">hhih", _METADATA, 0, 1, -1) + struct.pack(">i", 0)
    try:
        with socket.create_connection((LOCALHOST, port), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return 0
    return int(struct.unpack(">iii", head)[2]) if len(head) == 12 else 0
