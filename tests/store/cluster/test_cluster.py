"""A real Redis Cluster: every script, and everything that a client and a worker do."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing

import pytest

from delayq import AsyncClient, Client, ConfigError, Filter, Message, NotDurable, Settings, StoreError, StoreUnavailable
from delayq.base.clock import SystemClock
from delayq.base.errors import WrongRedis
from delayq.cli.commands.tail import tail
from delayq.cli.options import BadUse
from delayq.client.audit import By, entry_of
from delayq.client.changing.messages import Cancelled
from delayq.client.looking.counting import Counted
from delayq.client.scheduling.schedule import Scheduled
from delayq.doctor import examine
from delayq.domain.codec import encode
from delayq.domain.message import Limits
from delayq.domain.policies import Policy
from delayq.domain.routes import Route, Routes
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import checks, commands
from delayq.store.commands import Change, Known, Retention
from delayq.store.connect.async_arrivals import AsyncArrivals, newest
from delayq.store.connect.async_store import AsyncStore
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.targets import open_target
from delayq.testing import MemoryTarget
from tests.store.test_repeats import CASES
from tests.support.clusters import QUEUES, ClusterUnderTest, id_in
from tests.support.nodes import RunningNode, settings_for
from tests.support.queues import Queue, Runner, row
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.sending.message import InFlightMessage

HOUR = 3_600_000


# -- retention -----------------------------------------------------------------------------------------------------------


def test_a_worker_trims_streams_on_every_primary(cluster: ClusterUnderTest, client: Client) -> None:
    table = [{"name": "queues", "match": "q.*", "perQueue": True}, {"name": "streams"}]
    settings = settings_for(cluster.url, MemoryTarget(), queues=QUEUES, routes=json.dumps(table))
    topics = [*(f"t{n}" for n in range(6)), "q.a"]
    streams = [*topics[:6], *(KEYS.queue(queue).stream("q.a") for queue in range(QUEUES))]

    def lengths() -> list[int]:
        return client.store.run_all(commands.plain("XLEN", stream, read=int) for stream in streams)

    client.schedule_many([Message(topic=topic, delay_time=0, id=f"{topic}-{n}") for topic in topics for n in range(40)])
    with RunningNode(settings):
        eventually(lambda: sum(lengths()) == 40 * len(topics), "all are delivered")
        client.put_policy(Policy(name="short", match="*", retention_length=1, retention_force=True))
        eventually(lambda: max(lengths()) == 1, "every stream is trimmed")


# -- what an operator looks at -------------------------------------------------------------------------------------------


def test_what_is_wrong_and_who_changed_what_is_gathered_from_every_primary(
    cluster: ClusterUnderTest, client: Client
) -> None:
    client.schedule_many([Message(topic="t", delay_time=HOUR, id=f"m{number}") for number in range(100)])
    by = By(actor="night shift")
    assert {one.result for one in client.cancel_many([f"m{number}" for number in range(60)], by=by)} == {"cancelled"}
    pause = [Change("pause:t", "{}")]
    client.store.run(commands.set_policies(KEYS, pause, maker="0000000001", entry=entry_of(by, "pause", Retention())))
    entries = client.audit(1_000).entries
    assert sorted(one.id for entry in entries for one in entry.change.messages) == sorted(f"m{n}" for n in range(60))
    assert sorted((str(one.queue), one.change.count, one.change.detail) for one in entries) == [
        ("None", 0, "pause:t {}"),
        ("None", 60, ""),  # one act, on every primary
    ]
    assert client.overview().scheduled == 40
    assert {one.code for one in client.status()} >= {"owners"}
    assert client.dead_groups().complete


# -- what a client does --------------------------------------------------------------------------------------------------


def test_messages_live_on_every_primary_and_are_found_searched_and_counted(
    cluster: ClusterUnderTest, client: Client
) -> None:
    due = SystemClock().now() + HOUR
    ids = [f"m{number}" for number in range(300)]
    outcomes = client.schedule_many(
        Message(topic="t", expect_date=due + number, id=id, keys=("all", f"k{number % 7}"))
        for number, id in enumerate(ids)
    )
    assert all(isinstance(one, Scheduled) and one.created for one in outcomes)
    assert all(one.admin.dbsize() for one in cluster.primaries)
    assert [one.id for one in client.get_many(ids) if one] == ids
    assert len(client.find("all")) == 300
    assert sum(one.scheduled for one in client.queues()) == 300
    page = client.search(limit=70)
    searched = [one.id for one in page.messages]
    while page.next_token is not None:
        page = client.search(limit=70, token=page.next_token)
        searched += [one.id for one in page.messages]
    assert searched == ids
    assert client.count(Filter(due_from=due + 10)) == Counted(290, exact=True)
    assert client.forecast(due, due + 2_000, 1_000).messages == [300, 0]
    assert {one.result for one in client.cancel_by_key("k3")} == {"cancelled"}
    assert len(client.find("all")) == 300 - len(range(3, 300, 7))
    assert client.reschedule("m0", delay_time=2 * HOUR).result == "scheduled"


def test_every_script_runs_with_all_its_keys_in_one_slot(cluster: ClusterUnderTest, store: Runner) -> None:
    for script, outcomes in CASES.items():
        cluster.flush()
        command = next(iter(outcomes.values())).call(Queue(store, cluster))
        assert command.script == script
        (answer,) = store.run_many([command])
        assert not isinstance(answer, StoreError), f"{script}: {answer}"


def test_each_primary_is_checked(cluster: ClusterUnderTest, client: Client, store: Runner) -> None:
    client.schedule_many(Message(topic="t", delay_time=HOUR) for _ in range(50))
    examined = {check.name: check for check in examine(client.store, Settings(), SystemClock())}
    assert {name: check.result for name, check in examined.items() if check.result != "ok"} == {"owners": "fail"}
    assert "3 primaries" in examined["server"].text
    found = store.run(checks.server())
    assert (found.primaries, found.policy, found.replicas, found.role) == (3, "noeviction", 1, "master")
    odd = cluster.primaries[1]
    odd.admin.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigError, match="allkeys-lru on one of the 3 primaries"):
            checks.refuse(store.run(checks.server()))
    finally:
        odd.admin.config_set("maxmemory-policy", "noeviction")


def test_nobody_there_is_unavailable_and_a_server_that_is_in_no_cluster_is_told(valkey: ServerUnderTest) -> None:
    for url, kind, told in (
        (f"redis+cluster://{LOCALHOST}:{free_port()}", StoreUnavailable, "no server of the Redis Cluster answers"),
        (valkey.url.replace("redis://", "redis+cluster://"), WrongRedis, "is a single Redis server; use redis://"),
    ):
        with closing(Store(url, timeout=PATIENCE)) as store, pytest.raises(kind, match=told):
            store.run(commands.layout(KEYS, QUEUES))


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_change_is_confirmed_by_the_replicas_of_each_primary(cluster: ClusterUnderTest, replicas: int) -> None:
    settings = Settings(redis_url=cluster.url, queues=QUEUES, min_replicas=replicas, redis_timeout=REDIS_TIMEOUT)

    def impatient(store: Store | AsyncStore) -> None:
        """For what nobody confirms it waits but a little."""
        assert store.durability is not None
        if replicas == 2:
            store.durability.timeout = 500

    messages = [Message(topic="t", delay_time=HOUR, id=f"m{number}") for number in range(200)]
    wanted = {Scheduled} if replicas == 1 else {NotDurable}  # each has one
    with Client(settings=settings) as client:
        client.context()
        impatient(client.store)
        assert {type(one) for one in await asyncio.to_thread(client.schedule_many, messages)} == wanted
    async with AsyncClient(settings=settings) as other:
        await other.context()
        impatient(other.store)
        assert {type(one) for one in await other.schedule_many(messages)} == wanted
        assert {type(one) for one in await other.cancel_many([f"m{number}" for number in range(50)])} == (
            {Cancelled} if replicas == 1 else wanted
        )


# -- streams and workers -------------------------------------------------------------------------------------------------


def test_a_pull_appends_to_the_queues_own_stream_exactly_once(cluster: ClusterUnderTest, store: Runner) -> None:
    q = Queue(store, cluster)
    q.given(row("a", at=20_000), row("b", at=20_000, topic="mail"))
    known = [Known("orders", "orders", None, True), Known("mail")]
    assert [q.pull(now=20_000, known=known).appended for _ in range(2)] == [1, 0]
    assert [entry["id"] for entry in q.stream(q.keys.stream("orders"))] == ["a"]
    assert q.ack(*q.take()) == (True, 1)
    cluster.admin.set(q.keys.stream("orders"), "no stream")
    cluster.admin.delete(q.keys.stream("orders"))
    cluster.admin.set(q.keys.stream("orders"), "no stream")
    q.given(row("c", at=20_000))
    assert list(q.pull(now=20_000, known=known).refused) == ["orders"]


def test_a_worker_delivers_by_every_way_and_holds_what_is_paused(cluster: ClusterUnderTest) -> None:
    target = MemoryTarget()
    settings = settings_for(cluster.url, target, queues=QUEUES, redis_timeout=REDIS_TIMEOUT)
    routes = [*json.loads(settings.routes)[:1], {"name": "own", "match": "own.*", "perQueue": True}, {"name": "rest"}]
    settings = settings.replace(routes=json.dumps(routes), retry_base=20)
    target.answer("unavailable", topic="m.x", times=1)
    target.answer("rejected", topic="m.bad", reason="never")

    def arrived(topic: str) -> set[str]:
        return {one.id for one in target.deliveries if one.topic == topic}

    def entries(stream: str) -> list[str]:
        return [entry[b"id"].decode() for _, entry in cluster.admin.xrange(stream)]

    with RunningNode(settings), Client(settings=settings) as client:
        assert client.pause("m.p", wait=20_000).state == "paused"
        ids = {
            topic: {id_in(queue, f"{topic}-{queue}") for queue in range(QUEUES)}
            for topic in ("m.p", "m.x", "m.bad", "own.orders", "general.orders")
        }
        for topic, wanted in ids.items():
            outcomes = client.schedule_many(Message(topic=topic, delay_time=0, id=id) for id in wanted)
            assert all(isinstance(outcome, Scheduled) for outcome in outcomes)
        eventually(lambda: client.topic("m.p").held == QUEUES, "it is held on every primary")
        eventually(lambda: sum(one.scheduled for one in client.queues()) == 0, "the rest is delivered or dead")
        letters = client.dead_letters().letters
        assert {one.id for one in letters} == ids["m.bad"]
        assert client.redrive([letters[0].id]) == ["scheduled"]
        assert sorted(entries("general.orders")) == sorted(ids["general.orders"])
        for queue in range(QUEUES):
            assert entries(KEYS.queue(queue).stream("own.orders")) == [id_in(queue, f"own.orders-{queue}")]
        assert (arrived("m.x"), arrived("m.p")) == (ids["m.x"], set())
        assert client.resume("m.p").held == QUEUES
        eventually(lambda: arrived("m.p") == ids["m.p"], "all of it arrives")


def test_a_group_of_the_streams_of_all_primaries_is_listed_and_deleted(cluster: ClusterUnderTest) -> None:
    routes = Routes([Route(name="own", match="own.*", per_queue=True), Route(name="rest")])
    settings = Settings(redis_url=cluster.url, queues=QUEUES, redis_timeout=REDIS_TIMEOUT)
    with Client(settings=settings, routes=routes) as client:
        for topic, streams in (
            ("own.orders", [KEYS.queue(queue).stream("own.orders") for queue in range(QUEUES)]),
            ("mail", ["mail"]),
        ):
            for stream in streams:
                cluster.admin.xadd(stream, {"id": "m", "topic": topic, "body": "b", "due": "1000"})
            client.receive(topic, group="g", max=2 * QUEUES)
        mail, own = client.consumers()
        assert [(one.topic, one.lag, one.leased) for one in (mail, own)] == [
            ("mail", 1, 1),
            ("own.orders", QUEUES, QUEUES),
        ]
        assert [client.delete_group("own.orders", "g").changed for _ in range(2)] == [True, False]
        assert [one.topic for one in client.consumers()] == ["mail"]
        assert len(client.receive("own.orders", group="g", max=2 * QUEUES)) == QUEUES


async def test_new_entries_of_streams_on_all_primaries_are_found_by_the_newest_of_each(
    cluster: ClusterUnderTest,
) -> None:
    """A caller may have received an earlier entry meanwhile."""
    streams, last = [KEYS.queue(queue).stream("orders") for queue in range(QUEUES)], dict[str, str]()

    def wanted() -> dict[str, str]:
        after = dict.fromkeys(streams, newest(1))
        for stream in streams[1:]:
            after[stream] = cluster.admin.xadd(stream, {"id": "a"}).decode()
            last[stream] = cluster.admin.xadd(stream, {"id": "b"}).decode()
        return after

    store = AsyncStore(cluster.url, timeout=PATIENCE)
    arrivals = AsyncArrivals(store)
    assert await arrivals.newer(wanted, 1) == last
    assert await arrivals.newer(lambda: last, 1) == {}
    await store.close()


def test_the_target_appends_each_stream_on_its_own_primary(cluster: ClusterUnderTest) -> None:
    target = open_target(Route(name="r"), cluster.url)
    topics = [f"orders.{number}" for number in range(30)]
    cluster.admin.set("wrong", "no stream")
    batch = [delivery(topic, topic) for topic in [*topics, "wrong"]]
    assert [one.outcome for one in target.send(batch, PATIENCE)] == ["ok"] * 30 + ["rejected"]
    assert [cluster.admin.xlen(topic) for topic in topics] == [1] * 30
    assert all(one.admin.dbsize() for one in cluster.primaries)
    target.close()


def delivery(id: str, topic: str) -> InFlightMessage:
    """A pulled message of this topic."""
    content = encode(Message(topic=topic, delay_time=0, body="x"), Limits())
    return InFlightMessage(id.encode() + b"\x000000001", 20_000, 0, b"0000001%013d0" % 20_000 + content)


def test_tail_refuses_a_topic_of_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "own", "match": "*", "perQueue": true}]')
    with pytest.raises(BadUse, match=r"one stream in each queue; .*delayq:\{0\}:stream:orders"):
        tail("orders", redis_url="redis://127.0.0.1:1")
