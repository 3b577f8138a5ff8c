"""Redis is full, not to be trusted, busy or without connections to give, or somebody's hand was in it.

An API and a worker node in this process go through it.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from delayq import Client, ConfigError, Message, StoreUnavailable
from delayq.domain.words import counted
from delayq.embedded.processes import LOCALHOST
from delayq.store import scripts
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from tests.api.conftest import in_process
from tests.faults.flow import answered, delayq, refused
from tests.support.nodes import QUEUES, RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.node.duties.alarms import Alarms

HOUR = 3_600_000


@pytest.fixture
def server(valkey: ServerUnderTest) -> Iterator[ServerUnderTest]:
    """A server whose settings are as they were afterwards."""
    names = ("maxmemory", "maxmemory-policy", "maxclients", "busy-reply-threshold")
    before = {name: valkey.admin.config_get(name)[name] for name in names}
    yield valkey
    for name, value in before.items():
        valkey.admin.config_set(name, value)


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks more often."""
    monkeypatch.setattr("workers.node.node.SECOND", 5)
    monkeypatch.setattr("workers.node.node.MINUTE", 100)
    monkeypatch.setattr("workers.node.node.ROUND", 50)


async def post(api: Any, id: str, topic: str = "m.t", delay: int = 0) -> Any:
    """The answer to a call that schedules a message."""
    return await api.post("/v1/messages", json={"topic": topic, "id": id, "delayTime": delay})


async def accept(api: Any, *ids: str, topic: str = "m.t", delay: int = 0) -> None:
    """Schedule messages one after the other, all of which are accepted."""
    for id in ids:
        assert (await post(api, id, topic, delay)).status_code == 201


def watch_of(running: RunningNode) -> Alarms:
    """The alarms of a node, once it has begun its duties."""
    eventually(lambda: running.node.alarms.queues, "it has begun its duties")
    return running.node.alarms


# -- full ----------------------------------------------------------------------------------------------------------------


