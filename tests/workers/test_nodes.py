"""A real node on a real server: wakes over pub/sub, a start before Redis, an end before it began, threads that end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.base.errors import LayoutMismatch
from delayq.client.client import Client
from delayq.domain.message import Message
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import free_port
from delayq.store.commands import LAYOUT_VERSION
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually
from workers.node.node import Node
from workers.queue import pull


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def good() -> Iterator[MemoryTarget]:
    target = MemoryTarget()
    yield target
    target.close()


def test_a_message_wakes_a_job_that_would_sleep_for_an_hour(
    valkey: ServerUnderTest, good: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "LONGEST_WAIT", 3_600_000)
    settings = settings_for(valkey.url, good, queues=1)
    with Client(settings=settings) as client, RunningNode(settings):
        for number in range(3):
            client.schedule(Message(topic="m.t", id=f"m{number}", delay_time=20))
            last = good.wait_for(number + 1, PATIENCE)[-1]
            assert last.at >= last.due


def test_a_node_that_starts_before_redis_waits_for_it(tmp_path: Path, good: MemoryTarget) -> None:
    server = EmbeddedServer(data_dir=tmp_path, port=free_port())
    settings = settings_for(server.url, good)
    with RunningNode(settings, wait=False) as one:
        assert not one.node.ready
        with server, Client(settings=settings) as client:
            client.schedule_many([Message(topic="m.t", delay_time=0) for _ in range(10)])
            good.wait_for(10, PATIENCE)
            one.node.stop()
            one.wait_for_the_end()


def test_a_node_that_is_stopped_before_redis_answers_closes_its_targets(good: MemoryTarget) -> None:
    with RunningNode(settings_for("redis://127.0.0.1:1", good), wait=False):
        pass
    assert good.closed


def test_another_layout_is_refused_in_a_sentence_and_left_as_it_is(valkey: ServerUnderTest, good: MemoryTarget) -> None:
    settings = settings_for(valkey.url, good, queues=4)
    with Client(settings=settings) as client:
        client.context()  # writes the layout
    newer = f"{LAYOUT_VERSION}0"
    for stored, why in (
        ({"layouts": "8"}, "8 queues"),
        ({"version": newer}, f"this Redis has layout version {newer}, but this delayq needs {LAYOUT_VERSION}"),
    ):
        valkey.admin.hset(KEYS.meta, mapping=stored)
        before = valkey.admin.hgetall(KEYS.meta)
        node = Node(settings)
        with pytest.raises(LayoutMismatch, match=why):
            node.run()
        node.store.close()
        assert good.closed
        with Client(settings=settings) as client, pytest.raises(LayoutMismatch, match=why):
            client.queues()
        assert valkey.admin.hgetall(KEYS.meta) == before


def test_after_a_stop_no_thread_of_the_node_is_left(valkey: ServerUnderTest, good: MemoryTarget) -> None:
    before = set(threading.enumerate())
    with RunningNode(settings_for(valkey.url, good)):
        assert len(set(threading.enumerate()) - before) > 4
    assert good.closed
    eventually(lambda: not set(threading.enumerate()) - before, "the threads end")


def test_a_worker_whose_line_redis_refuses_sends_nothing_until_others_can_know_of_it(
    valkey: ServerUnderTest, good: MemoryTarget
) -> None:
    """A6: A worker whose line Redis refuses for another reason than memory sends nothing 15 s later, and reports it."""
    valkey.admin.set(KEYS.nodes, "not a hash")
    settings = settings_for(valkey.url, good)
    with Client(settings=settings) as client, RunningNode(settings, wait=False) as one:
        client.schedule(Message(topic="m.t", id="a", delay_time=1))
        eventually(lambda: one.node.line.refused, "it has asked")
        assert any("refuses the line of this worker" in text for text, _ in one.node.own_complaints())
        assert (dict(one.node.jobs), good.attempted) == ({}, []), "it leaves the queues to others"
        valkey.admin.delete(KEYS.nodes)
        good.wait_for_ids(["a"])
        eventually(lambda: one.node.own_complaints() == [], "all is well")


def test_a_worker_that_stops_while_a_send_hangs_leaves_its_line_so_that_a_pause_waits_for_it(
    valkey: ServerUnderTest, good: MemoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryTarget, "close", lambda _: None)  # as a target does that cannot take back what it sends
    settings = settings_for(valkey.url, good, drain_timeout=1)
    good.answer("hang", id="hangs")
    with Client(settings=settings) as client:
        with RunningNode(settings):
            client.schedule(Message(topic="m.t", id="hangs", delay_time=1))
            good.wait_for_hanging(1)
        assert (client.pause("m.*", wait=0).state, list(client.nodes())) == ("pausing", ["node-under-test"])
        good.release()
