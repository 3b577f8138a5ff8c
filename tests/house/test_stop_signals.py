"""Signals to each service, to commands and to `./dev up`: which stop it in order, also while it starts, and which do nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delayq.base.stop_signals import HARMLESS, STOPPING
from delayq.embedded.processes import LOCALHOST, free_port
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

#: Longer than a test may take, so that no service ends because it gave up.
NEVER = {"redis_timeout": "10m", "session_timeout": "10m"}
#: Starts a program with a signal ignored, as nohup does.
IGNORING = (
    "import os, signal, sys; signal.signal(int(sys.argv[1]), signal.SIG_IGN); os.execv(sys.argv[2], sys.argv[2:])"
)
DELAYQ = [sys.executable, "-m", "delayq.cli"]
#: By name: the command, its settings, and what it writes when it has stopped. SILENT is a server that never answers.
Service = tuple[list[str], dict[str, str], str]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with socket.create_server((LOCALHOST, 0), backlog=100) as server:
        yield server


@contextmanager
def running(service: Service, folder: Path, before: list[str] | None = None) -> Iterator[OneProcess]:
    command, settings, _ = service
    process = OneProcess("it", [*(before or []), *command], settings, folder / "log")
    process.start()
    try:
        yield process
    finally:
        process.kill()


def connected(server: socket.socket) -> socket.socket:
    """The connection of a process that waits for this server; whoever holds it keeps it open."""
    connection, _ = server.accept()
    return connection


def starting_services(silent: str, redis: str) -> dict[str, Service]:
    """Each service, with the first server that it waits for."""
    api = {"api_port": str(free_port()), **NEVER}
    away = {"redis_url": f"redis://{silent}", **NEVER}
    zookeeper = {"redis_url": redis, "zookeeper": silent, **NEVER}
    rabbitmq = ["bridge", "rabbitmq", "--queue", "q", "--url", f"amqp://{silent}", "--no-route-check"]
    return {
        "worker without Redis": ([sys.executable, "-m", "workers"], away, "worker_stopped"),
        "worker without ZooKeeper": ([*DELAYQ, "worker"], zookeeper, "worker_stopped"),
        "API without Redis": ([*DELAYQ, "api"], {**away, **api}, "api_stopped"),
        "coordinator without Redis": ([*DELAYQ, "coordinator"], {**away, "zookeeper": silent}, "stopped before"),
        "coordinator without ZooKeeper": ([sys.executable, "-m", "coordinator"], zookeeper, "stopped before"),
        "bridge without RabbitMQ": ([*DELAYQ, *rabbitmq], {"redis_url": redis, **NEVER}, "scheduled"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "worker without Redis",
        "worker without ZooKeeper",
        "API without Redis",
        "coordinator without Redis",
        "coordinator without ZooKeeper",
        "bridge without RabbitMQ",
    ],
)
def test_a_service_that_waits_for_a_server_at_its_start_stops_with_a_line(
    valkey: ServerUnderTest, silent: socket.socket, tmp_path: Path, name: str
) -> None:
    service = starting_services(f"{LOCALHOST}:{silent.getsockname()[1]}", valkey.url)[name]
    with running(service, tmp_path) as process:
        connection = connected(silent)
        process.stop()
        connection.close()
        assert service[2] in process.said()
        assert process.returncode == 0


@contextmanager
def started(name: str, valkey: ServerUnderTest, folder: Path, before: list[str] | None = None) -> Iterator[OneProcess]:
    """A worker or an API that has started."""
    settings = {"redis_url": valkey.url, "node": "w", "api_port": str(free_port())}
    with running(([sys.executable, "-m", name], settings, ""), folder, before) as process:
        eventually(lambda: process.started, "it has started")
        yield process


@pytest.mark.parametrize("number", STOPPING, ids=lambda number: number.name)
@pytest.mark.parametrize(("name", "last"), [("workers", "worker_stopped"), ("api", "api_stopped")])
def test_each_of_these_signals_stops_a_service_in_order(
    valkey: ServerUnderTest, tmp_path: Path, name: str, last: str, number: signal.Signals
) -> None:
    with started(name, valkey, tmp_path) as process:
        process.signal(number)
        eventually(lambda: not process.alive, "it has ended")
        assert process.returncode == 0, process.said()
        assert last in process.said()


@pytest.mark.parametrize("name", ["workers", "api"])
def test_what_has_no_meaning_and_a_hangup_under_nohup_do_nothing(
    valkey: ServerUnderTest, tmp_path: Path, name: str
) -> None:
    with started(name, valkey, tmp_path, [sys.executable, "-c", IGNORING, str(int(signal.SIGHUP))]) as process:
        for number in (*HARMLESS, signal.SIGHUP):
            process.signal(number)
        assert ignored(process.pid) >= {*HARMLESS, signal.SIGHUP}
        assert process.alive
        assert process.stop() == 0


def ignored(pid: int) -> set[signal.Signals]:
    """The signals that a process ignores, as Linux has them."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")]
    return {number for number in signal.Signals if mask >> (number - 1) & 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_command_ends_by_these_signals_as_by_ctrl_c(silent: socket.socket, number: signal.Signals) -> None:
    env = {**os.environ, "DELAYQ_REDIS_URL": f"redis://{LOCALHOST}:{silent.getsockname()[1]}"}
    command = [*DELAYQ, "get", "m"]
    process = subprocess.Popen(
        command, env={**env, "DELAYQ_REDIS_TIMEOUT": "10m"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    connection = connected(silent)
    process.send_signal(number)
    _, errors = process.communicate()
    connection.close()
    assert (process.returncode, errors) == (128 + number, f"delayq: stopped by {number.name}\n")


_SIGNALLED_IMPORT = """
import os, signal, sys

class Signals:
    def find_spec(self, name, path=None, target=None):
        if name == "delayq.cli.app":
            os.kill(os.getpid(), int(sys.argv.pop()))

sys.meta_path.insert(0, Signals())
from delayq.cli import main

sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_still_being_imported_ends_with_the_status_of_the_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _SIGNALLED_IMPORT, "search", str(int(number))]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (128 + number, "")
