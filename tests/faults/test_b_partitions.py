"""Names that do not resolve, and a worker whose way to Redis is cut or comes and goes while ZooKeeper sees it live."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.embedded import EmbeddedServer
from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import refused
from tests.faults.house import AWAY, House, evenly_owned, house, restarted
from tests.support.load import Load
from tests.support.proxy import FaultProxy
from tests.support.service import Service
from tests.support.sink import real_sink
from tests.support.waiting import eventually
from tests.support.zookeeper import real_zookeeper

pytestmark = pytest.mark.long
OLD, NEW = "127.0.0.2", "127.0.0.3"
NAME = "redis.delayq.internal"
WINDOW = 100
QUEUES = 4


# -- B9 ---------------------------------------------------------------------------------------------------------------


def with_names_of(hosts: Path, nowhere: Path, command: list[str]) -> list[str]:
    """The command, such that names come from `hosts` and no name server is there. Skips where that cannot be done."""
    unshare = shutil.which("unshare")
    flags = "-m" if os.geteuid() == 0 else "-rm"
    if unshare is None or subprocess.run([unshare, flags, "true"], capture_output=True, check=False).returncode:
        pytest.skip(
            "no mount namespaces here: run it on Linux, as root or where users may have namespaces of their own"
        )
    script = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    return [unshare, flags, "sh", "-c", script, str(hosts), str(nowhere), *command]


def test_b9_a_name_that_does_not_resolve_or_leads_elsewhere_is_asked_for_again_until_it_is_right(
    own_valkey: EmbeddedServer, tmp_path: Path
) -> None:
    hosts, nowhere = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("127.0.0.1 localhost\n")
    nowhere.touch()
    with (
        real_sink() as sink,
        FaultProxy(own_valkey.port, listen=OLD) as old,
        FaultProxy(own_valkey.port, listen=NEW, at=old.port) as new,
    ):
        service = Service(
            tmp_path, f"redis://{NAME}:{old.port}/0", queues="4", redis_timeout=str(AWAY), routes=sink.routes
        )
        for one in service.processes:
            one.command = with_names_of(hosts, nowhere, one.command)
            one.start()
        try:
            eventually(lambda: "waiting_for_redis" in service.workers[0].said(), "the worker waits")
            eventually(lambda: service.api.alive and "api_started" in service.api.said(), "the API answers")
            assert service.http.get("/livez").status_code == 200
            told = refused(service.schedule("sink.b9", delayTime=0, body="b"))
            pids = [one.pid for one in service.processes]

            hosts.write_text(f"{OLD} {NAME}\n")
            eventually(service.ready, "the API is ready")
            assert service.schedule("sink.b9", delayTime=0, body="b", id=told["id"]).status_code == 201
            sink.expect("sink.b9", [told["id"]])

            hosts.write_text(f"{NEW} {NAME}\n")
            old.refuse()
            eventually(service.ready, "the API is ready at the new address")
            second = service.schedule("sink.b9", delayTime=0, body="c").json()["id"]
            sink.expect("sink.b9", [told["id"], second])
            assert new.connections > 0
            assert [one.pid for one in service.processes if one.alive] == pids
        finally:
            service.stop()


# -- B11, B12 ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keeper() -> Iterator[ZooKeeperServer]:
    with real_zookeeper() as server:
        yield server


@pytest.fixture(scope="module")
def shared(keeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Two workers, the first of them behind a proxy."""
    options: dict[str, Any] = {
        "zookeeper": keeper.hosts,
        "session_timeout": "3s",
        "queues": str(QUEUES),
        "window": str(WINDOW),
    }
    with house(tmp_path_factory.mktemp("partitions"), workers=2, **options) as made:
        yield made


@pytest.fixture
def home(shared: House) -> Iterator[House]:
    yield shared
    shared.heal()
    eventually(lambda: evenly_owned(shared.service), "both workers own their share again")


def test_b12_a_link_that_comes_and_goes_moves_no_queue_and_doubles_nothing(home: House) -> None:
    clock = threading.Event()
    # ZooKeeper sees the worker live all the time, also while a busy machine gives it no processor.
    with restarted(home.service, session_timeout="20s"):
        before = home.service.epochs()
        with Load(home.service.url, "sink.b12", "b12") as load:
            for _ in range(4):
                home.to_worker.black_hole()
                clock.wait(1)
                home.to_worker.heal()
                clock.wait(1)
            load.wait_for(1)
        assert home.service.epochs() == before
        home.expect(load)
        home.wait_until_done()
        home.expect(load)


def test_b11_a_worker_that_lost_redis_alone_leaves_its_queues_to_the_other_and_gets_them_back(home: House) -> None:
    with Load(home.service.url, "sink.b11", "b11") as load:
        load.wait_for(200)
        home.to_worker.refuse()
        eventually(lambda: set(home.service.owners().values()) == {"w1"}, "the other has them all")
        load.wait_for(200)
    home.expect(load, twice=QUEUES * WINDOW)
    home.to_worker.heal()
    eventually(home.service.owned, "both own queues again")
    home.sink.expect("sink.b11.after", home.schedule("sink.b11.after", 200))
