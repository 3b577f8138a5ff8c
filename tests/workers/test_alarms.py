"""What the worker says of a Redis that cannot be trusted, and of messages that are not there any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from delayq.client.client import Client
from delayq.domain.message import Message
from delayq.domain.nodes import Complaint
from delayq.store.keys import KEYS
from tests.support.servers import ServerUnderTest
from workers.node.duties.alarms import Alarms

Said = list[tuple[str, str]]


@pytest.fixture
def client(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made
    valkey.admin.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def watch(client: Client) -> Alarms:
    return Alarms(client.store, range(16))


def look(watch: Alarms) -> Said:
    with structlog.testing.capture_logs() as logs:
        watch.look_at_server()
        watch.look_at_queues()
    return [(one["event"], one["text"]) for one in logs]


@pytest.mark.parametrize(
    ("option", "wrong", "right", "says"),
    [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "maxmemory-policy is allkeys-lru"),
        ("appendfsync", "everysec", "always", "with appendfsync everysec: no change can be confirmed"),
    ],
)
def test_a_setting_that_is_changed_at_run_time_is_told_once_and_so_is_its_end(
    client: Client, valkey: ServerUnderTest, option: str, wrong: str, right: str, says: str
) -> None:
    watch = Alarms(client.store, range(16), fsync="always" if option == "appendfsync" else "")
    valkey.admin.config_set(option, wrong)
    ((event, text),) = look(watch)
    assert (event, says in text) == ("alarm", True)
    assert look(watch) == []
    assert len(watch.current) == 1
    valkey.admin.config_set(option, right)
    try:
        assert look(watch) == [("alarm_over", text)]
        assert watch.current == {}
    finally:
        valkey.admin.config_set("appendfsync", "everysec")


def test_messages_that_are_missing_are_told_once_however_many_more_there_come_to_be(
    watch: Alarms, client: Client, valkey: ServerUnderTest
) -> None:
    first, second = (client.schedule(Message(topic="t", delay_time=60_000, id=f"{name}.0003")) for name in "ab")
    assert look(watch) == []
    assert (watch.current, watch.missing) == ({}, 0)
    admin: Any = valkey.admin
    admin.hdel(KEYS.queue(3).pool, first.id)
    ((event, text),) = look(watch)
    assert (event, text.startswith("1 message is missing from queue 3")) == ("alarm", True)
    admin.hdel(KEYS.queue(3).pool, second.id)
    assert look(watch) == []
    assert watch.missing == 2


def test_only_what_no_other_look_at_redis_tells_is_an_alarm_of_its_own(
    watch: Alarms, client: Client, valkey: ServerUnderTest
) -> None:
    client.schedule(Message(topic="t", delay_time=60_000, id="a.0003"))
    admin: Any = valkey.admin
    admin.hset(KEYS.queue(4).state, "born", "then")
    look(watch)
    admin.hdel(KEYS.queue(3).pool, "a.0003")
    valkey.admin.config_set("maxmemory-policy", "allkeys-lru")
    assert (len(look(watch)), watch.own) == (2, [])  # the findings have both
    admin.hset(KEYS.queue(4).state, "born", "since")
    ((_, text),) = look(watch)
    assert watch.own == [Complaint(text, "DelayqAlarm")]
    assert text.startswith("queue 4 is not what this process has seen before")
