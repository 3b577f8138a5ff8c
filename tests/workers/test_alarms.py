"""What the worker says of a Redis that cannot be trusted, and of messages that are not there any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from delayq.client.client import Client
from delayq.errors import StoreError
from delayq.message import Message
from delayq.store.keys import queue_keys
from delayq.testing import ManualClock
from tests.support.servers import ServerUnderTest
from workers.node.duties.alarms import EVERY, SERVER_EVERY, Alarms

Said = list[tuple[str, str]]


@pytest.fixture
def client(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made
    valkey.admin.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def watch(client: Client, clock: ManualClock) -> Alarms:
    return Alarms(client.store, range(16), clock)


def look(watch: Alarms, clock: ManualClock) -> Said:
    clock.advance(EVERY)
    with structlog.testing.capture_logs() as logs:
        watch.tick()
    return [(one["event"], one["text"]) for one in logs]


def test_it_does_not_look_before_its_time(
    watch: Alarms, clock: ManualClock, client: Client, valkey: ServerUnderTest
) -> None:
    kept = client.schedule(Message(topic="t", delay_time=60_000, id="a.0003"))
    assert look(watch, clock) == []
    valkey.admin.config_set("maxmemory-policy", "allkeys-lru")
    admin: Any = valkey.admin
    admin.hdel(queue_keys(3).pool, kept.id)
    waits = ((SERVER_EVERY - 1, 0), (1, 1), (EVERY - 2 * SERVER_EVERY, 1), (SERVER_EVERY - 1, 1), (1, 2))
    for wait, alarms in waits:
        clock.advance(wait)
        watch.tick()
        assert len(watch.alarms) == alarms


def test_what_is_wrong_with_the_server_is_told_also_if_a_queue_cannot_be_looked_at(
    watch: Alarms, clock: ManualClock, valkey: ServerUnderTest
) -> None:
    admin: Any = valkey.admin
    admin.set(queue_keys(3).pool, "no hash")
    admin.config_set("maxmemory-policy", "allkeys-lru")
    clock.advance(EVERY)
    with structlog.testing.capture_logs() as logs, pytest.raises(StoreError):
        watch.tick()
    assert [one["event"] for one in logs] == ["alarm"]
    clock.advance(SERVER_EVERY)
    watch.tick()  # which leaves the queues alone until it is their time


@pytest.mark.parametrize(
    ("option", "wrong", "right", "says"),
    [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "maxmemory-policy is allkeys-lru"),
        ("appendfsync", "everysec", "always", "with appendfsync everysec: no change can be confirmed"),
    ],
)
def test_a_setting_that_is_changed_at_run_time_is_told_once_and_so_is_its_end(
    client: Client, clock: ManualClock, valkey: ServerUnderTest, option: str, wrong: str, right: str, says: str
) -> None:
    watch = Alarms(client.store, range(16), clock, fsync="always" if option == "appendfsync" else "")
    valkey.admin.config_set(option, wrong)
    ((event, text),) = look(watch, clock)
    assert (event, says in text) == ("alarm", True)
    assert look(watch, clock) == []
    assert len(watch.alarms) == 1
    valkey.admin.config_set(option, right)
    try:
        assert look(watch, clock) == [("alarm_over", text)]
        assert watch.alarms == {}
    finally:
        valkey.admin.config_set("appendfsync", "everysec")


def test_messages_that_are_missing_are_told_once_however_many_more_there_come_to_be(
    watch: Alarms, clock: ManualClock, client: Client, valkey: ServerUnderTest
) -> None:
    first, second = (client.schedule(Message(topic="t", delay_time=60_000, id=f"{name}.0003")) for name in "ab")
    assert look(watch, clock) == []
    assert (watch.alarms, watch.missing) == ({}, 0)
    admin: Any = valkey.admin
    admin.hdel(queue_keys(3).pool, first.id)
    ((event, text),) = look(watch, clock)
    assert (event, text.startswith("1 messages are missing from queue 3")) == ("alarm", True)
    admin.hdel(queue_keys(3).pool, second.id)
    assert look(watch, clock) == []
    assert watch.missing == 2


def test_only_what_no_other_look_at_redis_tells_is_an_alarm_of_its_own(
    watch: Alarms, clock: ManualClock, client: Client, valkey: ServerUnderTest
) -> None:
    client.schedule(Message(topic="t", delay_time=60_000, id="a.0003"))
    admin: Any = valkey.admin
    admin.hset(queue_keys(4).state, "born", "then")
    look(watch, clock)
    admin.hdel(queue_keys(3).pool, "a.0003")
    valkey.admin.config_set("maxmemory-policy", "allkeys-lru")
    assert (len(look(watch, clock)), watch.own) == (2, [])  # the findings have both
    admin.hset(queue_keys(4).state, "born", "since")
    ((_, text),) = look(watch, clock)
    assert watch.own == [text]
    assert text.startswith("queue 4 is not what this process has seen before")
