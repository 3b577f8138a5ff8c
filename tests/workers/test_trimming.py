"""Which streams a worker trims, and when: topics that it delivers to, idle ones, and those of other workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import pytest

from delayq.base.errors import StoreError, StoreFull, StoreUnavailable
from delayq.client.client import Client
from delayq.domain.message import Message
from delayq.domain.policies import Policies, Policy
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Command, GroupRecord
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from delayq.testing.memory_target import MemoryTarget
from tests.support.nodes import QUEUES as NODE_QUEUES
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.node.duties import trimming
from workers.node.duties.trimming import FEWEST, StreamTrimmer
from workers.queue.queue_context import CurrentPolicies

T = TypeVar("T")
QUEUES = (16, 17, 18)
ENTRIES, RUNS, PAGE = 2 * FEWEST, 3, 20
KEEP_ONE = Policy(name="one", match="*", retention_length=1, retention_force=True)


@dataclass
class Names:
    names: list[str] = field(default_factory=list)


@dataclass
class Job:
    """Stands for a pull job: the topics that it knows."""

    topics: Names = field(default_factory=Names)


class Failing(Store):
    """A store that counts its requests. It answers scripts and commands of `errors` by these errors."""

    errors: dict[str, StoreError]
    asked: Counter[str]

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout=PATIENCE)
        self.errors, self.requests, self.asked = {}, 0, Counter[str]()

    def run_many(self, commands: Iterable[Command[T]]) -> list[T | StoreError]:
        self.requests += 1
        asked = list(commands)
        self.asked.update(one.script or str(one.args[0]) for one in asked)
        answers = super().run_many(asked)
        return [
            next((error for name, error in self.errors.items() if name in (one.script, *one.keys, *one.args)), answer)
            for one, answer in zip(asked, answers, strict=True)
        ]

    def run(self, command: Command[T]) -> T:
        (answer,) = self.run_many([command])
        if isinstance(answer, StoreError):
            raise answer
        return answer


class World:
    """Streams in Redis, and workers that trim them by the same policies."""

    def __init__(self, server: ServerUnderTest, *routes: Route) -> None:
        self.server, self.store = server, Failing(server.url)
        self.routes = Routes(routes or None)
        self.policies = CurrentPolicies()
        self.jobs: dict[int, Job] = {QUEUES[0]: Job(), QUEUES[2]: Job()}

    def put(self, *policies: Policy) -> None:
        version = str(int(self.policies.current.version or 0) + 1)
        self.policies.current = Policies(version, policies={one.name: one for one in policies})

    def worker(self, jobs: dict[int, Job] | None = None) -> StreamTrimmer:
        here: Any = self.jobs if jobs is None else jobs
        return StreamTrimmer(self.store, QUEUES, self.policies, self.routes, self.server.url, lambda: here, lambda: 7)

    def append(self, *streams: str, count: int = 3) -> None:
        pipeline = self.server.admin.pipeline(transaction=False)
        for stream in streams:
            for _ in range(count):
                pipeline.xadd(stream, {"id": "x", "topic": "x"})
        pipeline.execute()

    def lengths(self, *streams: str) -> list[int]:
        return [self.server.admin.xlen(stream) for stream in streams]

    @property
    def remembered(self) -> set[str]:
        return {name.decode() for name in self.server.admin.hkeys(KEYS.trimmed)}


def passes(worker: StreamTrimmer, rounds: int = 6) -> None:
    worker.begin()
    for _ in range(rounds):
        worker.go_on()


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short streams take several rounds."""
    for name, value in (("ENTRIES", ENTRIES), ("RUNS", RUNS), ("PAGE", PAGE)):
        monkeypatch.setattr(trimming, name, value)


@pytest.fixture
def world(valkey: ServerUnderTest) -> World:
    return World(valkey)


def test_without_a_retention_nothing_is_noted_and_nothing_is_asked(world: World) -> None:
    for policies in ((), (Policy(name="rate", match="*", rate=5),)):
        world.put(*policies)
        world.jobs[16].topics.names = ["a"]
        worker = world.worker()
        worker.note(["b"])
        passes(worker)
    assert (world.store.requests, world.remembered) == (0, set())


def test_topics_in_use_and_idle_ones_are_trimmed_also_by_the_next_worker(world: World) -> None:
    world.put(KEEP_ONE)
    worker = world.worker()
    world.jobs[16].topics.names = ["known"]
    worker.note(["sent"])
    world.append("known", "sent", "other")
    passes(worker)
    assert world.lengths("known", "sent", "other") == [1, 1, 3], "delayq delivered nothing to the other stream"
    assert world.remembered == {"known", "sent"}
    world.append("known", "sent")
    world.jobs = {16: Job()}
    passes(world.worker())
    assert world.lengths("known", "sent", "other") == [1, 1, 3]


def test_a_topic_that_a_policy_names_needs_no_delivery(world: World) -> None:
    world.put(Policy(name="one", match="old", retention_length=1, retention_force=True))
    world.append("old", "older")
    passes(world.worker())
    assert world.lengths("old", "older") == [1, 3]


