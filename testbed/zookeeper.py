"""A real ZooKeeper of one's own, alone or as an ensemble of three: for `./dev up`, tests and experiments."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from delayq.base.errors import DelayqError
from delayq.embedded.processes import LOCALHOST, free_port
from testbed.errors import ServerMissing
from testbed.fetch_lock import wait_for_fetch
from testbed.jars import cache, fetch, find_java
from testbed.process import Server, ServerProcess
from testbed.zookeeper_guard import Guard

START_SECONDS = 300.0  # on a busy machine a JVM takes a minute to start
# A tick bounds how exactly sessions expire. The log file is not made 64 MB long in advance.
_FIXED = {
    "tickTime": "500",
    "initLimit": "20",
    "syncLimit": "10",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "clientPortAddress": LOCALHOST,
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "*",
    "preAllocSize": "256",
}
# Without members named in its configuration it is a server of its own.
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JAVA = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]


_DEBIAN: Final = Path("/usr/share/java")
_DEBIANS: Final = ("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java")


def available() -> None:
    """Raise ServerMissing, with the way to get it, where no ZooKeeper can run."""
    find_java("a ZooKeeper server")
    find_jars()


def obtain() -> None:
    """Have all that a server takes, fetching its classes if need be; raises ServerMissing."""
    find_java("a ZooKeeper server")
    try:
        find_jars()
    except ServerMissing:
        fetch("zookeeper")


def find_jars() -> list[str]:
    """The class path of a server: fetched jars first, then Debian's, then those of PySpark; raises ServerMissing."""
    folder = cache("zookeeper")
    wait_for_fetch(folder.parent, "zookeeper")
    if any(folder.glob("zookeeper-[0-9]*.jar")):
        return [f"{folder}/*"]
    if (_DEBIAN / "zookeeper.jar").is_file():
        return [str(jar) for name in _DEBIANS if (jar := _DEBIAN / f"{name}.jar").is_file()]
    for jars in _spark():
        if any(jars.glob("zookeeper-[0-9]*.jar")):
            return [f"{jars}/*"]
    raise ServerMissing(
        "no ZooKeeper server on this machine: fetch one by `./dev brokers fetch zookeeper`, "
        "or install Debian's (apt install --no-install-recommends zookeeper)"
    )


def _spark() -> list[Path]:
    folders = [Path(home) / "jars"] if (home := os.environ.get("SPARK_HOME")) else []
    spec = importlib.util.find_spec("pyspark")  # found, not imported
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "jars")
    return folders


