"""Redis dies, loads, forgets its scripts, is slow, is busy or takes nobody in: all go on by themselves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq import Client, Message, Settings, StoreUnavailable
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from tests.faults.flow import refused
from tests.faults.rig import QUEUES, Rig, rig
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("restarts"), extra=["--enable-debug-command", "local"]) as made:
        yield made


@pytest.fixture
def on(shared: Rig) -> Iterator[Rig]:
    """The rig, whole; its worker is never started again."""
    pids = [one.pid for one in shared.service.workers]
    yield shared
    shared.redis.start()
    eventually(shared.service.ready, "the API is ready")
    assert [one.pid for one in shared.service.workers if one.alive] == pids


@pytest.fixture
def unhurried(tmp_path: Path) -> Iterator[Rig]:
    """A rig of its own that waits long for replies: where no call may fail, Redis may still take long."""
    with rig(tmp_path, redis_timeout="20000") as made:
        pids = [one.pid for one in made.service.workers]
        yield made
        assert [one.pid for one in made.service.workers if one.alive] == pids


def test_a1_a_redis_that_is_killed_and_started_again_loses_and_doubles_nothing(on: Rig) -> None:
    with on.load("a1") as load:
        for _ in range(2):
            load.wait_for(200)
            on.redis.kill()
            told = refused(on.service.schedule("a1", delayTime="1s", id="unknown"))
            assert "repeat with the same id, unknown" in told["detail"]
            refused(on.http.get("/readyz"))
            on.redis.start()
        load.wait_for(200)
    assert 503 in load.statuses
    on.expect_all(load)


def test_a12_scripts_that_are_flushed_under_load_are_loaded_again(unhurried: Rig) -> None:
    on = unhurried
    with on.load("a12") as load:
        for _ in range(20):
            load.wait_for(10)
            on.admin.script_flush()
    assert load.statuses == {200}
    on.expect_all(load)


def test_a14_a_redis_that_is_slow_makes_late_and_piles_nothing_up(on: Rig) -> None:
    worker = Path(f"/proc/{on.service.workers[0].pid}/task")
    with on.load("a14") as load:
        load.wait_for(200)
        threads = len(list(worker.iterdir()))
        connections = on.admin.info("clients")["connected_clients"]
        for seconds in (0.2, 0.5, 2.5, 0.2, 2.5):  # two of them longer than a reply is waited for
            on.admin.execute_command("DEBUG", "SLEEP", seconds)
            load.wait_for(20)
        assert len(list(worker.iterdir())) <= threads + QUEUES
        # A time-out gives its connection up; the server may not have noticed yet.
        eventually(
            lambda: on.admin.info("clients")["connected_clients"] <= connections + 20, "connections do not pile up"
        )
    on.expect_all(load)


BUSY = """
local until_ms = ARGV[1] + redis.call('TIME')[1] * 1000
redis.call('SET', KEYS[1], 'begun')
repeat
  local now = redis.call('TIME')
