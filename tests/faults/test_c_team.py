"""Threads that die or hang, watches that are missed, and many nodes at once."""

from __future__ import annotations

import ctypes
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import cast

import pytest

from coordinator.zookeeper.coordinator import REREAD, ZooKeeperCoordinator
from delayq import Client, Message
from delayq.client.operations import Scheduled
from delayq.store.connect.store import Store
from delayq.testing import ManualClock, MemoryTarget
from testbed.zookeeper import ZooKeeperServer
from tests.coordinator.team import QUEUES, Team, team
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.support.zookeeper import client
from tests.workers.nodes import settings_for
from workers.queue.pull_job import PullJob
from workers.queue.puller import Puller

pytestmark = pytest.mark.long
NODES = 20
LATER = int(REREAD * 1.1) + 1


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    made = MemoryTarget()
    yield made
    made.close()


class Pair:
    """Two nodes in threads that share eight queues by a real ZooKeeper."""

    def __init__(self, nodes: list[RunningNode], producer: Client, target: MemoryTarget, owners: str) -> None:
        self.nodes = nodes
        self.owners = owners
        self._client = producer
        self._target = target

    @property
    def jobs(self) -> dict[int, PullJob]:
        """The pull jobs of both."""
        return {queue: job for one in self.nodes for queue, job in one.node.jobs.items()}

    def shared(self) -> bool:
        return [len(one.node.jobs) for one in self.nodes] == [4, 4] and set(self.jobs) == set(range(8))

    def deliver(self, prefix: str) -> None:
        """Messages of every queue arrive, each once."""
        messages = [Message(topic="m.t", id=f"{prefix}-{number}", delay_time=number % 50) for number in range(200)]
        assert all(isinstance(one, Scheduled) for one in self._client.schedule_many(messages))
        self._target.wait_for_ids([f"{prefix}-{number}" for number in range(200)], timeout=40)
        assert max(Counter(self._target.ids).values()) == 1


@pytest.fixture
def pair(
    valkey: ServerUnderTest, zookeeper: ZooKeeperServer, zookeeper_root: str, target: MemoryTarget
) -> Iterator[Pair]:
    with ExitStack() as stack:
        nodes = []
        for name in ("one", "two"):
            node = RunningNode(
                settings_for(
                    valkey.url,
                    {"m": target},
                    queues=8,
                    node=name,
                    zookeeper=zookeeper.hosts,
                    zookeeper_root=zookeeper_root,
                )
            )
            node.start()
            stack.callback(node.stop)
            nodes.append(node)
        producer = stack.enter_context(Client(settings=nodes[0].settings))
        made = Pair(nodes, producer, target, f"{zookeeper_root}/owners")
        eventually(made.shared, "the nodes share the queues")
        yield made


# -- C12 --------------------------------------------------------------------------------------------------------------


def kill(thread: threading.Thread | None) -> None:
    """End a thread as nothing in it expects."""
    assert thread is not None and thread.ident is not None
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # that is the fault
def test_c12_queues_whose_pull_thread_died_get_another_under_a_greater_epoch(pair: Pair) -> None:
    before, of_one = pair.jobs, set(pair.nodes[0].node.jobs)
    (puller,) = {cast(Puller, job._mover) for queue, job in before.items() if queue in of_one}
    kill(puller._thread)
    eventually(lambda: not puller.alive, "the thread is dead")
    eventually(lambda: all(job.alive for job in pair.jobs.values()) and len(pair.jobs) == 8, "there is another")
    assert {queue for queue, job in pair.jobs.items() if job.epoch > before[queue].epoch} == of_one
    pair.deliver("died")


