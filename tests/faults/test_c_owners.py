"""Three workers share the queues by ZooKeeper, and lose sessions, links and lives: nothing is lost, little is doubled."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tests.faults.flow import metric, patiently
from tests.faults.house import QUEUES, WINDOW, House, readiness
from tests.support.timeouts import SESSION_TIMEOUT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]

LOST, FENCED = '"state": "lost"', '"event": "fenced"'


@pytest.mark.parametrize("told", ["at-once", "late", "never"])
def test_c1_an_owner_whose_session_expired_drops_its_queues_and_contends_for_them_anew(house: House, told: str) -> None:
    """C1 (session expiry of the owner): The worker drops its queues, acks confirmed messages, and contends again.

    Messages in flight may repeat.

    C3 (owner partitioned from ZK, not from Redis): It continues until its successor claims, then is fenced. Messages
    in flight may repeat.

    C8 (two nodes believe they own a queue): Redis fences the lower epoch; no two are equal. Messages in flight may
    repeat.

    C1, C3, C8: It contends under greater epochs. An owner that lost ZooKeeper alone continues until its successor has
    claimed, and Redis fences it then.

    If ZooKeeper does not reach it (C3), or tells it late (C8), it goes on until Redis fences it.
    """
    worker, link = house.workers[0], house.links[0]
    with house.load(f"c1.{told}") as load:
        load.wait_for(100)
        queues, before, session = house.of(worker), house.service.epochs(), house.session_of(worker)
        if told == "late":
            link.hold()
        elif told == "never":
            link.refuse()
        house.end_session(session)
        house.wait_until_taken_over(queues, before)
        patiently(lambda: (LOST if told == "at-once" else FENCED) in house.said(worker), "it is told")
        if told != "at-once":
            assert LOST not in house.said(worker), "ZooKeeper told it, too early for this test"
        load.wait_for(100)
        link.heal()
        patiently(house.service.owned, "it has queues again")
        load.wait_for(100)
    house.expect(load, twice=QUEUES * WINDOW)


def test_c2_an_owner_that_stood_still_for_long_sends_nothing_of_what_it_held(house: House) -> None:
    """C2 (SIGSTOP owner 3×S, SIGCONT): It sends nothing pulled before the stop; a begun send writes nothing after its
    time-out.

    C2: This holds for a stop longer than a third of its session. Its first pull is fenced if another node owns the
    queue; otherwise nothing repeats.
    """
    topic, worker = "sink.c2", house.workers[1]
    first = house.schedule(topic, 100)
    house.sink.expect(topic, first)
    with house.sink_paused():
        ids = first + house.schedule(topic, 200)
        house.wait_until_sent_to(len(house.workers))  # the thread of each worker has written all of what it sends
        sending = metric(worker, "delayq_in_flight")
        ids += house.schedule(topic, 300)
        patiently(lambda: metric(worker, "delayq_in_flight") > sending, "messages wait in its memory")
        queues, before = house.of(worker), house.service.epochs()
        worker.signal(signal.SIGSTOP)
        stopped = time.monotonic()
    house.end_session(house.session_of(worker))
    house.sink.expect(topic, ids, twice=QUEUES * WINDOW)
    house.wait_until_done()
    house.wait_until_taken_over(queues, before)
    # It stood still when that takes a third of a session.
    threading.Event().wait(max(0.0, stopped + SESSION_TIMEOUT / 3_000 + 1 - time.monotonic()))
    arrived = len(house.sink.arrivals(topic))
    worker.signal(signal.SIGCONT)
    patiently(lambda: "stood_still" in house.said(worker), "it notices")
    patiently(house.service.owned, "it has queues again")
    assert len(house.sink.arrivals(topic)) == arrived


def test_c10_a_rolling_restart_of_all_workers_under_load_doubles_nothing(house: House) -> None:
    """C10 (rolling deploy, n nodes one by one): Each hands its queues over: nothing is lost or repeated, and no call
    fails.

    The first of them is seen while it stops (D3): it is not ready, ends its sends, and only then itself.
    """
    first = house.workers[0]
    with house.load("c10", pause=0.1, latest=600) as load:
        for worker in house.workers:
            load.wait_for(100)
            if worker is first:
                with house.sink_paused():
                    house.wait_until_sent_to(len(house.workers))
                    worker.signal(signal.SIGTERM)
                    patiently(lambda: readiness(first)[0] == 503, "it is not ready any more")
                    assert worker.alive
            assert worker.stop() == 0
            load.wait_for(100)
            worker.start()
            patiently(house.service.owned, "it has queues again")
    house.expect(load)
    assert load.statuses == {200}


def test_c14_a_worker_that_was_killed_and_came_back_at_once_waits_for_its_former_session_and_takes_over(
    house: House,
) -> None:
    """C14 (own stale ephemeral after quick restart): It waits until ZooKeeper ends its former session, then takes its
    share."""
    worker = house.workers[0]
    session, queues, before = house.session_of(worker), house.of(worker), house.service.epochs()
    with house.load("c14") as load:
        load.wait_for(100)
        worker.kill()
        worker.start()
        patiently(lambda: "waiting_for_own_name" in house.said(worker), "its name is taken, by itself")
        house.end_session(session)
        house.wait_until_taken_over(queues, before)
        patiently(house.service.owned, "it has queues again")
        assert "name_taken" not in house.said(worker)
    house.expect(load, twice=QUEUES * WINDOW)