def test_a_topic_with_a_consumer_group_needs_no_delivery(world: World) -> None:
    world.put(KEEP_ONE)
    world.store.run(commands.record_group(KEYS, GroupRecord(topic="old", group="mail", stream="old")))
    world.append("old", "older")
    passes(world.worker())
    assert world.lengths("old", "older") == [1, 3]


def test_a_record_of_a_group_that_somebody_else_wrote_keeps_no_other_stream_from_its_trims(world: World) -> None:
    world.put(Policy(name="one", match="*", retention_length=0))
    for topic in ("a", "b"):
        world.append(topic)
        world.server.admin.xgroup_create(topic, "other", "$")
    world.jobs[16].topics.names = ["a", "b"]
    world.server.admin.hset(KEYS.groups, mapping={"junk": "1", "b mail b": "junk"})
    passes(world.worker())
    assert world.lengths("a", "b") == [0, 3], "the record names a group that the stream does not have"


def test_a_recorded_group_keeps_the_entries_of_a_stream_that_does_not_have_it_yet(valkey: ServerUnderTest) -> None:
    world = World(valkey, Route(name="streams", per_queue=True))
    world.put(Policy(name="one", match="*", retention_length=0))
    streams = [KEYS.queue(queue).stream("a") for queue in QUEUES]
    world.jobs[16].topics.names = ["a", "b"]
    world.append(*streams, KEYS.queue(16).stream("b"))
    for stream in (*streams, KEYS.queue(16).stream("b")):
        valkey.admin.xgroup_create(stream, "other", "$")
    valkey.admin.xgroup_create(streams[0], "mail", "$")
    world.store.run(commands.record_group(KEYS, GroupRecord(topic="a", group="mail", stream="a", queues=(16, 16))))
    passes(world.worker())
    assert world.lengths(*streams, KEYS.queue(16).stream("b")) == [0, 3, 3, 0]


def test_a_group_that_is_recorded_during_a_pass_keeps_what_arrives_after_its_first_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(Policy(name="one", match="*", retention_length=0))
    world.jobs[16].topics.names = ["a"]
    world.append("a")
    world.server.admin.xgroup_create("a", "other", "$")
    real, reads = world.store.run, count()

    def run(command: Command[Any]) -> Any:
        answer = real(command)
        if command.args[0] == "HGETALL" and next(reads) == 1:  # the second one is for the stream
            real(commands.record_group(KEYS, GroupRecord(topic="a", group="mail", stream="a")))
            world.append("a", count=1)
            world.server.admin.xgroup_setid("a", "other", "$")
        return answer

    monkeypatch.setattr(world.store, "run", run)
    passes(world.worker())
    assert world.lengths("a") == [1]


def test_a_topic_without_a_stream_is_forgotten_and_noted_again_at_its_next_use(world: World) -> None:
    world.put(KEEP_ONE)
    worker = world.worker()
    worker.note(["a"])
    passes(worker)
    assert world.remembered == set()
    world.jobs[16].topics.names = ["a"]
    world.append("a")
    passes(worker)
    assert (world.remembered, world.lengths("a")) == ({"a"}, [1])


def test_only_the_owner_of_the_first_queue_trims_and_all_workers_note(world: World) -> None:
    world.put(KEEP_ONE)
    other = world.worker({17: Job(Names(["a"]))})
    world.append("a", count=ENTRIES * RUNS * 2)
    passes(other)
    assert world.lengths("a") == [ENTRIES * RUNS * 2]
    owner = world.worker()
    passes(owner, 1)
    assert 1 < world.lengths("a")[0] < ENTRIES * RUNS * 2
    jobs = dict(world.jobs)
    world.jobs.clear()
    left = world.lengths("a")
    owner.go_on()
    assert world.lengths("a") == left, "it does not own the queue any longer"
    passes(world.worker(jobs))
    assert world.lengths("a") == [1]


def test_a_round_is_bounded_and_a_long_stream_keeps_no_other_waiting(world: World) -> None:
    world.put(KEEP_ONE)
    short = [f"t{n}" for n in range(2 * PAGE)]
    world.jobs[16].topics.names = ["long", *short]
    world.append("long", count=3_000)
    world.append(*short)
    worker = world.worker()
    worker.begin()
    while (before := sum(world.lengths(*short, "long"))) > len(short) + 1:
        worker.go_on()
        removed = before - sum(world.lengths(*short, "long"))
        assert 0 < removed <= RUNS * FEWEST * 16
        if set(world.lengths(*short)) != {1}:
            assert world.lengths("long")[0] > 1, "the short streams waited for the long one"


def test_a_policy_that_is_new_begins_a_pass_and_one_that_is_gone_ends_it(world: World) -> None:
    worker = world.worker()
    assert not worker.has_news()
    world.put(KEEP_ONE)
    assert worker.has_news()
    worker.begin()
    assert not worker.has_news()
    world.append("a")
    worker.note(["a"])
    world.put()
    assert worker.has_news()
    passes(worker)
    assert world.lengths("a") == [3]


