"""Names that do not resolve, and a worker whose way to Redis is cut or comes and goes while ZooKeeper sees it live."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.faults.flow import patiently, refused
from tests.faults.house import QUEUES, WINDOW, House
from tests.support.moved import moving_name
from tests.support.proxy import FaultProxy
from tests.support.service import Service
from tests.support.sink import real_sink
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]
OLD, NEW = "127.0.0.2", "127.0.0.3"
NAME = "redis.delayq.internal"


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
    tmp_path: Path,
) -> None:
    """B9 (DNS failure or address change): 503 until the name resolves; no restart is needed.

    B9: API and worker resolve the name again and follow it to a new address.

    The server at the old address lives on as a replica, and closes no connection.
    """
    hosts, nowhere = tmp_path / "hosts", tmp_path / "resolv.conf"
    hosts.write_text("127.0.0.1 localhost\n")
    nowhere.touch()
    with (
        real_sink() as sink,
        moving_name() as servers,
        FaultProxy(servers.old.port, listen=OLD) as old,
        FaultProxy(servers.new.port, listen=NEW, at=old.port) as new,
    ):
        url = f"redis://{NAME}:{old.port}/0"
        service = Service(tmp_path, url, queues="4", redis_timeout=str(REDIS_TIMEOUT), routes=sink.routes)
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
            servers.promote()
            eventually(service.ready, "the API is ready at the new address")
            second = service.schedule("sink.b9", delayTime=0, body="c").json()["id"]
            sink.expect("sink.b9", [told["id"], second])
            assert new.connections > 0
            eventually(lambda: old.connections == 0, "nobody stays at the old address")
            assert [one.pid for one in service.processes if one.alive] == pids
        finally:
            service.stop()


# -- B11, B12 ---------------------------------------------------------------------------------------------------------


def test_b11_a_worker_that_lost_redis_alone_leaves_its_queues_to_the_others_and_gets_them_back(house: House) -> None:
    """B11 (partition owner↔Redis only (ZK fine)): After 5 s other workers take its queues; they return later.

    Messages in flight may repeat.
    """
    worker = house.workers[0]
    with house.load("b11") as load:
        load.wait_for(100)
        house.to_worker.refuse()
        patiently(lambda: house.service.queues() and not house.of(worker), "the others have its queues")
        load.wait_for(100)
    house.expect(load, twice=QUEUES * WINDOW)
    house.to_worker.heal()
    patiently(house.service.owned, "all own queues again")
    house.sink.expect("sink.b11.after", house.schedule("sink.b11.after", 100))


def test_b12_a_link_that_comes_and_goes_moves_no_queue_and_doubles_nothing(house: House) -> None:
    clock, before = threading.Event(), house.service.epochs()
    with house.load("b12") as load:
        for _ in range(4):
            house.to_worker.black_hole()
            clock.wait(1)
            house.to_worker.heal()
            clock.wait(1)
        load.wait_for(1)
    house.expect(load)
    assert house.service.epochs() == before