until now[1] * 1000 + now[2] / 1000 > until_ms
redis.call('SET', KEYS[1], 'ended')
"""


def test_a15_a_script_of_somebody_else_that_keeps_redis_busy_makes_late_and_is_left_alone(on: Rig) -> None:
    on.admin.config_set("busy-reply-threshold", 50)
    other = redis.Redis(port=on.redis.port, socket_timeout=30)
    ended: list[object] = []

    def occupy() -> None:
        ended.append(other.eval(BUSY, 1, "somebody", 3_000))

    with on.load("a15") as load:
        load.wait_for(100)
        busy = threading.Thread(target=occupy, daemon=True)
        busy.start()
        eventually(lambda: on.http.get("/readyz").status_code == 503, "the API says so")
        refused(on.service.schedule("a15", delayTime="1s", id="busy"))
        busy.join(30)
        load.wait_for(100)
    assert ended == [None]
    assert other.get("somebody") == b"ended"  # nobody killed it
    other.close()
    on.expect_all(load)


#: Each takes a Redis that loads 0.1 ms: as long as that nobody is to get through, it is told to go on at once.
ROWS = 200_000


def test_a17_a_redis_that_loads_for_a_while_is_waited_for(on: Rig) -> None:
    filler = on.admin.pipeline(transaction=False)
    for number in range(ROWS):
        filler.set("filler", number)
    filler.execute()
    ids = {topic: on.schedule(topic, 50, delay=500) for topic in ("sink.a17", "a17")}
    on.redis.kill()
    assert on.redis.data_dir is not None
    slow = EmbeddedServer(data_dir=on.redis.data_dir, port=on.redis.port, extra=["--key-load-delay", "100"])
    slow.start(wait=False)
    try:
        loading = redis.Redis(port=slow.port, socket_timeout=30, retry=Retry(NoBackoff(), 0))
        eventually(lambda: is_loading(loading), "it loads")
        refused(on.service.schedule("a17", delayTime="1s", id="loading"))
        refused(on.http.get("/readyz"))
        loading.config_set("key-load-delay", 0)
        loading.close()
        slow.start()
        for topic, accepted in ids.items():
            on.expect(topic, accepted)
    finally:
        slow.stop()


def is_loading(admin: redis.Redis) -> bool:
    """Whether it says that it loads."""
    try:
        admin.ping()
    except redis.exceptions.BusyLoadingError:
        return True
    except redis.exceptions.ConnectionError:
        pass
    return False


def test_a19_rewriting_the_append_only_file_under_load_loses_and_doubles_nothing(unhurried: Rig) -> None:
    on = unhurried
    with on.load("a19", batch=50) as load:
        for _ in range(3):
            load.wait_for(200)
            on.admin.bgrewriteaof()
            eventually(lambda: not on.admin.info("persistence")["aof_rewrite_in_progress"], "it is rewritten")
    assert on.admin.info("persistence")["aof_last_bgrewrite_status"] == "ok"
    assert load.statuses == {200}
    on.expect_all(load)
    on.redis.kill()
    on.redis.start()
    assert on.admin.xlen("a19") >= len(load.accepted["a19"]) - len(load.cancelled | load.in_flight)


def flood(stack: ExitStack, port: int) -> None:
    """Take every connection that the server has to give."""
    for _ in range(2_000):
        one = stack.enter_context(socket.create_connection((LOCALHOST, port), timeout=5))
        one.sendall(b"PING\r\n")
        if b"max number of clients" in one.recv(100):
            return
    raise AssertionError("the server takes everybody in")


def test_a22_a_redis_without_connections_to_give_goes_on_for_those_that_have_one(on: Rig) -> None:
    before = on.admin.config_get("maxclients")["maxclients"]
    with on.load("a22") as load, ExitStack() as stack:
        load.wait_for(100)
        on.admin.config_set("maxclients", 60)
        flood(stack, on.redis.port)
        load.wait_for(200)  # API and worker keep the connections that they have
        with Client(on.redis.url, settings=Settings(redis_timeout=500)) as late, pytest.raises(StoreUnavailable):
            late.schedule(Message(topic="a22", delay_time=0))
        stack.close()
        load.wait_for(100)
        eventually(lambda: can_schedule(on.redis.url), "whoever came too late is let in")
    on.admin.config_set("maxclients", before)
    on.expect_all(load)


def can_schedule(url: str) -> bool:
    with suppress(StoreUnavailable), Client(url, settings=Settings(redis_timeout=500)) as client:
        return client.schedule(Message(topic="a22.late", delay_time=0)).created
    return False


def answers(on: Rig) -> bool:
    """Whether the API lives."""
    with suppress(httpx2.HTTPError):
        return bool(on.http.get("/livez").status_code == 200)
    return False


def test_a22_an_api_that_starts_while_redis_takes_nobody_in_says_so_and_is_ready_later(on: Rig) -> None:
    before = on.admin.config_get("maxclients")["maxclients"]
    with ExitStack() as stack:
        on.service.api.stop()
        on.admin.config_set("maxclients", 60)
        flood(stack, on.redis.port)
        on.service.api.start()
        eventually(lambda: answers(on), "the API answers")
        refused(on.service.schedule("a22", delayTime="1s", id="too-many"))
        refused(on.http.get("/readyz"))
    on.admin.config_set("maxclients", before)
    eventually(on.service.ready, "the API is ready")