class ZooKeeperServer(Server):
    """One server, or an ensemble of several `members`, as child processes on 127.0.0.1.

    `start`, `kill`, `pause` and `resume` are for all of them, or for those at these places, from 0. Ports and data stay the
    same over kill and start. Not for several threads.
    """

    def __init__(
        self, *, data_dir: Path | None = None, members: int = 1, ports: Sequence[int] = (), guard: Guard | None = None
    ) -> None:
        super().__init__("zookeeper", data_dir)
        # The ports of clients, then of the peers and of their votes.
        ports = [*ports, *(free_port() for _ in range(3 * members - len(ports)))]
        self._members = [_Member(number, port, guard) for number, port in enumerate(ports[:members], 1)]
        self._peers = {
            f"server.{member.number}": f"{LOCALHOST}:{peer}:{vote}"
            for member, peer, vote in zip(
                self._members, ports[members : 2 * members], ports[2 * members :], strict=True
            )
        }

    @property
    def hosts(self) -> str:
        """For clients, and for DELAYQ_ZOOKEEPER."""
        return ",".join(f"{LOCALHOST}:{member.port}" for member in self._members)

    @property
    def secure_hosts(self) -> str:
        """For clients that speak TLS; of a server with a guard that has a certificate."""
        return ",".join(f"{LOCALHOST}:{member.secure_port}" for member in self._members)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the members; None for one that does not run."""
        return [member.pid for member in self._members]

    def start(self, *members: int, wait: bool = True) -> None:
        """Start those that do not run, of all or of those at these places, and wait until these answer.

        Without a quorum none of them does.
        """
        fixed = {**_FIXED, "forceSync": "no"} if self._temporary else _FIXED
        ensemble = {"standaloneEnabled": "false", **self._peers} if len(self._members) > 1 else {}
        deadline = time.monotonic() + START_SECONDS
        try:
            for member in self._at(members):
                member.start(self._folder() / str(member.number), {**fixed, **ensemble})
            for member in self._at(members) if wait else ():
                member.wait(deadline - time.monotonic())
        except DelayqError:
            self.stop()
            raise

    def leader(self) -> int | None:
        """The place of the member that leads the ensemble, from 0; None while there is none."""
        roles = [member.role() for member in self._members]
        return roles.index("leader") if "leader" in roles else None

    def stop(self) -> None:
        """Stop all in order (SIGTERM, after 30 s SIGKILL); remove a temporary folder."""
        self._end(signal.SIGTERM, ())
        self._remove_temporary()

    def kill(self, *numbers: int) -> None:
        """SIGKILL; the data stay, and `start` goes on with them."""
        self._end(signal.SIGKILL, numbers)

    def wipe(self) -> None:
        """Kill all and remove their data, as if their disks were lost. `start` begins without data."""
        self.kill()
        if self.data_dir is not None:
            shutil.rmtree(self.data_dir)

    def _at(self, places: Sequence[int]) -> list[_Member]:
        return [self._members[place] for place in places] if places else self._members

    def _processes(self, numbers: Sequence[int]) -> list[ServerProcess]:
        return [member.process for member in self._at(numbers) if member.process is not None]

    def _end(self, signum: signal.Signals, places: Sequence[int]) -> None:
        for process in self._processes(places):  # all at once, and only then wait for each
            process.send(signum)
        for process in self._processes(places):
            process.end(signum)


class _Member:
    """One server process."""

    def __init__(self, number: int, port: int, guard: Guard | None) -> None:
        self.number = number
        self.port = port
        self.secure_port = free_port() if guard is not None and guard.certificate else 0
        self._guard = guard
        self._data = Path()
        self.process: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        return self.process.pid if self.process is not None else None

    def start(self, folder: Path, options: Mapping[str, str]) -> None:
        """Start the process unless it runs."""
        if self.pid is not None:
            return
        java, jars = find_java("a ZooKeeper server"), find_jars()
        self._data, config = folder / "data", folder / "zoo.cfg"
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._data / "myid").write_text(f"{self.number}\n")
        settings = {**options, "clientPort": str(self.port), "dataDir": str(self._data)}
        if self._guard is not None:
            settings |= self._guard.settings(self.secure_port)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        flags = self._guard.flags(folder) if self._guard is not None else []
        command = [str(java), *_JAVA, *flags, "-cp", os.pathsep.join(jars), _MAIN, str(config)]
        self.process = ServerProcess(f"ZooKeeper on port {self.port}", command, log=folder / "zookeeper.log")
        self.process.start()

    def wait(self, seconds: float) -> None:
        """Wait until it serves; raises ServerError."""
        if self.process is not None:
            self.process.wait(self._serves, seconds)

    def role(self) -> str:
        """standalone, leader or follower; empty while it serves nobody."""
        for line in self._ask(b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def _ask(self, word: bytes) -> str:
        """The reply of the server on our port to one of ZooKeeper's four-letter words; empty without a reply."""
        reply = b""
        with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, self.port), timeout=1) as connection:
            connection.sendall(word)
            while chunk := connection.recv(4096):
                reply += chunk
        return reply.decode(errors="replace")

    def _serves(self) -> bool:
        """Whether it answers, and is no stranger on the same port."""
        return f"dataDir={self._data}" in self._ask(b"conf")
