"""Three workers share the queues by ZooKeeper, and lose sessions, links and lives: nothing is lost, little is doubled."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from testbed.zookeeper import ZooKeeperServer
from tests.faults.house import House, evenly_owned, house, restarted
from tests.support.load import Load
from tests.support.service import OneProcess, Service
from tests.support.waiting import eventually
from tests.support.zookeeper import CREATE, ZooKeeperProxy, client, end_session, real_zookeeper

pytestmark = pytest.mark.long
SESSION = 3  # s
QUEUES = 16
WINDOW = 100
SHARE = 6  # queues that one of three workers has at most
LOST, FENCED = '"state": "lost"', '"event": "fenced"'


class Team:
    """A house with three workers; w0 and w1 go to ZooKeeper through a proxy each."""

    def __init__(self, home: House, keeper: ZooKeeperServer, links: list[ZooKeeperProxy]) -> None:
        self.home = home
        self.service = home.service
        self.workers = home.service.workers
        self.keeper = keeper
        self.links = links
        self._seen: dict[str, int] = {}

    def heal(self) -> None:
        """Everybody runs and owns its share."""
        for link in self.links:
            link.heal()
        for one in self.workers:
            one.signal(signal.SIGCONT)
            if LOST in self.said(one):
                assert one.stop() == 0  # in order, so what it lost in this test does not count in the next one
            one.start()
        eventually(lambda: evenly_owned(self.service), "every worker owns its share of the queues")
        self._seen = {one.name: len(one.said()) for one in self.workers}

    def said(self, worker: OneProcess) -> str:
        """What a worker has said in this test."""
        return worker.said()[self._seen.get(worker.name, 0) :]

    def of(self, worker: OneProcess) -> set[int]:
        """The queues that it owns."""
        return {queue for queue, owner in self.service.owners().items() if owner == worker.name}

    def load(self, row: str, **options: float) -> Load:
        """Messages into the sink and into a stream."""
        return Load(self.service.url, f"sink.{row}", row, **options)  # type: ignore[arg-type]  # times and counts

    def wait_until_taken_over(self, queues: set[int], before: dict[int, str | None]) -> None:
        """Until these are owned under greater epochs."""

        def greater() -> bool:
            now = self.service.epochs()
            return bool(now) and all((now[queue] or "") > (before[queue] or "") for queue in queues)

        eventually(greater, "others, or the same anew, own the queues")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with ExitStack() as stack:
        keeper = stack.enter_context(real_zookeeper())
        links = [stack.enter_context(ZooKeeperProxy(keeper.hosts)) for _ in range(2)]

        def prepare(service: Service) -> None:
            for worker, link in zip(service.workers, links, strict=False):
                worker.settings["zookeeper"] = link.hosts

        options: dict[str, Any] = {
            "zookeeper": keeper.hosts, "session_timeout": f"{SESSION}s", "queues": str(QUEUES), "window": str(WINDOW),
            "forwarders": "1", "send_timeout": f"{2 * SESSION}s",
            "redis_timeout": "20000",  # Redis is well here: on a busy machine it may only take long
        }  # fmt: skip
        home = stack.enter_context(house(tmp_path_factory.mktemp("owners"), prepare, workers=3, **options))
        yield Team(home, keeper, links)


@pytest.fixture
def team(shared: Team) -> Iterator[Team]:
    shared.heal()
    yield shared
    for worker in shared.workers:
        worker.signal(signal.SIGCONT)


def test_c1_an_owner_whose_session_expired_drops_its_queues_and_contends_for_them_anew(team: Team) -> None:
    worker, link = team.workers[0], team.links[0]
    with team.load("c1") as load:
        load.wait_for(200)
        queues, before = team.of(worker), team.service.epochs()
        end_session(team.keeper.hosts, link.client_id)
        team.wait_until_taken_over(queues, before)
        eventually(lambda: LOST in team.said(worker), "it has heard that its session is over")
        eventually(team.service.owned, "it has queues again")
        load.wait_for(200)
    team.home.expect(load, twice=SHARE * WINDOW)


def test_c3_an_owner_that_only_zookeeper_cannot_reach_goes_on_until_its_successor_fences_it(team: Team) -> None:
    worker, link = team.workers[0], team.links[0]
    with team.load("c3") as load:
        load.wait_for(100)
        queues, before = team.of(worker), team.service.epochs()
        link.refuse()
        team.wait_until_taken_over(queues, before)
        eventually(lambda: FENCED in team.said(worker), "Redis tells it")
        load.wait_for(200)
    team.home.expect(load, twice=SHARE * WINDOW)
    link.heal()
    eventually(team.service.owned, "it has queues again")
    team.home.sink.expect("sink.c3.after", team.home.schedule("sink.c3.after", 100))


def test_c8_of_two_nodes_that_believe_they_own_a_queue_redis_fences_the_older(team: Team) -> None:
    worker, link = team.workers[1], team.links[1]
    with team.load("c8") as load:
        load.wait_for(100)
        queues, before = team.of(worker), team.service.epochs()
        link.hold()  # what ZooKeeper tells it comes late
        end_session(team.keeper.hosts, link.client_id)
        team.wait_until_taken_over(queues, before)
        eventually(lambda: FENCED in team.said(worker), "Redis tells it")
        assert LOST not in team.said(worker), "ZooKeeper told it, too early for this test"
        load.wait_for(100)
        link.heal()
        eventually(team.service.owned, "it has queues again")
    team.home.expect(load, twice=SHARE * WINDOW)


@pytest.mark.parametrize("connecting", [False, True], ids=["while-it-sends", "while-it-connects"])
def test_c2_an_owner_that_stood_still_for_three_sessions_sends_nothing_of_what_it_held(
    team: Team, connecting: bool
) -> None:
    # One worker each: who loses three sessions within a minute is left out.
    topic, worker = f"sink.c2.{connecting}".lower(), team.workers[2 if connecting else 1]
    first = team.home.schedule(topic, 200)
    team.home.sink.expect(topic, first)
    if connecting:
        team.home.sink.server.admin.client_kill_filter(_type="normal", skipme=True)
    with team.home.sink_paused():
        ids = first + team.home.schedule(topic, 200)
        # The thread of each worker has written all of what it sends, or is connecting.
        team.home.wait_until_sent_to(len(team.workers))
        ids += team.home.schedule(topic, 600)
        threading.Event().wait(0.5)  # so that batches wait in its memory
        queues, before = team.of(worker), team.service.epochs()
        worker.signal(signal.SIGSTOP)
    paused = threading.Event()
    team.home.sink.expect(topic, ids, twice=SHARE * WINDOW)
    team.home.wait_until_done()
    paused.wait(3 * SESSION)
    team.wait_until_taken_over(queues, before)
    arrived = len(team.home.sink.arrivals(topic))
    worker.signal(signal.SIGCONT)
    eventually(lambda: "stood_still" in team.said(worker), "it notices")
    eventually(team.service.owned, "it has queues again")
    assert len(team.home.sink.arrivals(topic)) == arrived


def test_c2_an_owner_that_stood_still_for_less_than_a_session_doubles_nothing(team: Team) -> None:
    worker = team.workers[2]
    before = team.service.epochs()
    with team.load("c2.short") as load:
        for _ in range(3):
            load.wait_for(100)
            worker.signal(signal.SIGSTOP)
            threading.Event().wait(SESSION / 3 + 0.2)
            worker.signal(signal.SIGCONT)
    team.home.expect(load)
    team.home.wait_until_done()
    team.home.expect(load)
    assert "stood_still" in team.said(worker)
    assert team.service.epochs() == before


def test_c10_a_rolling_restart_of_all_workers_under_load_doubles_nothing(team: Team) -> None:
    # Whoever gets no processor for a while keeps its session: all queues change hands in order.
    with restarted(team.service, session_timeout="20s", send_timeout="30s"):
        with team.load("c10", batch=20, pause=0.03, latest=600) as load:
            for worker in team.workers:
                load.wait_for(400)
                assert worker.stop() == 0
                load.wait_for(100)
                worker.start()
                eventually(team.service.owned, "it has queues again")
        team.home.expect(load)
        team.home.wait_until_done()
        team.home.expect(load)
        assert load.statuses == {200}


def test_c13_a_create_whose_reply_was_lost_is_found_to_be_its_own(team: Team) -> None:
    worker, link = team.workers[0], team.links[0]
    assert worker.stop() == 0
    link.drop_reply(CREATE, "/delayq/owners/")
    dropped = link.dropped
    worker.start()
    eventually(lambda: link.dropped > dropped, "a reply was lost")
    # What is read below is read one after the other: no queue is to change hands meanwhile.
    eventually(lambda: evenly_owned(team.service), "it has its share of the queues")
    with client(team.keeper.hosts) as admin:
        found = {queue: admin.get(f"/delayq/owners/{queue}") for queue in range(QUEUES)}
    owners, epochs = team.service.owners(), team.service.epochs()
    assert {queue: data.decode() for queue, (data, _) in found.items()} == owners
    numbers = {queue: int((epoch or "").split(".")[1]) for queue, epoch in epochs.items()}
    assert {queue: stat.czxid for queue, (_, stat) in found.items()} == numbers
    team.home.sink.expect("sink.c13", team.home.schedule("sink.c13", 200))


def test_c14_a_worker_that_was_killed_and_came_back_at_once_waits_for_its_former_session_and_takes_over(
    team: Team,
) -> None:
    worker = team.workers[0]
    # The session of the one that is killed lasts until its successor has waited for it.
    with restarted(team.service, session_timeout="30s"):
        session = team.links[0].client_id
        queues, before = team.of(worker), team.service.epochs()
        with team.load("c14") as load:
            load.wait_for(100)
            worker.kill()
            worker.start()
            eventually(lambda: "waiting_for_own_name" in team.said(worker), "its name is taken, by itself")
            end_session(team.keeper.hosts, session)
            team.wait_until_taken_over(queues, before)
            eventually(team.service.owned, "it has queues again")
            assert "name_taken" not in team.said(worker)
        team.home.expect(load, twice=SHARE * WINDOW)


def test_c9_when_all_workers_die_the_one_that_comes_back_takes_all_queues(team: Team) -> None:
    with team.load("c9") as load:
        load.wait_for(200)
        for worker in team.workers:
            worker.kill()
        load.wait_for(200)
        team.workers[1].start()
        eventually(lambda: team.of(team.workers[1]) == set(range(QUEUES)), "it owns them all")
        load.wait_for(100)
    team.home.expect(load, twice=QUEUES * WINDOW)
    assert load.statuses == {200}


# Last: whom these leave out stays so for a minute.


def held_until(team: Team, worker: OneProcess) -> int:
    """Until when a worker is left out, by its own entry; 0 while it has none."""
    with client(team.keeper.hosts) as admin:
        path = f"/delayq/nodes/{worker.name}"
        return int(json.loads(admin.get(path)[0])["hold_until"]) if admin.exists(path) else 0


#: A worker that counts the starts of ten minutes: on a busy machine the four of them may take more than one.
WITH_TIME = [
    sys.executable,
    "-c",
    "import runpy; from coordinator.zookeeper import crash_loop; crash_loop.SPAN = 600_000;"
    " runpy.run_module('workers', run_name='__main__', alter_sys=True)",
]


def test_c11_a_worker_in_a_crash_loop_is_left_out_for_a_while(team: Team) -> None:
    worker = team.workers[2]
    command = worker.command
    assert worker.stop() == 0  # in order, so what was before does not count
    worker.command = WITH_TIME
    worker.start()
    with team.load("c11") as load:
        for _ in range(3):
            eventually(team.service.owned, "it has queues")
            assert held_until(team, worker) == 0
            queues, before = team.of(worker), team.service.epochs()
            worker.kill()
            worker.start()
            team.wait_until_taken_over(queues, before)
        eventually(lambda: held_until(team, worker), "it is left out")
        eventually(lambda: set(team.service.owners().values()) == {"w0", "w1"}, "the others have all")
        before = team.service.epochs()
        load.wait_for(400)
        assert team.service.epochs() == before
    team.home.expect(load, twice=3 * SHARE * WINDOW)
    worker.command = command


def test_c11_a_worker_that_keeps_losing_its_session_is_left_out_for_a_while(shared: Team) -> None:
    worker, link = shared.workers[0], shared.links[0]
    assert worker.stop() == 0
    worker.start()
    with shared.load("c11.sessions") as load:
        for _ in range(3):
            eventually(lambda: shared.of(worker), "it has queues")
            queues, before = shared.of(worker), shared.service.epochs()
            end_session(shared.keeper.hosts, link.client_id)
            shared.wait_until_taken_over(queues, before)
        eventually(lambda: held_until(shared, worker), "it is left out")
        eventually(lambda: not shared.of(worker), "others have its queues")
        load.wait_for(200)
    shared.home.expect(load, twice=3 * QUEUES * WINDOW)
