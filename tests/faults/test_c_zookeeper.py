"""ZooKeeper itself fails: a server, the leader of an ensemble. Redis decides, so delivery goes on."""

from __future__ import annotations

import socket
import threading
from collections import Counter

import pytest

from coordinator.zookeeper.coordinator import REREAD
from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from testbed.zookeeper import ZooKeeperServer
from tests.coordinator.team import QUEUES, team
from tests.faults.flow import patiently
from tests.faults.house import House
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, SESSION_TIMEOUT
from tests.support.waiting import eventually
from tests.support.zookeeper import real_zookeeper

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

NODES = 12
LATER = int(REREAD * 1.1) + 1


def test_c15_without_zookeeper_owners_go_on_and_when_it_is_back_queues_change_hands_again(house: House) -> None:
    """C4 (ZK quorum lost for 10 min): All continue and no queue changes hands.

    (Shown over seconds; no server expires sessions.)

    C15 (long ZK outage, then recovery (30 min)): Owners continue. Workers return within a second, and queues change
    hands again. (Shown over seconds.)
    """
    first, *others = house.workers
    before = house.service.epochs()
    with house.load("c15", pause=0.2) as load:
        house.keeper.kill()
        load.wait_for(200)
        assert house.service.ready()
        assert house.service.epochs() == before
        house.keeper.start()
        load.wait_for(100)
        assert house.service.epochs() == before
        assert first.stop() == 0
        names = {one.name for one in others}
        patiently(lambda: set(house.service.owners().values()) == names, "the others have all")
        load.wait_for(50)
    house.expect(load)
    assert load.statuses == {200}


def test_c5_when_the_leader_dies_no_queue_changes_hands(valkey: ServerUnderTest, zookeeper_root: str) -> None:
    store = Store(valkey.url, timeout=PATIENCE)
    with real_zookeeper(members=3) as keeper, team(keeper.hosts, zookeeper_root, store, ManualClock()) as nodes:
        players = [nodes.join(name, session_timeout=SESSION_TIMEOUT) for name in ("one", "two", "three")]
        nodes.settle(*players)
        before = [player.epochs for player in players]
        leader = keeper.leader()
        assert leader is not None
        keeper.kill(leader)
        eventually(lambda: keeper.leader() not in (None, leader), "there is another leader")
        # A node that stops in order hands its queues over, so the others are in touch with the ensemble again.
        players.pop().coordinator.stop()
        nodes.settle(*players)
        for player, epochs in zip(players, before, strict=False):
            assert epochs.items() <= player.epochs.items()
    store.close()


# -- C17 --------------------------------------------------------------------------------------------------------------


def ask(server: ZooKeeperServer, word: str) -> str:
    """What the server answers to one of its four-letter words."""
    host, _, port = server.hosts.partition(":")
    reply = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(word.encode())
        while chunk := connection.recv(65_536):
            reply += chunk
    return reply.decode()


def quiet(server: ZooKeeperServer, clock: ManualClock, nodes: int) -> int:
    """How many requests it has got when so many nodes wait, and nothing but a ping and these questions is under way."""

    def requests() -> int:
        lines = dict(line.split("\t", 1) for line in ask(server, "mntr").splitlines() if "\t" in line)
        return int(lines["zk_packets_received"])

    def rests() -> bool:
        clock.wait_for_waiters(nodes)
        before = requests()
        threading.Event().wait(0.3)
        return requests() - before <= 3

    eventually(rests, "ZooKeeper has nothing to do")
    return requests()


def watchers(server: ZooKeeperServer, path: str) -> int:
    """The most that watch any one znode under a path."""
    counts: Counter[str] = Counter()
    znode = ""
    for line in ask(server, "wchp").splitlines():
        if line.startswith("/"):
            znode = line
        elif line.strip():
            counts[znode] += 1
    return max((count for znode, count in counts.items() if znode.startswith(path)), default=0)


def test_c17_of_many_nodes_each_reads_once_for_what_happened_and_one_watches_a_queue(
    valkey: ServerUnderTest, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> None:
    """C17: Each node reads each entry and owner once for a change, at most twice.

    Only the next owner watches a queue.

    The nodes read again only when the clock is moved: all other requests are answers to what happened.
    """
    clock, store = ManualClock(), Store(valkey.url, timeout=PATIENCE)
    owners, one_look = f"{zookeeper_root}/owners", 2 + NODES + QUEUES  # its own entry, the list, each entry, each owner
    with team(zookeeper.hosts, zookeeper_root, store, clock) as nodes:
        players = [nodes.join(f"node-{number}", session_timeout=SESSION_TIMEOUT) for number in range(NODES)]
        nodes.settle(*players)
        clock.wait_for_waiters(NODES)
        assert watchers(zookeeper, owners) <= 1

        before = quiet(zookeeper, clock, NODES)
        clock.advance(LATER)
        assert quiet(zookeeper, clock, NODES) - before <= 1.2 * NODES * one_look

        before = quiet(zookeeper, clock, NODES)
        leaver = players.pop()
        held = len(leaver.queues)
        leaver.coordinator.stop()
        nodes.settle(*players)
        assert watchers(zookeeper, owners) <= 1
        # Each may be told twice, by the list and by the entry; and each queue costs its next owner a few requests.
        assert quiet(zookeeper, clock, NODES - 1) - before <= 1.2 * (2 * NODES * one_look + 10 * held)
    store.close()
