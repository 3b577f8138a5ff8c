"""Redis dies and comes back, rewrites its file or forgets its scripts under load: all go on by themselves."""

from __future__ import annotations

import pytest

from tests.faults.flow import patiently, refused
from tests.faults.house import House
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("house")]


def test_a1_a_redis_that_is_killed_and_started_again_loses_and_doubles_nothing(house: House) -> None:
    """A1 (kill -9 and restart, AOF): The API answers 503 and names the id to repeat.

    All recover by themselves; nothing is lost, early or repeated.

    A1: This holds as long as the disk keeps up (A2).
    """
    pids = [one.pid for one in house.service.processes]
    with house.load("a1") as load:
        for _ in range(2):
            load.wait_for(150)
            house.redis.kill()
            problem = refused(house.service.schedule("a1", delayTime="1s", id="unknown"))
            assert "Repeat with the same id, unknown" in problem["detail"]
            refused(house.http.get("/readyz"))
            house.redis.start()
            patiently(house.service.ready, "the API is ready")
        load.wait_for(150)
    assert 503 in load.statuses
    house.expect(load)
    assert [one.pid for one in house.service.processes if one.alive] == pids


def test_a19_rewriting_the_append_only_file_under_load_loses_and_doubles_nothing(house: House) -> None:
    """A12 (NOSCRIPT, or no script on a new master): Nothing ran; the script is sent again with the same call.

    A19 (fork and rewrite: latency, memory): All continue, some ms late. Memory can double: set `maxmemory` to half.

    The scripts are flushed meanwhile, again and again (A12).
    """
    with house.load("a19") as load:
        for _ in range(3):
            load.wait_for(100)
            house.admin.bgrewriteaof()
            house.admin.script_flush()
            eventually(lambda: not house.admin.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
    assert house.admin.info("persistence")["aof_last_bgrewrite_status"] == "ok"
    assert load.statuses == {200}
    house.expect(load)
    house.redis.kill()
    house.redis.start()
    patiently(house.service.ready, "the API is ready")
    assert house.admin.xlen("a19") >= len(load.accepted["a19"]) - len(load.cancelled | load.in_flight)
