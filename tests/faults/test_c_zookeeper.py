"""ZooKeeper itself fails: servers, the quorum, the whole ensemble, its data. Redis decides, so delivery goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from testbed.zookeeper import ZooKeeperServer
from tests.faults.flow import delayq
from tests.faults.house import House, evenly_owned, house, restarted
from tests.support.load import Load
from tests.support.waiting import eventually
from tests.support.zookeeper import client, real_zookeeper

pytestmark = pytest.mark.long
OUTAGE = 9  # s, more than two sessions
LONG_SESSION = 20  # s


class Kept:
    """A house whose three workers go by an ensemble of three."""

    def __init__(self, home: House, keeper: ZooKeeperServer) -> None:
        self.home = home
        self.service = home.service
        self.keeper = keeper

    def heal(self) -> None:
        """All servers run, all workers own as many queues."""
        self.keeper.start()
        eventually(lambda: self.keeper.leader() is not None, "there is a leader")
        for one in self.service.workers:
            one.start()
        eventually(lambda: evenly_owned(self.service), "every worker owns its share of the queues")

    def load(self, row: str) -> Load:
        return Load(self.service.url, f"sink.{row}", row, batch=5)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with ExitStack() as stack:
        keeper = stack.enter_context(real_zookeeper(members=3))
        options: dict[str, Any] = {
            "workers": 3, "zookeeper": keeper.hosts, "session_timeout": "4s", "queues": "16",
            "redis_timeout": "20000",  # Redis is well here: on a busy machine it may only take long
        }  # fmt: skip
        home = stack.enter_context(house(tmp_path_factory.mktemp("ensemble"), **options))
        yield Kept(home, keeper)


@pytest.fixture
def kept(shared: Kept) -> Kept:
    shared.heal()
    return shared


def test_c5_when_the_leader_dies_no_queue_changes_hands(kept: Kept) -> None:
    # With sessions of a few seconds a worker that only gets no processor for as long would lose its queues, too.
    with restarted(kept.service, session_timeout=f"{LONG_SESSION}s"):
        before = kept.service.epochs()
        leader = kept.keeper.leader()
        assert leader is not None
        with kept.load("c5") as load:
            load.wait_for(50)
            kept.keeper.kill(leader)
            eventually(lambda: kept.keeper.leader() is not None, "there is another leader")
            # Longer than a session: who had not come back would be given up by now.
            threading.Event().wait(LONG_SESSION + 1)
            load.wait_for(50)
        assert kept.service.epochs() == before
        kept.home.expect(load)


def test_c4_without_a_quorum_delivery_goes_on_and_no_queue_changes_hands(kept: Kept) -> None:
    before = kept.service.epochs()
    with kept.load("c4") as load:
        kept.keeper.kill(0, 1)
        eventually(lambda: kept.keeper.leader() is None, "there is no quorum")
        threading.Event().wait(OUTAGE)
        load.wait_for(50)
        assert kept.service.epochs() == before
        kept.home.sink.expect("sink.c4.during", kept.home.schedule("sink.c4.during", 200))
        assert kept.service.ready()
        kept.heal()
        load.wait_for(50)
    kept.home.expect(load)
    assert load.statuses == {200}


def test_c15_after_a_long_outage_of_zookeeper_workers_are_back_by_themselves_and_queues_change_hands_again(
    kept: Kept,
) -> None:
    first, *others = kept.service.workers
    before = kept.service.epochs()
    with kept.load("c15") as load:
        kept.keeper.kill()
        threading.Event().wait(OUTAGE)
        load.wait_for(50)
        assert kept.service.epochs() == before
        kept.keeper.start()
        eventually(kept.service.owned, "every worker owns queues")
        assert first.stop() == 0
        eventually(
            lambda: set(kept.service.owners().values()) == {one.name for one in others},
            "the others have all",
        )
        load.wait_for(50)
    kept.home.expect(load)
    assert load.statuses == {200}


# -- one server of one's own, which is not there yet ------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Two workers of a ZooKeeper of one server, which is down; nothing has started yet."""
    with ExitStack() as stack:
        keeper = stack.enter_context(real_zookeeper())
        keeper.kill()
        options: dict[str, Any] = {"workers": 2, "zookeeper": keeper.hosts, "session_timeout": "2s", "queues": "4"}
        home = stack.enter_context(house(tmp_path_factory.mktemp("alone"), started=False, **options))
        yield Kept(home, keeper)


def test_c6_with_zookeeper_down_at_the_start_messages_are_accepted_and_forwarded_when_it_comes(alone: Kept) -> None:
    for one in alone.service.processes:
        one.start()
    eventually(alone.service.ready, "the API is ready")
    ids = alone.home.schedule("sink.c6", 200)
    first = alone.service.workers[0]
    eventually(lambda: "waiting_for_coordinator" in first.said(), "the worker says what it waits for")
    told = delayq(alone.home.redis.url, "doctor")
    assert told.returncode == 1
    assert "without an owner, with 200 messages that nobody forwards" in told.stdout
    assert alone.home.sink.arrivals("sink.c6") == []
    alone.keeper.start()
    alone.home.sink.expect("sink.c6", ids)
    eventually(alone.service.owned, "every worker owns queues")


def test_c7_when_zookeeper_lost_its_data_it_is_said_and_a_bump_of_the_era_lets_workers_own_again(alone: Kept) -> None:
    for one in alone.service.processes:
        one.start()
    alone.keeper.start()
    with client(alone.keeper.hosts) as admin:
        for _ in range(300):  # so that the epochs from now on are above those after the loss
            admin.create("/counted", ephemeral=True, sequence=True)
    first, second = alone.service.workers
    for leaves, stays in ((first, second), (second, first)):
        assert leaves.stop() == 0
        eventually(lambda one=stays: set(alone.service.owners().values()) == {one.name}, "it has all")  # type: ignore[misc]
        leaves.start()
        eventually(alone.service.owned, "every worker owns queues")
    seen = {one.name: len(one.said()) for one in alone.service.workers}
    alone.keeper.wipe()
    alone.keeper.start()
    eventually(
        lambda: any("epochs_refused" in one.said()[seen[one.name] :] for one in alone.service.workers),
        "a worker says that its epochs are refused",
    )
    assert any("Run `delayq era bump`" in one.said()[seen[one.name] :] for one in alone.service.workers)
    ids = alone.home.schedule("sink.c7", 200)
    bumped = delayq(alone.home.redis.url, "era", "bump", "--yes", "--json")
    assert (bumped.returncode, json.loads(bumped.stdout)["era"]) == (0, 1)
    eventually(alone.service.owned, "every worker owns queues")
    assert all((epoch or "").startswith("0000000001.") for epoch in alone.service.epochs().values())
    alone.home.sink.expect("sink.c7", ids)
    alone.home.wait_until_done()
    alone.home.sink.expect("sink.c7", ids)
