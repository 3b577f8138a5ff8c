"""The primary changes: it is killed, paused, told to step down, made a replica by hand, or its slots move."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from delayq.store.keys import KEYS
from testbed.process import stand_still
from tests.faults.flow import refused
from tests.faults.rig import QUEUES, WINDOW, Group, behind, fail_over, group_on
from tests.support.clusters import ClusterUnderTest
from tests.support.moved import moving_name
from tests.support.sentinels import SentinelsUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


# -- behind sentinels ----------------------------------------------------------------------------------------------------


@pytest.fixture
def one_confirms(session_sentinels: SentinelsUnderTest, tmp_path: Path) -> Iterator[Group]:
    """For one test alone: a worker that stayed would share the next test's queues and deliver to its own sink."""
    with behind(session_sentinels, tmp_path, 1) as made:
        yield made


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a9_a_primary_that_is_killed_is_replaced_and_nothing_accepted_is_lost(
    one_confirms: Group, session_sentinels: SentinelsUnderTest, how: str
) -> None:
    """A9 (primary SIGKILL, Sentinel fail-over): The sentinels name the new primary.

    `DELAYQ_MIN_REPLICAS=1` loses nothing accepted; messages in flight may repeat.

    A10 (zombie primary (SIGSTOP 4 s, SIGCONT)): With `DELAYQ_MIN_REPLICAS=1` and `min-replicas-to-write 1` it
    confirms nothing, so nothing accepted is lost.

    One that was paused and comes back as a primary (A10) confirms nothing that is lost.
    """
    old = session_sentinels.primary
    pid = old.server.pid
    assert pid is not None
    with one_confirms.load(f"a9.{how}") as load:
        load.wait_for(100)
        if how == "killed":
            fail_over(session_sentinels, old.server.kill)
        else:
            try:
                fail_over(session_sentinels, lambda: stand_still(pid))
                load.wait_for(100)
            finally:
                os.kill(pid, signal.SIGCONT)
            # Whoever still talks to it is refused, or waits in vain for a replica to confirm.
            stale = redis.Redis(port=old.port, protocol=2, socket_timeout=PATIENCE)
            eventually(lambda: refuses(stale), "the old primary takes nothing")
            stale.close()
        load.wait_for(100)
    # An ack that no replica had is lost with the old primary, so at most what was in flight comes again.
    one_confirms.expect_all(load, twice=WINDOW * QUEUES)


def test_a11_a_fail_over_by_hand_loses_nothing_accepted(session_sentinels: SentinelsUnderTest, tmp_path: Path) -> None:
    """A11: `DELAYQ_MIN_REPLICAS` and `min-replicas-to-write` are as high as there are replicas.

    Then nothing accepted is lost, and no cancel is untrue.

    The new primary has not got the scripts (A12).
    """
    with behind(session_sentinels, tmp_path, 2) as group:
        for one in session_sentinels.members:
            if not one.is_primary:
                one.admin.script_flush()
        with group.load("a11") as load:
            load.wait_for(100)
            fail_over(session_sentinels, lambda: None)
            load.wait_for(100)
        group.expect_all(load, twice=WINDOW * QUEUES)


def refuses(admin: redis.Redis) -> bool:
    """Whether a server takes no writes."""
    try:
        admin.set("zombie", 1)
    except redis.exceptions.ReadOnlyError:
        return True
    except redis.exceptions.ResponseError as error:
        return "NOREPLICAS" in str(error)
    except redis.exceptions.ConnectionError:
        pass
    return False


# -- a single server -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [True, False], ids=["the name moves", "the name stays"])
def test_a18_a_primary_that_is_made_a_replica_is_left_for_the_server_that_the_name_leads_to(
    tmp_path: Path, moves: bool
) -> None:
    """A18 (READONLY: the server is a replica): The API answers 503.

    All connections to that server close, and delayq looks for the primary again.

    A18: READONLY, MASTERDOWN, NOREPLICAS and LOADING close every connection to that server: pooled, in use and
    subscribed, also those of a `redis+stream` target. delayq then asks the sentinels or resolves the name again,
    until there is a primary. It also does so if only `INFO` shows a replica. `/readyz` has the reason.

    The old primary lives on as a replica, and closes no connection.
    """
    with moving_name() as name, group_on(tmp_path, name.url) as on:
        pids = [one.pid for one in on.service.processes]
        ids = on.schedule("sink.a18", 50, delay=1_000)
        name.promote()
        refused(on.service.schedule("sink.a18", delayTime="1s", id="new"))
        missing = refused(on.http.get("/readyz"))["missing"]
        assert any("replica" in one or "READONLY" in one for one in missing)
        eventually(name.follows, "it follows")
        if moves:
            name.name.lead_to(name.new.port)
        else:
            name.old.admin.execute_command("REPLICAOF", "NO", "ONE")
        eventually(on.service.ready, "the API is ready again")
        assert on.service.schedule("sink.a18", delayTime="1s", id="new").status_code == 201
        on.sink.expect("sink.a18", [*ids, "new"])
        assert [one.pid for one in on.service.processes if one.alive] == pids


# -- a cluster -----------------------------------------------------------------------------------------------------------


def test_a13_slots_that_move_under_load_lose_and_double_nothing(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    """A13 (cluster slot migration): Calls for a moving queue are retried briefly, then 503.

    Nothing is lost or repeated.
    """
    pause = threading.Event()
    with group_on(tmp_path, cluster.url) as group:
        with group.load("a13") as load:
            load.wait_for(200)
            for queue in range(QUEUES):
                key = KEYS.queue(queue).state
                source = cluster.primary_of(key)
                to = next(one for one in cluster.primaries if one is not source)
                for _ in cluster.move_slot(key, to):
                    pause.wait(0.05)  # what came to this queue meanwhile is asked to try again
                assert cluster.primary_of(key) is to
            load.wait_for(200)
        group.expect_all(load, twice=0)
