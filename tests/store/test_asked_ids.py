"""A message is found by the id that its caller gave, with the suffix of its ordering key or without."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Client, Message, StoreError
from delayq.domain.codec import due_head, encode
from delayq.domain.message import Limits
from delayq.store import commands
from delayq.store.commands import Retention
from delayq.store.keys import KEYS, Layout
from tests.support.queues import EPOCH, taken
from tests.support.servers import ServerUnderTest

QUEUES = 16
WINDOW = 900_000


def schedule(client: Client, id: str, key: str = "shop-7", **more: Any) -> str:
    """The whole id."""
    given: dict[str, Any] = {"topic": "orders", "body": "x", "delay_time": 60_000} | more
    scheduled = client.schedule(Message(id=id, ordering_key=key, **given))
    assert scheduled.id == Layout.keyed_id(id, key) != id
    assert scheduled.queue != Layout(QUEUES).queue_of(id), "the case is none: choose another id"
    return scheduled.id


def members(valkey: ServerUnderTest) -> set[bytes]:
    """All of the indexes."""
    return {one for queue in range(QUEUES) for one in valkey.admin.zrange(KEYS.queue(queue).index, 0, -1)}


def take(client: Client, id: str) -> tuple[Any, Any]:
    """A pulled message and its queue's keys."""
    keys = KEYS.queue(Layout(QUEUES).queue_of(id))
    (one,) = taken(client.store.run(commands.pull(keys, EPOCH, offset=0, room=10)))
    return keys, one


def test_it_is_found_moved_and_cancelled_by_either_id_and_the_same_again_says_the_same(client: Client) -> None:
    whole = schedule(client, "order-42")
    for id in ("order-42", whole):
        (found,) = client.get_many([id])
        assert found is not None and (found.id, found.state) == (whole, "scheduled")
    moved = client.reschedule("order-42", delay_time=120_000)
    assert (moved.id, moved.result) == (whole, "scheduled")
    for id in ("order-42", whole, "order-42"):
        assert client.cancel(id).result == "cancelled"
        assert client.reschedule(id, delay_time=1).result == "cancelled"
        ended = client.get(id)
        assert ended is not None and (ended.id, ended.state) == (whole, "cancelled")


def test_one_that_was_delivered_is_known_as_long_as_its_whole_id(client: Client, valkey: ServerUnderTest) -> None:
    whole = schedule(client, "order-42", delay_time=0, keys=("k",))
    keys, one = take(client, whole)
    client.store.run(commands.ack(keys, EPOCH, [one]))
    for id in ("order-42", whole):
        ended = client.get(id)
        assert ended is not None and ended.state == "delivered"
        assert client.cancel(id).result == "delivered"
    assert len(members(valkey)) == 2  # the one that was given, and the business key
    # Long after the window the queue is pulled again: the id is forgotten in both ways.
    other = schedule(client, "order-43", delay_time=0)
    now = client.store.run(commands.redis_now()) + 2 * WINDOW
    client.store.run(commands.pull(keys, EPOCH, offset=0, room=10, now=now, node_now=now))
    assert client.get(whole) is None and client.get("order-42") is None
    assert members(valkey) == {b"\1order-43\0" + other.encode()}


def test_a_dead_letter_is_put_back_and_discarded_by_either_id(client: Client) -> None:
    whole = schedule(client, "order-42", delay_time=0)
    for redriven in (False, True):
        keys, one = take(client, whole)
        assert client.store.run(commands.bury(keys, EPOCH, [(one, 1, "broken")])) == ["ok"]
        found = client.get("order-42")
        assert found is not None and found.state == "dead"
        if not redriven:
            assert client.redrive(["order-42"]) == ["scheduled"]
    assert [client.discard(id) for id in ("order-42", whole, "order-42")] == [True] * 3  # it says the same again


def test_an_id_that_stands_for_several_messages_finds_none_of_them_unless_one_is_just_that(client: Client) -> None:
    first, second = schedule(client, "order-42"), schedule(client, "order-42", "shop-8")
    assert client.get("order-42") is None
    assert client.cancel("order-42").result == "notFound"
    assert client.cancel(first).result == "cancelled"
    client.schedule(Message(topic="orders", id="order-42", delay_time=60_000))
    assert client.cancel("order-42").id == "order-42"
    found = client.get_many(["order-42", second])
    assert [one and one.state for one in found] == ["cancelled", "scheduled"]


def test_one_that_outlived_its_own_ended_id_keeps_its_way(client: Client, valkey: ServerUnderTest) -> None:
    whole = schedule(client, "order-42")
    assert client.cancel(whole).result == "cancelled"
    keys = KEYS.queue(Layout(QUEUES).queue_of(whole))
    # Its window has passed, but nothing has forgotten it yet.
    later = client.store.run(commands.redis_now()) + 2 * WINDOW
    message = Message(topic="orders", id=whole, ordering_key="shop-7", expect_date=later + 60_000)
    body = encode(message, Limits(), due_head(later + 60_000))
    answers = client.store.run(commands.schedule(keys, "A", [whole], [body], now=later))
    assert answers.others == {}
    client.store.run(commands.cancel(keys, ["nobody"], now=later, retention=Retention(window=1, most=0)))
    assert client.store.run(commands.stats(keys)).remembered == 0
    found = client.get("order-42")
    assert found is not None and found.state == "scheduled"


def test_ids_made_here_and_ids_without_an_ordering_key_cost_nothing(
    client: Client, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.schedule(Message(topic="orders", ordering_key="shop-7", delay_time=60_000))
    client.schedule(Message(topic="orders", id="order-1", delay_time=60_000))
    assert members(valkey) == set()
    asked: list[str] = []
    run_many = client.store.run_many

    def noting(wanted: Any) -> Any:
        whole = list(wanted)
        asked.extend(command.script for command in whole)
        return run_many(whole)

    monkeypatch.setattr(client.store, "run_many", noting)
    assert client.get("order-1") is not None
    assert asked == ["get"]
    assert client.get("nobody.1a2b") is None  # it says where it would be
    assert asked == ["get", "get"]
    assert client.get("nobody") is None
    assert asked.count("asked") == QUEUES


def test_if_a_queue_cannot_say_whether_it_has_it_nobody_is_told_that_there_is_none(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule(client, "order-42")
    away = StoreError("away")
    run_many = client.store.run_many

    def losing(wanted: Any) -> Any:
        return [away if command.script == "asked" else run_many([command])[0] for command in wanted]

    monkeypatch.setattr(client.store, "run_many", losing)
    (outcome,) = client.cancel_many(["order-42"])
    assert outcome is away
