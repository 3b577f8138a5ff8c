"""What a worker's metrics say: lateness message by message, queues and servers as they were seen last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delayq import Client, Message
from delayq.config import load_settings
from delayq.domain.policies import Pause, Policies, Policy
from delayq.store.commands import Pulled, plain
from delayq.store.keys import KEYS
from tests.support.deliveries import delivery
from tests.support.servers import ServerUnderTest
from workers.node.duties.alarms import Alarms
from workers.node.node import Node
from workers.queue.topics import Topics
from workers.telemetry.metrics import Metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_each_message_counts_with_its_own_lateness() -> None:
    metrics = Metrics()
    metrics.acked([delivery("a"), delivery("b")], 20_004)  # both were due at 20,000
    metrics.acked([delivery("c")], 21_500)
    metrics.acked([delivery("d")], 19_000)  # a clock was set back
    assert value(metrics, "delayq_lateness_seconds_count") == 4
    assert value(metrics, "delayq_lateness_seconds_bucket", le="0.005") == 3
    assert value(metrics, "delayq_lateness_seconds_bucket", le="1.0") == 3
    assert value(metrics, "delayq_lateness_seconds_sum") == pytest.approx(1.508)


def test_what_a_script_appended_counts_as_often_as_it_did() -> None:
    metrics = Metrics()
    metrics.pulled(Pulled(20_030, 0, None, False, 0, (20_000, b"x"), 70, [], [], [], [], [], {}))
    assert value(metrics, "delayq_lateness_seconds_bucket", le="0.05") == 70
    assert value(metrics, "delayq_lateness_seconds_bucket", le="0.02") == 0


@pytest.mark.parametrize("zookeeper", ["", "127.0.0.1:1"])
def test_queues_and_servers_are_as_they_were_seen_last(valkey: ServerUnderTest, zookeeper: str) -> None:
    with Client(valkey.url, settings=load_settings(redis_url=valkey.url, queues=2)) as client:
        client.schedule_many([Message(topic="t", id=f"m{n}", delay_time=0 if n < 3 else 60_000) for n in range(10)])
        client.cancel("m9")
        for queue in (0, 1):  # as a park leaves it
            client.store.run(plain("HSET", KEYS.queue(queue).state, "parked:h:sms", "1", read=int))
            client.store.run(plain("ZADD", KEYS.queue(queue).parked("h:sms"), 1, "a", 2, "b", read=int))
        owned = {one.queue for one in client.queues() if one.due}
    node = Node(load_settings(redis_url=valkey.url, zookeeper=zookeeper))
    metrics = Metrics()
    metrics.watch(node)
    assert value(metrics, "delayq_due") == 0  # before it has looked
    node.alarms = Alarms(node.store, [0, 1])
    node.alarms.look_at_server()
    node.alarms.look_at_queues()
    sms = Policy(name="sms", match="sms", rate=2.0)
    node.policies.current = Policies(
        "0000000008.0000000001", {"x": Pause(match="x", since=9_500), "y": Pause(match="y", since=9_000)}, {"sms": sms}
    )
    topics = Topics(node.routes, node.store.url, KEYS)
    topics.refuse("t", "NOPERM")
    version = "0000000007.0000000001"
    job: Any = SimpleNamespace(
        version=version, stuck=False, pulls_fail="WRONGTYPE", in_flight=(), topics=topics
    )  # fmt: skip
    ownership: Any = SimpleNamespace(jobs=dict.fromkeys(owned, job), claims=5, fenced=1)
    node.ownership = ownership
    assert value(metrics, "delayq_due") == 3
    assert value(metrics, "delayq_pending") == 9
    assert value(metrics, "delayq_all_queues") == 2
    assert value(metrics, "delayq_messages_total", event="scheduled") == 10
    assert value(metrics, "delayq_messages_total", event="cancelled") == 1
    assert (value(metrics, "delayq_claims_total"), value(metrics, "delayq_fenced_total")) == (5, 1)
    told = [
        value(metrics, f"delayq_{name}")
        for name in ("held", "limit_wait_seconds", "paused_policies", "paused_since_seconds", "policy_version")
    ]
    assert told == [4, 2, 2, 9, 7]
    for queue in (0, 1):
        overdue = value(metrics, "delayq_head_overdue_seconds", queue=str(queue))
        assert overdue is None if queue not in owned else overdue is not None and overdue >= 0
    assert value(metrics, "delayq_refusing_streams") == value(metrics, "delayq_failing_queues") == len(owned)
    assert value(metrics, "delayq_redis_up") == 1
    assert value(metrics, "delayq_redis_disk_failing") == 0
    assert (value(metrics, "delayq_redis_memory_bytes") or 0) > 0
    node.redis_clock.answers = False
    assert value(metrics, "delayq_failing_queues") == 0  # it is Redis, and that is told
    assert value(metrics, "delayq_redis_up") == 0
    assert value(metrics, "delayq_zookeeper_connected") == (0 if zookeeper else None)
    node.store.close()