async def test_a6_a_full_redis_takes_nothing_new_and_empties_itself(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """A6: The answer 507 has `Retry-After`. Scheduling works again once memory is free."""
    settings = settings_for(server.url, target)
    rows = [{"topic": topic, "id": f"{topic}-{n}", "delayTime": 500} for topic in ("m.t", "s.t") for n in range(50)]
    with RunningNode(settings):
        async with in_process(settings) as api:
            far = {"topic": "m.t", "id": "far", "delayTime": HOUR}
            for one in (await api.post("/v1/messages:batch", json={"messages": [*rows, far]})).json()["results"]:
                assert one["status"] == 201
            server.admin.config_set("maxmemory", 1)
            assert "nothing was scheduled" in refused(await post(api, "new"), 507)["detail"]
            several = await api.post("/v1/messages:batch", json={"messages": rows[:2]})
            assert [one["status"] for one in several.json()["results"]] == [507, 507]
            assert (await api.delete("/v1/messages/far")).json()["result"] == "cancelled"
            target.wait_for_ids([f"m.t-{n}" for n in range(50)], PATIENCE)
            eventually(lambda: server.admin.xlen("s.t") == 50, "all of the stream")
            server.admin.config_set("maxmemory", 0)
            await accept(api, "new")
            target.wait_for_ids(["new"], PATIENCE)
    assert Counter(target.ids) == dict.fromkeys([*(f"m.t-{n}" for n in range(50)), "new"], 1)


async def test_a6_a_pause_asks_a_worker_that_has_started_while_redis_is_full(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """A6 (maxmemory reached): New messages get 507.

    Delivery, acks and cancels continue and free memory. Pauses wait for all workers.

    A6: A full Redis accepts the lines of workers, so a pause waits also for a worker that has just started.
    """
    settings = settings_for(server.url, target)
    pause: dict[str, Any] = {"json": {"match": "m.*"}, "params": {"wait": "0"}}
    target.answer("hang", id="hangs")
    async with in_process(settings) as api:
        await accept(api, "hangs", "next")
        server.admin.config_set("maxmemory", 1)
        with RunningNode(settings):
            target.wait_for_hanging(1, PATIENCE)
            asked = (await api.post("/v1/topics:pause", **pause)).json()
            assert asked["state"] == "pausing", "it is being sent"
            target.release()
            while (asked := (await api.post("/v1/topics:pause", **pause)).json())["state"] != "paused":
                assert asked["inFlight"] in (None, 1)
            before = sorted(target.ids)
            await accept_nothing(api)
    assert sorted(target.ids) == before


async def accept_nothing(api: Any) -> None:
    """A full Redis takes no message."""
    refused(await post(api, "new"), 507)


async def test_f9_a_batch_that_is_too_much_in_part_is_answered_one_by_one(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """F9 (batch partly invalid or partly full): A result for each: valid ones are accepted, others get 400 or 507.

    A repeat accepts the rest.
    """
    large = [{"topic": "m.t", "id": f"f9-{n}", "body": "x" * 8_000, "delayTime": HOUR} for n in range(400)]
    async with in_process(settings_for(server.url, target)) as api:
        assert (await api.get("/v1/queues")).status_code == 200
        server.admin.config_set("maxmemory", server.admin.info("memory")["used_memory"] + 2_000_000)
        answer = await api.post("/v1/messages:batch", json={"messages": large})
        first = {one["id"]: one["status"] for one in answer.json()["results"]}
        assert set(first.values()) == {201, 507}
        server.admin.config_set("maxmemory", 0)
        assert (await api.get("/v1/queues")).json()["total"]["depth"] == Counter(first.values())[201]
        answer = await api.post("/v1/messages:batch", json={"messages": large})
        again = {one["id"]: one["status"] for one in answer.json()["results"]}
        assert again == {id: 200 if status == 201 else 201 for id, status in first.items()}


# -- not to be trusted ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("watchful")
async def test_a7_an_eviction_policy_that_is_changed_at_run_time_is_told_and_refused(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """A7: If the policy changes while all run, `/readyz` is 503, `delayq doctor` fails and each worker raises the
    alarm within 5 s.

    Accepted messages are still delivered.
    """
    settings = settings_for(server.url, target)
    with RunningNode(settings) as running:
        async with in_process(settings) as api:
            watch = watch_of(running)
            assert (await api.get("/readyz")).status_code == 200
            await accept(api, "before")
            server.admin.config_set("maxmemory-policy", "allkeys-lru")
            (missing,) = refused(await api.get("/readyz"))["missing"]
            assert "maxmemory-policy is allkeys-lru" in missing
            eventually(lambda: any("allkeys-lru" in text for text in watch.current.values()), "the alarm")
            assert delayq(server.url, "doctor")[0] == 1
            with Client(server.url) as late, pytest.raises(ConfigError, match="maxmemory-policy is allkeys-lru"):
                late.schedule(Message(topic="m.t", delay_time=HOUR))
            error = unstarted(settings_for(server.url, target))
            assert "maxmemory-policy is allkeys-lru" in str(error)
            await accept(api, "during")
            target.wait_for_ids(["before", "during"], PATIENCE)
            server.admin.config_set("maxmemory-policy", "noeviction")
            eventually(lambda: not watch.current, "the end of the alarm")
            assert (await api.get("/readyz")).status_code == 200


def unstarted(settings: Any) -> BaseException | None:
    """Why a node does not start."""
    running = RunningNode(settings, wait=False)
    running.start()
    return running.wait_for_the_end()


def test_a8_scripts_that_a_full_redis_would_stop_are_refused_at_the_start(
    server: ServerUnderTest, target: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8 (a script without its flag for a full Redis): API and worker check their scripts and refuse to start."""
    source, settings = scripts.source, settings_for(server.url, target)
    scripts.load.cache_clear()

    def without_flag(name: str) -> str:
        return source(name).replace("-- @flags allow-oom\n", "") if name == "ack" else source(name)

    monkeypatch.setattr(scripts, "source", without_flag)
    try:
        error = unstarted(settings)
        assert isinstance(error, ConfigError)
        assert "a full Redis would refuse ack" in str(error)
        with Client(settings=settings) as client, pytest.raises(ConfigError, match="a full Redis would refuse ack"):
            client.schedule(Message(topic="m.t", delay_time=HOUR))
    finally:
        monkeypatch.undo()
        scripts.load.cache_clear()


# -- busy, or full of connections ----------------------------------------------------------------------------------------


async def test_a15_a_script_of_somebody_else_that_keeps_redis_busy_makes_late_and_is_left_alone(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    settings, ended = settings_for(server.url, target), list[BaseException]()
    server.admin.config_set("busy-reply-threshold", 20)

    def occupy() -> None:
        with redis.Redis.from_url(server.url) as other:
            try:
                other.eval("while true do end", 0)
            except redis.exceptions.ResponseError as error:
                ended.append(error)

    with RunningNode(settings):
        async with in_process(settings) as api:
            await accept(api, "a", delay=200)
            busy = threading.Thread(target=occupy)
            busy.start()
            await answered(api, "/readyz", 503)
            refused(await post(api, "b"))
            assert ended == []
            assert server.admin.script_kill(), "nobody else has killed it"
            busy.join()
            await accept(api, "b")
            target.wait_for_ids(["a", "b"], PATIENCE)
    assert Counter(target.ids) == {"a": 1, "b": 1}


def flood(stack: ExitStack, port: int) -> None:
    """Take every connection that the server has to give."""
    for _ in range(2_000):
        one = stack.enter_context(socket.create_connection((LOCALHOST, port), timeout=PATIENCE))
        one.sendall(b"PING\r\n")
        if b"max number of clients" in one.recv(100):
            return
    raise AssertionError("the server takes everybody in")


async def test_a22_a_redis_without_connections_to_give_goes_on_for_those_that_have_one(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """A22 (too many clients (`maxclients`)): API and workers keep their connections.

    Others get 503 or wait until there is room.
    """
    settings, ids = settings_for(server.url, target), [f"a22-{number}" for number in range(50)]
    async with in_process(settings) as api, in_process(settings) as late:
        with ExitStack() as stack, RunningNode(settings):
            assert (await api.get("/readyz")).status_code == 200
            server.admin.config_set("maxclients", 60)
            flood(stack, server.port)
            await accept(api, *ids)
            target.wait_for_ids(ids, PATIENCE)
            with Client(settings=settings) as client, pytest.raises(StoreUnavailable):
                client.schedule(Message(topic="m.t", delay_time=0))
            refused(await late.get("/readyz"))
            refused(await post(late, "late"))
        with ExitStack() as stack:
            flood(stack, server.port)
            waits = RunningNode(settings, wait=False)
            waits.start()
            assert not waits.node.ready
            stack.close()
            waits.wait_until_ready()
        await accept(late, "late")
        target.wait_for_ids(["late"], PATIENCE)
        waits.stop()


# -- hands in Redis ------------------------------------------------------------------------------------------------------


async def test_a16_deleted_messages_are_noticed_until_written_off_and_a_flush_until_a_restart(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    settings = settings_for(server.url, target)
    with RunningNode(settings):
        async with in_process(settings) as api:
            await accept(api, *(f"a16-{n}" for n in range(20)), topic="s.t", delay=HOUR)
            assert (await api.get("/readyz")).status_code == 200
            pool = KEYS.queue((await api.get("/v1/messages/a16-0")).json()["queue"]).pool
            gone = server.admin.hlen(pool)
            server.admin.delete(pool)
            missing = await unready(api)
            assert missing.startswith(f"{counted(gone, 'message is', 'messages are')} missing from queue ")
            status, text = delayq(server.url, "doctor")
            assert (status, f"{counted(gone, 'message is', 'messages are')} missing from queue " in text) == (1, True)
            assert f"wrote off {counted(gone, 'message', 'messages')}" in delayq(server.url, "doctor", "--repair")[1]
            await answered(api, "/readyz", 200)
            server.admin.flushall()
            assert (await unready(api)).startswith(
                f"{QUEUES} queues (0 and others) are not what this process has seen before"
            )
    async with in_process(settings) as api:
        assert (await api.get("/readyz")).status_code == 200


async def unready(api: Any) -> str:
    """The one thing that an API misses, once it has noticed."""
    (missing,) = refused(await answered(api, "/readyz", 503))["missing"]
    return str(missing)


@pytest.mark.usefixtures("watchful")
def test_a16_a_worker_notices_what_is_gone_and_gives_tickets_back(
    server: ServerUnderTest, target: MemoryTarget
) -> None:
    """A16: Deleted tickets return by themselves; deleted records are gone."""
    settings = settings_for(server.url, target)
    with RunningNode(settings) as running, Client(settings=settings) as client:
        watch = watch_of(running)
        ids = [client.schedule(Message(topic="m.t", id=f"{n}.0000", delay_time=1_000)).id for n in range(20)]
        server.admin.delete(KEYS.queue(0).queue)
        target.wait_for_ids(ids, PATIENCE)
        assert watch.current == {}
        client.schedule(Message(topic="m.t", id="lost.0001", delay_time=HOUR))
        server.admin.delete(KEYS.queue(1).pool)
        eventually(lambda: watch.missing == 1, "a message is missing")
        server.admin.flushall()
        eventually(lambda: "gone" in watch.current, "all is gone")
    assert sorted(target.ids) == sorted(ids)
