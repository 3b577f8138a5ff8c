"""A real node on a real server: threads, wakes over pub/sub, hung targets, a planned stop."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq.client.client import Client
from delayq.client.operations import Scheduled
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from delayq.errors import LayoutMismatch
from delayq.message import Message
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.workers.nodes import settings_for
from workers.node.node import Node


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def good() -> Iterator[MemoryTarget]:
    target = MemoryTarget()
    yield target
    target.close()


@pytest.fixture
def bad() -> Iterator[MemoryTarget]:
    target = MemoryTarget(max_batch=1)
    yield target
    target.close()


def schedule(client: Client, *messages: Message) -> None:
    for answer in client.schedule_many(messages):
        assert isinstance(answer, Scheduled), answer


def some(topic: str, count: int, **options: object) -> list[Message]:
    given: dict[str, object] = {"delay_time": 0} | options
    return [Message(topic=topic, id=f"{topic}-{i}", **given) for i in range(count)]  # type: ignore[arg-type]


def stream_length(valkey: ServerUnderTest, name: str) -> int:
    length: object = valkey.admin.xlen(name)
    assert isinstance(length, int)
    return length


def test_a_target_that_hangs_on_everything_leaves_other_targets_and_streams_alone(
    valkey: ServerUnderTest, good: MemoryTarget, bad: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, {"good": good, "bad": bad}, window=100, send_timeout=60_000, drain_timeout=200)
    bad.answer("hang")
    with Client(settings=settings) as client, RunningNode(settings):
        schedule(client, *some("bad.t", 600), *some("bad.k", 200, ordering_key="k"))
        bad.wait_for_hanging(1)
        schedule(client, *some("good.t", 200, delay_time=50), *some("s.t", 200, delay_time=50))
        good.wait_for(200)
        eventually(lambda: stream_length(valkey, "s.t") == 200, "all are in the stream")
        assert Counter(good.ids).most_common(1)[0][1] == 1


def test_beside_one_hung_send_a_message_for_now_in_the_same_queue_is_forwarded(
    valkey: ServerUnderTest, bad: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, {"bad": bad}, queues=1, send_timeout=60_000, drain_timeout=200)
    bad.answer("hang", id="bad.h-0")
    with Client(settings=settings) as client, RunningNode(settings):
        schedule(client, *some("bad.h", 1))
        bad.wait_for_hanging(1)
        schedule(client, *some("bad.t", 20))
        bad.wait_for_ids([f"bad.t-{i}" for i in range(20)])
        assert bad.hanging == 1


def test_a_message_for_now_wakes_the_sleeping_job_and_arrives_long_before_its_next_look(
    valkey: ServerUnderTest, good: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, {"good": good}, queues=1)
    with Client(settings=settings) as client, RunningNode(settings):
        late = []
        for i in range(20):
            schedule(client, Message(topic="good.t", id=f"m{i}", delay_time=20))
            late.append(good.wait_for(i + 1)[-1])
        lateness = sorted(one.at - one.due for one in late)
        assert lateness[0] >= 0
        assert lateness[10] < 500  # without wakes the half of them would wait for longer


def test_with_every_wake_lost_a_message_still_arrives_within_a_second_or_so(
    valkey: ServerUnderTest, good: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(valkey.url, {"good": good}, queues=1)
    monkeypatch.setattr("workers.node.wakes.WakeListener._pass", lambda *_: None)
    with Client(settings=settings) as client, RunningNode(settings):
        schedule(client, *some("good.t", 1))
        (one,) = good.wait_for(1)
        assert 0 <= one.at - one.due < 5_000


@pytest.mark.slow
def test_a_planned_stop_under_load_makes_no_duplicates_and_loses_nothing(
    valkey: ServerUnderTest, good: MemoryTarget
) -> None:
    good.latency = 5
    settings = settings_for(valkey.url, {"good": good})
    total = 4_000
    with Client(settings=settings) as client:
        schedule(client, *some("good.t", total // 2), *some("good.k", total // 2, ordering_key="k", delay_time=300))
        for stop_at in (200, 900, 1_700):
            one = RunningNode(settings)
            one.start()
            good.wait_for(stop_at)
            one.stop()
            assert valkey.admin.hlen("delayq:nodes") == 0
        with RunningNode(settings):
            good.wait_for(total, timeout=60)
            eventually(lambda: sum(queue.scheduled for queue in client.stats()) == 0, "all are acked")
    assert len(good.ids) == total
    assert len(set(good.ids)) == total
    keyed = [id for id in good.ids if id.startswith("good.k")]
    dues = {one.id: one.due for one in good.deliveries}
    assert keyed == sorted(keyed, key=lambda id: (dues[id], id))


def test_a_stop_with_a_hung_target_ends_when_the_drain_time_is_over(valkey: ServerUnderTest, bad: MemoryTarget) -> None:
    settings = settings_for(valkey.url, {"bad": bad}, send_timeout=60_000, drain_timeout=300)
    bad.answer("hang")
    with Client(settings=settings) as client:
        one = RunningNode(settings)
        one.start()
        schedule(client, *some("bad.t", 20))
        bad.wait_for_hanging(1)
        begun = time.monotonic()
        one.stop()
        assert time.monotonic() - begun > 0.25
        assert bad.closed
        left = {f"bad.t-{i}" for i in range(20) if client.get(f"bad.t-{i}").state != "delivered"}  # type: ignore[union-attr]
        assert left | set(bad.ids) == {f"bad.t-{i}" for i in range(20)}  # the next node has what did not arrive


def test_a_node_that_starts_before_redis_waits_for_it(tmp_path: Path, good: MemoryTarget) -> None:
    server = EmbeddedServer(data_dir=tmp_path, port=free_port())
    settings = settings_for(server.url, {"good": good})
    with RunningNode(settings, wait=False) as one:
        assert not one.node.ready
        with server, Client(settings=settings) as client:
            schedule(client, *some("good.t", 10))
            good.wait_for(10)
            one.node.stop()
            one.wait_for_the_end()


def test_a_node_that_is_stopped_before_redis_answers_closes_its_targets(good: MemoryTarget) -> None:
    with RunningNode(settings_for("redis://127.0.0.1:1", {"good": good}), wait=False):
        pass
    assert good.closed


def test_a_node_that_refuses_the_layout_closes_its_targets(valkey: ServerUnderTest, good: MemoryTarget) -> None:
    settings = settings_for(valkey.url, {"good": good}, queues=4)
    with Client(settings=settings.replace(queues=8)) as client:
        client.schedule(Message(topic="good.later", delay_time=600_000))  # writes the layout
    node = Node(settings)
    with pytest.raises(LayoutMismatch, match="8 queues"):
        node.run()
    node.store.close()
    assert good.closed


def test_after_a_stop_no_thread_of_the_node_is_left(valkey: ServerUnderTest, good: MemoryTarget) -> None:
    before = set(threading.enumerate())
    with RunningNode(settings_for(valkey.url, {"good": good})):
        assert len(set(threading.enumerate()) - before) > 4
    eventually(lambda: not set(threading.enumerate()) - before, "the threads end")


def test_of_two_nodes_on_one_redis_the_later_owns_and_nothing_is_lost(
    valkey: ServerUnderTest, good: MemoryTarget
) -> None:
    settings = settings_for(valkey.url, {"good": good})
    with Client(settings=settings) as client, RunningNode(settings):
        schedule(client, *some("good.a", 50))
        with RunningNode(settings.replace(node="another")):
            schedule(client, *some("good.b", 50, delay_time=100))
            good.wait_for_ids([f"good.{name}-{i}" for name in "ab" for i in range(50)])


def memory_kb() -> int:
    """The resident memory of this process; where /proc is missing, its peak so far."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmRSS"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_burst_of_200_000_due_in_one_ms_arrives_once_in_flat_memory_and_others_pass_beside_it(
    valkey: ServerUnderTest, good: MemoryTarget
) -> None:
    total = 200_000
    settings = settings_for(valkey.url, {"good": good})
    with Client(settings=settings) as client:
        due = int(time.time() * 1000) + 3_600_000  # first scheduled, then made due all at once
        for start in range(0, total, 10_000):
            batch = [Message(topic="s.burst", id=f"b{i}", expect_date=due) for i in range(start, start + 10_000)]
            schedule(client, *batch)
        for queue in range(4):  # one due in the past for all of them
            tickets: object = valkey.admin.execute_command(
                "ZUNIONSTORE", f"delayq:{{{queue}}}:queue", 1, f"delayq:{{{queue}}}:queue", "WEIGHTS", 0
            )
            assert tickets
        before = memory_kb()
        peak = before
        with RunningNode(settings):
            for i in range(10):
                schedule(client, *some(f"good.{i}", 20))
                good.wait_for(20 * (i + 1), timeout=60)
                peak = max(peak, memory_kb())
            eventually(lambda: stream_length(valkey, "s.burst") >= total, "the burst has drained", 200)
            peak = max(peak, memory_kb())
        assert stream_length(valkey, "s.burst") == total
        admin: Any = valkey.admin
        seen: set[bytes] = set()
        last = b"-"
        while entries := admin.xrange("s.burst", last, "+", count=20_000):
            seen.update(entry[b"id"] for _, entry in entries)
            last = b"(" + entries[-1][0]
        assert len(seen) == total
        assert peak - before < 60_000  # kB: a message held would be more than 200,000 × 0.5
