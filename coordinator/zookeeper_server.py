"""A real ZooKeeper of one's own, alone or as an ensemble of three: for `./dev up`, tests and experiments.

Run as a module (`python -m coordinator.zookeeper_server`) it fetches the server's classes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from coordinator.zookeeper_jars import ZooKeeperMissing, fetch, find_jars, find_java
from delayq.errors import DelayqError
from delayq.processes import LOCALHOST, die_with_parent, free_port

__all__ = ["ZooKeeperServer", "ZooKeeperServerError"]

START_SECONDS = 60.0
STOP_SECONDS = 10.0
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


class ZooKeeperServerError(DelayqError):
    """A ZooKeeper server does not start."""


class ZooKeeperServer:
    """One server, or an ensemble of several `members`, as child processes on 127.0.0.1.

    `data_dir` None is a temporary folder that `stop` removes. Ports and data stay the same over kill and start. On Linux
    a server that was started from the main thread gets SIGTERM when this process dies. Not for several threads.
    """

    def __init__(self, *, data_dir: Path | None = None, members: int = 1, ports: Sequence[int] = ()) -> None:
        self.data_dir = data_dir.resolve() if data_dir is not None else None
        self._temporary = data_dir is None
        ports = [*ports, *_free_ports(3 * members - len(ports))]  # of clients, then of the peers and of their votes
        self._members = [_Member(number, port) for number, port in enumerate(ports[:members], 1)]
        self._peers = {
            f"server.{member.number}": f"{LOCALHOST}:{peer}:{vote}"
            for member, peer, vote in zip(self._members, ports[members : 2 * members], ports[2 * members :], strict=True)
        }  # fmt: skip

    @property
    def hosts(self) -> str:
        """For clients, and for DELAYQ_ZOOKEEPER."""
        return ",".join(f"{LOCALHOST}:{member.port}" for member in self._members)

    @property
    def pids(self) -> list[int | None]:
        """The process ids of the members; None for one that does not run."""
        return [member.pid for member in self._members]

    def start(self, *members: int, wait: bool = True) -> None:
        """Start those that do not run, of all or of those at these places, and wait until these answer.

        Without a quorum none of them does.
        """
        if self.data_dir is None:
            self.data_dir = Path(tempfile.mkdtemp(prefix="delayq-zookeeper-")).resolve()
        fixed = {**_FIXED, "forceSync": "no"} if self._temporary else _FIXED
        ensemble = {"standaloneEnabled": "false", **self._peers} if len(self._members) > 1 else {}
        deadline = time.monotonic() + START_SECONDS
        try:
            for member in self._at(members):
                member.spawn(self.data_dir / str(member.number), {**fixed, **ensemble})
            for member in self._at(members) if wait else ():
                member.wait(deadline)
        except DelayqError:
            self.stop()
            raise

    def leader(self) -> int | None:
        """The place of the member that leads the ensemble, from 0; None while there is none."""
        roles = [member.role() for member in self._members]
        return roles.index("leader") if "leader" in roles else None

    def stop(self) -> None:
        """Stop all in order (SIGTERM, after 10 s SIGKILL); remove a temporary folder."""
        self._end(signal.SIGTERM)
        if self._temporary and self.data_dir is not None:
            shutil.rmtree(self.data_dir, ignore_errors=True)
            self.data_dir = None

    def kill(self, *members: int) -> None:
        """SIGKILL all of them, or those at these places; the data stay, and `start` goes on with them."""
        self._end(signal.SIGKILL, *members)

    def wipe(self) -> None:
        """Kill all and remove what they know, as if their disks were lost; `start` begins anew."""
        self.kill()
        if self.data_dir is not None:
            shutil.rmtree(self.data_dir)

    def pause(self, *members: int) -> None:
        """SIGSTOP: they keep their connections and say nothing."""
        for member in self._at(members):
            member.send(signal.SIGSTOP)

    def resume(self, *members: int) -> None:
        """SIGCONT."""
        for member in self._at(members):
            member.send(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _at(self, places: Sequence[int]) -> list[_Member]:
        return [self._members[place] for place in places] if places else self._members

    def _end(self, signum: signal.Signals, *places: int) -> None:
        for member in self._at(places):  # all at once, and only then wait for each
            member.send(signum)
        for member in self._at(places):
            member.end(signum)


class _Member:
    """One server process."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.port = port
        self._data = Path()
        self._log = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def spawn(self, folder: Path, options: Mapping[str, str]) -> None:
        """Start the process unless it runs."""
        if self.pid is not None:
            return
        java, jars = find_java(), find_jars()
        self._data, self._log, config = folder / "data", folder / "zookeeper.log", folder / "zoo.cfg"
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._data / "myid").write_text(f"{self.number}\n")
        settings = {**options, "clientPort": str(self.port), "dataDir": str(self._data)}
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [str(java), *_JAVA, "-cp", os.pathsep.join(jars), _MAIN, str(config)]
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for the parent, which stops things in order.
            self._process = subprocess.Popen(
                die_with_parent(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def role(self) -> str:
        """standalone, leader or follower; empty while it serves nobody."""
        for line in self._ask(b"srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def _ask(self, word: bytes) -> str:
        """What the server on our port says to one of ZooKeeper's four-letter words; nothing if it says nothing."""
        reply = b""
        with contextlib.suppress(OSError), socket.create_connection((LOCALHOST, self.port), timeout=1) as connection:
            connection.sendall(word)
            while chunk := connection.recv(4096):
                reply += chunk
        return reply.decode(errors="replace")

    def wait(self, deadline: float) -> None:
        """Wait until it serves; raises ZooKeeperServerError with the end of its log."""
        ours = f"dataDir={self._data}"  # tells it from a stranger on the same port
        while ours not in self._ask(b"conf"):
            if self.pid is None or time.monotonic() > deadline:
                what = "ended at once" if self.pid is None else f"did not answer within {START_SECONDS:.0f} s"
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])
                raise ZooKeeperServerError(f"ZooKeeper on port {self.port} {what}; its log ends:\n{tail}")
            time.sleep(0.02)

    def send(self, signum: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self._process is not None and self.pid is not None:
            self._process.send_signal(signum)

    def end(self, signum: signal.Signals) -> None:
        """End it by this signal (after 10 s by SIGKILL), even while it is paused."""
        if self._process is None:
            return
        self.send(signum)
        self.send(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = free_port()
        if port not in found:
            found.append(port)
    return found


def main() -> int:
    """Fetch the server's classes."""
    try:
        print(fetch())
    except ZooKeeperMissing as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
