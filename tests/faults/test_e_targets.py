"""What goes wrong with targets, as far as it is the worker's: each broker's own faults are in tests/targets/."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import generate_latest

from delayq import Client, Message, Scheduled
from delayq.base.times import EARLIEST
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget, register_memory_target
from tests.support.nodes import RunningNode
from tests.support.receiver import Answer, Receiver, Request
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.node.duties.alarms import Alarms
from workers.telemetry.metrics import Metrics

STREAMS: dict[str, Any] = {"name": "streams", "match": "s.*"}


class Running:
    """A node, a client of the same Redis, and what a test looks at."""

    def __init__(self, client: Client, node: RunningNode, metrics: Metrics) -> None:
        self.client = client
        self.node = node.node
        self._metrics = metrics

    def schedule(self, topic: str, count: int, name: str = "m", **fields: Any) -> list[str]:
        """Messages that are due now, one after the other; their ids."""
        messages = [
            Message(topic=topic, id=f"{name}{number}", body=str(number), expect_date=EARLIEST + number, **fields)
            for number in range(count)
        ]
        accepted = [one for one in self.client.schedule_many(messages) if isinstance(one, Scheduled)]
        assert len(accepted) == count
        return [one.id for one in accepted]

    def parked(self) -> int:
        """How many are parked."""
        return sum(queue.parked for queue in self.client.queues())

    def pending(self) -> int:
        """How many have not ended; dead letters have."""
        return sum(queue.parked + queue.scheduled for queue in self.client.queues())

    def drained(self) -> None:
        """Until all have ended."""
        eventually(lambda: self.pending() == 0, "every message has ended")

    def attempts(self, ids: list[str]) -> Counter[int]:
        """How many attempts were burnt, by how many messages."""
        return Counter(found.attempts for found in self.client.get_many(ids) if found is not None)

    def watch(self) -> Alarms:
        """The alarms of the node, after another look at all queues."""
        self.node.alarms.look_at_queues()
        return self.node.alarms

    def metric(self, name: str) -> float:
        """The value of a metric; `name` with its labels."""
        lines = generate_latest(self._metrics.registry).decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


@contextmanager
def running(server: ServerUnderTest, *routes: Mapping[str, Any], **given: Any) -> Iterator[Running]:
    """A node with these routes."""
    values: dict[str, Any] = {"queues": 2, "redis_timeout": REDIS_TIMEOUT, "retry_base": 20, "retry_cap": 100}
    values |= {"redis_url": server.url, "routes": json.dumps(routes), "egress_allow": "127.0.0.0/8"}
    settings = load_settings(**{**values, **given})
    metrics = Metrics()
    node = RunningNode(settings)
    node.node._observer = metrics
    with node, Client(settings=settings) as client:
        metrics.watch(node.node)
        yield Running(client, node, metrics)


def memory(target: MemoryTarget, name: str = "memory") -> dict[str, Any]:
    """A route of the topics m.* into a memory target."""
    return {"name": name, "match": "m.*", "target": register_memory_target(target, name)}


def hook(receiver: Receiver, **fields: Any) -> dict[str, Any]:
    """A route of the topics h.* to a receiver."""
    return {"name": "hook", "match": "h.*", "target": receiver.url(), **fields}


# -- E3 ------------------------------------------------------------------------------------------------------------------


def test_e3_one_poisoned_message_is_buried_with_the_targets_words_and_its_neighbours_go_on(
    valkey: ServerUnderTest, receiver: Receiver
) -> None:
    """E3 (the target rejects one poisoned message): It becomes a dead letter with the target's words; its neighbours
    continue.

    E3: A rejected message is a dead letter at once. A message that fails otherwise becomes one after `maxAttempts`,
    and again after a redrive. Each send has its own number.
    """

    def answer(request: Request) -> Answer:
        if request.headers["ce-id"] == "poisoned":
            return Answer(500, body=b"cannot read that order")
        return Answer(422, body=b"no such order") if request.headers["ce-id"] == "wrong" else Answer()

    receiver.answer = answer
    with running(valkey, hook(receiver, maxAttempts=6)) as one:
        one.client.schedule(Message(topic="h.x", id="wrong", delay_time=0))
        one.client.schedule(Message(topic="h.x", id="poisoned", delay_time=0))
        neighbours = 0
        while len(one.client.dead_letters().letters) < 2:
            one.client.schedule(Message(topic="h.x", id=f"n{neighbours}", delay_time=0))
            wanted = f"n{neighbours}"
            eventually(lambda wanted=wanted: wanted in receiver.ids, "its neighbours go on")  # type: ignore[misc]  # a default binds it
            neighbours += 1
            assert neighbours < 2_000
        letters = {letter.id: letter for letter in one.client.dead_letters().letters}
        assert letters["wrong"].reason == f"127.0.0.1:{receiver.port} answered 422: no such order"
        words = f"gave up after 6 attempts: 127.0.0.1:{receiver.port} answered 500: cannot read that order"
        assert (letters["poisoned"].attempts, letters["poisoned"].reason) == (6, words)
        counts = Counter(receiver.ids)
        assert [counts[f"n{number}"] for number in range(neighbours)] == [1] * neighbours


# -- E4, E5 --------------------------------------------------------------------------------------------------------------


def test_e4_of_a_batch_that_failed_in_part_only_the_failed_ones_come_again(
    valkey: ServerUnderTest, target: MemoryTarget
) -> None:
    """E4 (partial batch failure): Each message has its own outcome: only failed ones are sent again.

    One of which nobody knows whether it arrived (E5) comes again with its id.
    """
    with running(valkey, memory(target)) as one:
        for number in (3, 17, 40):
            target.answer("unavailable", id=f"m{number}", times=1)
        target.answer("unknown", id="m50", times=1)
        target.answer("rejected", id="m25", reason="not that one")
        ids = one.schedule("m.x", 100)
        one.drained()
        (letter,) = one.client.dead_letters().letters
        assert (letter.id, letter.reason) == ("m25", "not that one")
    assert max(target.batches) > 1
    assert set(target.ids) == {*ids} - {"m25"}
    again = {id: count for id, count in Counter(one.id for one in target.attempted).items() if count > 1}
    assert again == {"m3": 2, "m17": 2, "m40": 2, "m50": 2}


# -- E11 -----------------------------------------------------------------------------------------------------------------


def test_e11_revoked_rights_open_the_circuit_bury_nothing_and_raise_an_alarm(
    valkey: ServerUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """E11: The log has the reason (`circuit_open`), `delayq_circuit_open` is 1, and all messages are delivered after
    the repair.

    Topics that share a route with succeeding ones keep its circuit closed and burn their attempts, over an hour by
    default. Give such a topic its own route.
    """
    with EmbeddedServer(data_dir=tmp_path / "target") as broker, redis.Redis.from_url(broker.url, protocol=2) as admin:
        admin.execute_command("ACL", "SETUSER", "shop", "on", ">secret-of-shop", "~*", "+@all")
        url = broker.url.replace("://", "://shop:secret-of-shop@")
        there = {"name": "there", "match": "t.*", "target": f"redis+stream:{url}"}
        with running(valkey, there, max_attempts=5) as one:
            before = one.schedule("t.x", 10, "before")
            one.drained()
            admin.execute_command("ACL", "SETUSER", "shop", "resetkeys")
            ids = one.schedule("t.x", 600)
            eventually(lambda: one.parked() == 600, "all are parked")
            eventually(lambda: one.watch().parked == 600, "the metrics report them")
            assert one.metric('delayq_circuit_open{route="there"}') == 1
            assert one.client.dead_letters().letters == []
            assert max(one.attempts(ids)) <= 3  # the sends that opened the circuit
            admin.execute_command("ACL", "SETUSER", "shop", "~*")
            one.drained()
            assert Counter(entry[b"id"].decode() for _, entry in admin.xrange("t.x")) == dict.fromkeys(before + ids, 1)
            assert one.client.dead_letters().letters == []
    (told,) = {one for one in caplog.messages if "circuit_open" in one}
    assert "permission" in told and "there" in told and "secret-of-shop" not in told


# -- E13 -----------------------------------------------------------------------------------------------------------------


def test_e13_a_dead_letter_that_redis_does_not_take_stays_a_message_until_it_does(
    valkey: ServerUnderTest, target: MemoryTarget, caplog: pytest.LogCaptureFixture
) -> None:
    """E13: The worker logs `redis_trouble`, counts it in `delayq_pull_job_failures_total`, and tries every half
    second.

    Other messages continue.
    """
    target.answer("rejected", topic="m.bad", reason="no such field")
    with running(valkey, memory(target), queues=1) as one:
        dead = KEYS.queue(0).dead
        valkey.admin.set(dead, "not what belongs here")
        one.client.schedule(Message(topic="m.bad", id="bad", delay_time=0))
        eventually(lambda: "bad" in {each.id for each in target.attempted}, "it was rejected")
        alarms = "delayq_pull_job_failures_total"
        eventually(lambda: one.metric(alarms) >= 2, "an alarm")
        good = one.schedule("m.good", 200, "good")
        target.wait_for_ids(good, PATIENCE)
        assert valkey.admin.hexists(KEYS.queue(0).pool, "bad"), "it is kept"
        valkey.admin.delete(dead)
        (letter,) = eventually(lambda: one.client.dead_letters().letters, "it is a dead letter")
        assert (letter.id, letter.reason) == ("bad", "no such field")
    assert [each.id for each in target.attempted].count("bad") == 1
    assert "redis_trouble" in caplog.text


# -- E14 -----------------------------------------------------------------------------------------------------------------


def test_e14_at_its_bound_a_stream_takes_no_more_until_its_consumers_have_caught_up(valkey: ServerUnderTest) -> None:
    """E14 (Streams consumer group lost or lagging): `delayq_stream_backlog` shows the lag.

    With `maxBacklog`, messages are parked without attempts until consumers catch up.

    E14: The slowest group counts. A stream without groups counts with all of its entries.
    """
    bounded = {"name": "bounded", "match": "b.*", "maxBacklog": 100}
    with running(valkey, bounded, STREAMS, max_attempts=2, window=200) as one:
        valkey.admin.xgroup_create("b.x", "shop", "0", mkstream=True)
        ids = one.schedule("b.x", 1_000)
        eventually(lambda: one.parked() > 0 and valkey.admin.xlen("b.x") >= 100, "it is full")
        assert valkey.admin.xlen("b.x") < 1_000
        one.schedule("s.x", 100, "other")
        eventually(lambda: valkey.admin.xlen("s.x") == 100, "others go on")
        assert one.metric('delayq_circuit_open{route="bounded"}') == 1
        one.watch()
        assert one.metric('delayq_stream_backlog{route="streams"}') == 100

        def consume() -> bool:
            for _, entries in valkey.admin.xreadgroup("shop", "c1", {"b.x": ">"}, count=500) or []:
                valkey.admin.xack("b.x", "shop", *[number for number, _ in entries])
            return one.pending() == 0

        eventually(consume, "all arrive as they are worked on")
        arrived = Counter(entry[b"id"].decode() for _, entry in valkey.admin.xrange("b.x"))
        assert arrived == dict.fromkeys(ids, 1)
        assert {entry[b"attempt"] for _, entry in valkey.admin.xrange("b.x")} == {b"1"}
        assert one.client.dead_letters().letters == []


# -- D13 -----------------------------------------------------------------------------------------------------------------


def test_d13_a_queue_that_hands_out_messages_of_which_none_is_confirmed_raises_an_alarm(
    valkey: ServerUnderTest, target: MemoryTarget, caplog: pytest.LogCaptureFixture
) -> None:
    """D13 (wedge: pulls return data, nothing is confirmed for 60 s): After `DELAYQ_STUCK_AFTER` the worker logs
    `stuck_queue`; its `/readyz` is 503 and names the queue.

    D13: `delayq_stuck_queues` counts the queue until something is confirmed again.
    """
    with running(valkey, memory(target), stuck_after=300) as one:
        target.answer("hang")
        one.schedule("m.x", 20)
        eventually(lambda: any("is stuck" in sentence for sentence in one.node.complaints()), "the node complains")
        assert one.metric("delayq_stuck_queues") > 0
        target.behave()
        one.drained()
        eventually(lambda: not one.node.complaints(), "it complains no more")
        assert one.metric("delayq_stuck_queues") == 0
    assert any("'stuck_queue'" in one for one in caplog.messages)
    assert "stuck_queue_over" in caplog.text
