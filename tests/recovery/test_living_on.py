"""A worker that is not restarted: what it did not hear of it still looks after, and keeps each key in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from delayq import Client, Message
from delayq.client.operations import Scheduled
from delayq.clock import SystemClock
from delayq.embedded import EmbeddedServer
from delayq.testing import MemoryTarget
from testbed.process import standing_still
from tests.recovery.conftest import pending, schedule_all
from tests.support.nodes import RunningNode, settings_for
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from workers.queue.in_flight import InFlight

Clients = Callable[..., Client]
KEYS = ("a", "b", "c", "d", "e")
EACH = 200
APART = 20  # ms between the dues of one key
ROUNDS = 3


def stalled(node: RunningNode) -> bool:
    """Whether the worker has given up a call to Redis."""
    return any(job._troubles for job in node.node.jobs.values())


def test_each_key_stays_in_order_when_its_target_fails_while_redis_stands_still(
    target: MemoryTarget, clients: Clients, tmp_path: Path
) -> None:
    with (
        EmbeddedServer(data_dir=tmp_path) as server,
        FaultProxy(server.port) as proxy,
        RunningNode(settings_for(proxy.url, target)) as node,
    ):
        client = clients(server.url)
        begin = SystemClock().now() + 1_000
        messages = [
            Message(topic="m.t", id=f"{key}{n:03}", ordering_key=key, expect_date=begin + APART * n, max_attempts=1_000)
            for n in range(EACH)
            for key in KEYS
        ]
        ids = [one.id for one in client.schedule_many(messages) if isinstance(one, Scheduled)]
        assert len(ids) == len(messages)
        for number in range(1, ROUNDS + 1):
            eventually(lambda goal=number * 100: len(target.ids) >= goal, "messages arrive")  # type: ignore[misc]  # bound now
            target.answer("unavailable")
            eventually(lambda: sum(one.parked for one in client.stats()) > 0, "the circuit opens")
            proxy.drop_reply("unpark", times=4)
            assert server.pid is not None
            with standing_still(server.pid):
                target.behave()
                eventually(lambda: stalled(node), "the worker hears nothing")
        target.wait_for_ids(ids, timeout=60)
        firsts = list(dict.fromkeys(target.ids))
        for key in KEYS:
            of_key = [id for id in firsts if id.startswith(key)]
            assert of_key == sorted(of_key)


def test_what_was_parked_unheard_comes_back_after_a_tick_failed(
    target: MemoryTarget,
    clients: Clients,
    valkey: ServerUnderTest,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send_waiting, failed = InFlight.send_waiting, list[str]()

    def fail_once(self: InFlight, now: int) -> None:
        if proxy.dropped and not failed:
            failed.append("a tick")
            raise RuntimeError("a tick fails after the parking that nobody heard of")
        send_waiting(self, now)

    monkeypatch.setattr(InFlight, "send_waiting", fail_once)
    with RunningNode(settings_for(proxy.url, target)):
        client = clients(valkey.url)
        target.answer("unavailable")
        proxy.drop_reply("park")
        ids = schedule_all(client, "m.t", 30, ordering_key="k", max_attempts=1_000)
        eventually(lambda: failed, "the tick fails")
        target.behave()
        target.wait_for_ids(ids, timeout=60)
        eventually(lambda: pending(client) == 0, "everything is acked")