def test_c12_queues_whose_pull_thread_hangs_get_another_and_the_old_jobs_are_fenced(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.node.ownership.STUCK", 4_000)
    monkeypatch.setattr("workers.queue.puller.HUNG", 3_000)
    of_one = pair.nodes[0].node.jobs
    before, go_on = dict(of_one), threading.Event()
    first = min(before)
    pulls = before[first]._pulling.pulls
    monkeypatch.setattr(
        before[first]._pulling, "pulls", lambda *given, **how: pulls(*given, **how) if go_on.wait(60) else []
    )
    try:
        eventually(
            lambda: len(pair.jobs) == 8 and all(pair.jobs[queue].epoch > job.epoch for queue, job in before.items()),
            "there are others",
        )
        pair.deliver("hung")
        assert before[first].alive
    finally:
        go_on.set()
    eventually(lambda: not any(job.alive for job in before.values()), "the old ones end")


# -- C16 --------------------------------------------------------------------------------------------------------------


def test_c16_an_owner_znode_that_was_deleted_and_made_by_another_is_noticed_without_a_watch(
    pair: Pair, zookeeper: ZooKeeperServer
) -> None:
    before = pair.jobs[6]
    with client(zookeeper.hosts) as stranger:
        deleting = stranger.transaction()
        deleting.delete(f"{pair.owners}/6")
        deleting.create(f"{pair.owners}/6", b"stranger", ephemeral=True)
        deleting.commit()
        eventually(lambda: 6 not in pair.jobs and not before.alive, "its owner finds out and lets go")
    eventually(lambda: 6 in pair.jobs and pair.jobs[6].epoch > before.epoch, "it is owned again")
    pair.deliver("aba")


def test_c16_with_every_watch_missed_queues_are_shared_by_reading_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_node_changed", "_owner_gone"):
        monkeypatch.setattr(ZooKeeperCoordinator, name, lambda *_: None)
    first, _ = pair.nodes
    third = RunningNode(first.settings.replace(node="three"))
    third.start()
    try:
        pair.nodes.append(third)
        eventually(lambda: [len(one.node.jobs) for one in pair.nodes] in ([3, 3, 2], [3, 2, 3], [2, 3, 3]), "all share")
        pair.deliver("missed")
    finally:
        third.stop()
    del pair.nodes[2]
    eventually(pair.shared, "the two have all again")
    pair.deliver("left")


# -- C17 --------------------------------------------------------------------------------------------------------------


def ask(server: ZooKeeperServer, word: str) -> str:
    """What the server says to one of its four-letter words."""
    host, _, port = server.hosts.partition(":")
    reply = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(word.encode())
        while chunk := connection.recv(65_536):
            reply += chunk
    return reply.decode()


def requests(server: ZooKeeperServer) -> int:
    """How many the server has got so far."""
    lines = dict(line.split("\t", 1) for line in ask(server, "mntr").splitlines() if "\t" in line)
    return int(lines["zk_packets_received"])


def quiet(server: ZooKeeperServer, clock: ManualClock, nodes: int) -> int:
    """How many it has got when so many nodes wait, and nothing but a ping and these questions is under way."""

    def rests() -> bool:
        clock.wait_for_waiters(nodes)
        before = requests(server)
        threading.Event().wait(0.3)
        return requests(server) - before <= 3

    eventually(rests, "ZooKeeper has nothing to do")
    return requests(server)


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


@pytest.fixture
def crowd(
    valkey: ServerUnderTest, zookeeper: ZooKeeperServer, zookeeper_root: str
) -> Iterator[tuple[Team, ManualClock]]:
    """Nodes that read again only when the clock is moved: all other requests are answers to what happened."""
    clock, store = ManualClock(), Store(valkey.url)
    with team(zookeeper.hosts, zookeeper_root, store, clock) as made:
        yield made, clock
    store.close()


def test_c17_of_many_nodes_each_reads_once_for_what_happened_and_one_watches_a_queue(
    crowd: tuple[Team, ManualClock], zookeeper: ZooKeeperServer
) -> None:
    nodes, clock = crowd
    players = [nodes.join(f"node-{number}", session_timeout=30_000) for number in range(NODES)]
    nodes.settle(*players)
    clock.wait_for_waiters(NODES)
    one_look = 2 + NODES + QUEUES  # its own entry, the list, each entry, each owner
    owners = f"{nodes.root}/owners"
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
