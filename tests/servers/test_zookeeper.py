"""A ZooKeeper of one's own: it starts, dies, comes back with its data, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from delayq.embedded.processes import LOCALHOST, port_is_free
from testbed.errors import ServerError
from testbed.zookeeper import ZooKeeperServer
from tests.house.processes import ROOT, is_running, needs_proc
from tests.support.waiting import eventually
from tests.support.zookeeper import client, real_zookeeper

PARENT = """\
from testbed.zookeeper import ZooKeeperServer
import time
server = ZooKeeperServer()
server.start()
print(server.pids[0], flush=True)
time.sleep(600)
"""


def test_what_was_written_survives_a_kill_and_not_a_wipe(tmp_path: Path) -> None:
    with real_zookeeper(data_dir=tmp_path / "zookeeper") as server:
        hosts = server.hosts
        with client(hosts) as one:
            one.create("/kept", b"data")
            before = one.exists("/kept").czxid
        server.kill()
        assert server.pids == [None]
        server.start()
        assert server.hosts == hosts
        with client(hosts) as one:
            assert one.get("/kept")[0] == b"data"
            one.create("/later")
            assert one.exists("/later").czxid > before
        server.wipe()
        server.start()
        with client(hosts) as one:
            assert one.exists("/kept") is None
            one.create("/anew")
            assert one.exists("/anew").czxid < before + 2
    assert (tmp_path / "zookeeper").is_dir()


def test_a_server_listens_on_this_machine_only_and_leaves_nothing_behind() -> None:
    with real_zookeeper() as server:
        port = int(server.hosts.removeprefix(f"{LOCALHOST}:"))
        assert not port_is_free(port)
        assert port_is_free(port, "127.0.0.2")
        folder, pid = server.data_dir, server.pids[0]
        assert folder is not None
        assert pid is not None
    assert not folder.exists()
    assert not is_running(pid)
    assert port_is_free(port)


def test_a_paused_server_says_nothing_until_it_goes_on() -> None:
    with real_zookeeper() as server:
        server.pause()
        assert server.leader() is None
        server.resume()
        server.start()  # waits until it answers
        server.pause()
    assert server.pids == [None]  # a paused one stops too


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with real_zookeeper() as server:
        port = int(server.hosts.removeprefix(f"{LOCALHOST}:"))
        another = ZooKeeperServer(data_dir=tmp_path, ports=[port])
        with pytest.raises(ServerError, match=r"zookeeper\.log ends"):
            another.start()
    assert another.pids == [None]


@needs_proc
def test_a_server_ends_with_the_process_that_started_it() -> None:
    with real_zookeeper():  # skips where there is none
        pass
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    parent.stdout.close()
    eventually(lambda: not is_running(pid), "the server has ended")


def test_an_ensemble_goes_on_when_its_leader_dies() -> None:
    with real_zookeeper(members=3) as ensemble, client(ensemble.hosts) as one:
        first = leader_of(ensemble)
        one.create("/kept", b"data")
        ensemble.kill(first)
        assert ensemble.pids[first] is None
        assert leader_of(ensemble) != first
        one.retry(one.ensure_path, "/later")
        ensemble.start()
        assert None not in ensemble.pids
        assert one.retry(one.get, "/kept")[0] == b"data"


def test_a_member_of_an_ensemble_may_be_started_before_there_is_a_quorum() -> None:
    with real_zookeeper(members=3) as ensemble:
        ensemble.kill(0, 1)
        ensemble.pause(2)
        ensemble.start(0, wait=False)
        assert ensemble.pids[0] is not None
        assert ensemble.pids[1] is None
        ensemble.resume(2)
        assert leader_of(ensemble) in (0, 2)


def leader_of(ensemble: ZooKeeperServer) -> int:
    return eventually(lambda: [place for place in [ensemble.leader()] if place is not None], "there is a leader")[0]
