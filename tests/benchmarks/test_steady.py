"""Steady traffic: what is told of it, and that it goes on through a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.load.steady_producer import Producer
from benchmarks.load.through_faults import GENERAL, Arrived, Plan, Steady, again, late, twice
from benchmarks.running.processes import worker
from delayq import Client, Message, StoreUnavailable
from delayq.client.schedule import Scheduled
from delayq.embedded import EmbeddedServer
from tests.support.servers import KEPT

FIRST = 1_800_000_000_000.0


def arrived(id: str, due: float, at: float) -> Arrived:
    return Arrived(id, int(FIRST + due), FIRST + at)


def test_a_queue_delivers_again_with_its_first_message_that_fell_due_after_the_fault() -> None:
    one, two = "a.0001", "b.0002"  # the suffix is the queue
    seen = [
        arrived(one, -1, 5), arrived(one, 10, 900), arrived(one, 500, 700), arrived(two, 0, 40), arrived(two, 1, 30)
    ]  # fmt: skip
    assert again(seen, FIRST) == {1: 700.0, 2: 30.0}


def test_lateness_counts_a_message_once_by_its_first_arrival() -> None:
    seen = [arrived(f"m{i}", 0, i) for i in range(100)] + [arrived("m5", 0, 5_000), arrived("out", 1_000, 9_000)]
    assert late(seen, FIRST, FIRST + 1_000) == 98
    assert late(seen, FIRST, FIRST + 1_000, 100) == 99
    with pytest.raises(BenchmarkError):
        late(seen, FIRST + 5_000, FIRST + 6_000)


def test_what_came_twice_counts_in_the_time_of_its_due() -> None:
    seen = [arrived("a", 0, 1), arrived("a", 0, 2), arrived("a", 0, 3), arrived("b", 100, 101), arrived("b", 100, 102)]
    assert twice(seen, FIRST, FIRST + 100) == 2
    assert twice(seen, FIRST, FIRST + 101) == 3


def test_the_producer_repeats_what_failed_and_tells_of_it(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    class Refuses(Client):
        def schedule_many(self, messages: object) -> list[object]:  # type: ignore[override]  # it takes lists only
            assert isinstance(messages, list)
            calls.append([message.id for message in messages])
            if len(calls) == 1:
                return [StoreUnavailable("away") for _ in messages]
            return [Scheduled(id=one.id, queue=0, due=1, created=True) for one in messages]

    out = tmp_path / "accepted"
    with Refuses("redis://127.0.0.1:1") as client, out.open("w") as file:
        producer = Producer(Plan("", "t", 1_000, 0, str(out)), client, file)
        producer.send(producer.new(2))
        producer.send(producer.new(1))
        producer.send([])
    assert calls == [["steady-0", "steady-1"], ["steady-0", "steady-1", "steady-2"]]
    assert [line.split()[0] for line in out.read_text().splitlines()] == ["error", "steady-0", "steady-1", "steady-2"]


def test_new_messages_fall_due_by_their_planned_times_however_late_they_are_made(tmp_path: Path) -> None:
    with Client("redis://127.0.0.1:1") as client, (tmp_path / "accepted").open("w") as file:
        producer = Producer(Plan("", "t", 100, FIRST, ""), client, file)
        made: list[Message] = producer.new(3) + producer.new(2)
    for number, message in enumerate(made):
        assert message.id == f"steady-{number}"
        assert message.expect_date is not None
        assert 500 <= message.expect_date - (FIRST + 10 * number) <= 3_000


def test_steady_traffic_survives_a_redis_that_is_killed(tmp_path: Path) -> None:
    with (
        EmbeddedServer(extra=KEPT) as running,
        worker(running.url, routes=GENERAL),
        Steady(running.url, tmp_path, 100) as traffic,
    ):
        dead = max(one.due for one in traffic.arrived) + 1
        running.kill()
        running.start()
        traffic.wait_again(dead, 60)
        assert traffic.finish() == 0
        assert traffic.accepted.keys() == {one.id for one in traffic.arrived}
        assert len(traffic.accepted) > 50