def test_a_route_with_a_stream_for_each_queue_has_all_of_them_trimmed(valkey: ServerUnderTest) -> None:
    world = World(valkey, Route(name="streams", per_queue=True, stream="s-{topic}"))
    world.put(KEEP_ONE)
    streams = [KEYS.queue(queue).stream("s-a") for queue in (3, *QUEUES)]
    world.append(*streams[:3])
    world.jobs[16].topics.names = ["a", "none"]
    passes(world.worker())
    assert world.lengths(*streams) == [1, 1, 1, 0], "a queue of an earlier layout has a stream, too"
    assert world.remembered == {"a"}


@pytest.mark.parametrize(
    ("policies", "trimmed"),
    [
        ((KEEP_ONE,), True),
        ((Policy(name="all", match="orders.*", retention_length=1, retention_force=True),), True),
        ((Policy(name="some", match="orders.a", retention_length=1, retention_force=True),), False),
        ((Policy(name="first", match="orders.b", order=1, rate=1), KEEP_ONE), False),
    ],
)
def test_a_stream_of_several_topics_is_trimmed_only_if_all_of_them_have_one_policy(
    valkey: ServerUnderTest, policies: Sequence[Policy], trimmed: bool
) -> None:
    world = World(valkey, Route(name="orders", match="orders.*", stream="all"))
    world.put(*policies)
    world.jobs[16].topics.names = ["orders.a"]
    world.append("all")
    passes(world.worker())
    assert world.lengths("all") == [1 if trimmed else 3]


def test_only_streams_of_delayqs_own_redis_are_trimmed(valkey: ServerUnderTest) -> None:
    there = Route(name="there", match="there.*", target="redis+stream://redis.example:6379")
    world = World(valkey, there, Route(name="kafka", match="kafka.*", target="kafka://k:9092"))
    world.put(KEEP_ONE)
    topics = ["there.a", "kafka.a", "none.a"]
    world.jobs[16].topics.names = topics
    world.append(*topics)
    passes(world.worker())
    assert (world.lengths(*topics), world.remembered) == ([3, 3, 3], set())


def test_a_stream_that_cannot_be_trimmed_keeps_no_other_from_it(
    world: World,
) -> None:
    world.put(KEEP_ONE)
    world.jobs[16].topics.names = ["a", "b", "c"]
    world.append("a", "c")
    world.server.admin.set("b", "text")
    worker = world.worker()
    passes(worker)
    assert world.lengths("a", "c") == [1, 1]
    assert world.remembered == {"a", "b", "c"}


def test_a_lost_reply_ends_the_pass_and_the_next_one_trims_what_is_left(world: World) -> None:
    world.put(KEEP_ONE)
    worker = world.worker()
    world.jobs[16].topics.names = ["a"]
    world.append("a", count=ENTRIES * 3)
    worker.begin()
    world.store.errors["trim"] = StoreUnavailable("the reply is lost")
    with pytest.raises(StoreUnavailable):
        worker.go_on()
    world.store.errors.clear()
    worker.go_on()
    passes(worker)
    assert world.lengths("a") == [1]


def test_a_full_redis_that_remembers_no_topic_is_trimmed_all_the_same(world: World) -> None:
    world.put(KEEP_ONE)
    world.jobs[16].topics.names = ["a"]
    world.append("a")
    world.store.errors["HSET"] = StoreFull("no memory")
    worker = world.worker()
    passes(worker)
    assert (world.lengths("a"), world.store.asked["HSET"]) == ([1], 1)


@pytest.mark.parametrize("route", ["auto", "general", "per queue"])
def test_a_worker_trims_what_all_groups_have_acknowledged(valkey: ServerUnderTest, route: str) -> None:
    table = [
        {"name": "streams", "path": "general"}
        if route == "general"
        else {"name": "streams", "perQueue": route != "auto"}
    ]
    settings = settings_for(valkey.url, MemoryTarget(), routes=json.dumps(table))
    streams = (
        [KEYS.queue(queue).stream("orders") for queue in range(NODE_QUEUES)] if route == "per queue" else ["orders"]
    )
    admin = valkey.admin

    def left() -> list[int]:
        return [admin.xlen(stream) for stream in streams]

    with Client(settings=settings) as client, RunningNode(settings):
        client.schedule_many([Message(topic="orders", delay_time=0, id=f"m{n}") for n in range(40)])
        eventually(lambda: sum(left()) == 40, "all are delivered")
        for stream in streams:
            admin.xgroup_create(stream, "mail", "0")
            ((_, entries),) = admin.xreadgroup("mail", "one", {stream: ">"}, count=6)
            admin.xack(stream, "mail", *[id for id, _ in entries[:4]])
        expected = [length - 4 for length in left()]
        client.put_policy(Policy(name="short", match="orders*", retention_length=1))
        eventually(lambda: left() == expected, "acknowledged entries are trimmed")
