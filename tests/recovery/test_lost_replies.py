"""Replies that are lost after the command ran: no duplicate message, no loss."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from delayq import Client, Message, StoreUnavailable
from delayq.errors import DelayqError
from delayq.testing import MemoryTarget
from tests.recovery.conftest import pending, schedule_all, stream_ids
from tests.support.nodes import RunningNode, settings_for
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

Clients = Callable[..., Client]


@pytest.fixture
def client(valkey: ServerUnderTest, clients: Clients) -> Client:
    """A client that no fault touches."""
    return clients(valkey.url)


@pytest.fixture
def troubled(proxy: FaultProxy, clients: Clients) -> Client:
    """A client behind the proxy."""
    client = clients(proxy.url)
    client.stats()  # agrees on the layout, and connects
    return client


@pytest.fixture
def node(proxy: FaultProxy, target: MemoryTarget) -> Iterator[RunningNode]:
    """A node behind the proxy."""
    with RunningNode(settings_for(proxy.url, target)) as running:
        yield running


# -- schedule ------------------------------------------------------------------------------------------------------------


def test_a_schedule_whose_reply_was_lost_makes_one_message(troubled: Client, proxy: FaultProxy) -> None:
    proxy.drop_reply("schedule")
    scheduled = troubled.schedule(Message(topic="t", delay_time=60_000))
    assert proxy.dropped == ["schedule"]
    assert not scheduled.created  # the second run found what the first had made
    assert pending(troubled) == 1
    found = troubled.get(scheduled.id)
    assert found is not None
    assert found.due == scheduled.due


# -- cancel and the rest -------------------------------------------------------------------------------------------------


def test_a_cancel_whose_reply_was_lost_gives_the_same_answer(troubled: Client, proxy: FaultProxy) -> None:
    far, due = (troubled.schedule(Message(topic="t", delay_time=delay)).id for delay in (60_000, 0))
    proxy.drop_reply("cancel")
    assert troubled.cancel(far).result == "cancelled"
    proxy.drop_reply("cancel", times=2)
    with pytest.raises(StoreUnavailable):
        troubled.cancel(due)
    assert troubled.cancel(due).result == "in_flight"
    assert proxy.dropped == ["cancel"] * 3
    assert pending(troubled) == 0


def test_a_redrive_whose_reply_was_lost_schedules_once(
    troubled: Client, proxy: FaultProxy, target: MemoryTarget
) -> None:
    target.answer("rejected", reason="no such user")
    with RunningNode(settings_for(proxy.url, target)):
        (id,) = schedule_all(troubled, "m.t", 1)
        eventually(lambda: troubled.dead_letters().letters, "it is buried")
    proxy.drop_reply("redrive")
    troubled.redrive([id])
    assert proxy.dropped == ["redrive"]
    assert pending(troubled) == 1
    assert troubled.dead_letters().letters == []


# -- a node --------------------------------------------------------------------------------------------------------------


def test_a_retry_whose_reply_was_lost_burns_no_attempt_twice(
    node: RunningNode, client: Client, proxy: FaultProxy, target: MemoryTarget
) -> None:
    target.answer("unknown", times=2)
    proxy.drop_reply("retry", times=3)
    (id,) = schedule_all(client, "m.t", 1)
    target.wait_for_ids([id])
    assert [one.attempt for one in target.attempted] == [1, 2, 3]
    assert proxy.dropped == ["retry"] * 3


def test_a_burial_whose_reply_was_lost_makes_one_dead_letter(
    node: RunningNode, client: Client, proxy: FaultProxy, target: MemoryTarget
) -> None:
    target.answer("rejected", reason="no such user")
    proxy.drop_reply("bury", times=3)
    (id,) = schedule_all(client, "m.t", 1)
    eventually(lambda: not proxy.armed and client.dead_letters().letters, "it is buried")
    (letter,) = client.dead_letters().letters
    assert (letter.id, letter.attempts, letter.reason) == (id, 1, "no such user")
    assert len(target.attempted) == 1


def test_what_is_parked_comes_back_though_replies_are_lost(
    node: RunningNode, client: Client, proxy: FaultProxy, target: MemoryTarget
) -> None:
    target.answer("unavailable")
    ids = schedule_all(client, "m.t", 30, max_attempts=1_000)
    eventually(lambda: sum(stats.parked for stats in client.stats()) > 0, "the circuit is open")
    for script in ("park", "unpark", "park", "unpark"):
        proxy.drop_reply(script)
    target.behave()
    target.wait_for_ids(ids, timeout=30)
    eventually(lambda: pending(client) == 0, "everything is acked")
    assert sorted(target.ids) == sorted(ids)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_load_over_a_link_that_keeps_losing_replies_is_delivered_exactly_once(
    node: RunningNode,
    client: Client,
    troubled: Client,
    proxy: FaultProxy,
    target: MemoryTarget,
    valkey: ServerUnderTest,
    seed: int,
) -> None:
    chance = random.Random(seed)
    scripts = ("schedule", "pull", "ack", "cancel", "retry", "claim")
    for script in scripts:  # each command of these is unlucky now and then
        proxy.drop_reply(script, times=40, when=lambda _: chance.random() < 0.2)
    for turn in range(0, 60, 7):
        target.answer("unknown", id=f"m.t-{turn}-3", times=2)
    accepted: dict[str, set[str]] = {"m.t": set(), "s": set()}
    cancelled: set[str] = set()
    for turn in range(60):
        for topic, ids in accepted.items():
            wanted = [
                Message(topic=topic, id=f"{topic}-{turn}-{number}", delay_time=chance.choice([0, 5, 300]))
                for number in range(10)
            ]
            for message in wanted:
                while True:
                    try:
                        ids.add(troubled.schedule(message).id)
                        break
                    except StoreUnavailable:
                        continue
            unlucky = chance.choice(wanted).id
            assert unlucky is not None
            outcome: list[object] = [DelayqError()]
            while isinstance(outcome[0], DelayqError):
                outcome = troubled.cancel_many([unlucky])
            if outcome[0].result == "cancelled":  # type: ignore[attr-defined]  # it is a Cancelled now
                cancelled.add(unlucky)
    proxy.heal()
    eventually(lambda: pending(client) == 0, "everything is delivered", seconds=30)
    assert set(proxy.dropped) >= {"schedule", "pull"}  # an ack has others beside it in its packet, and may be spared
    for topic, delivered in {"m.t": target.ids, "s": stream_ids(valkey, "s")}.items():
        assert [id for id, count in Counter(delivered).items() if count > 1] == []
        assert set(delivered) & cancelled == set()
        lost = accepted[topic] - set(delivered) - cancelled
        assert {found and found.state for found in client.get_many(sorted(lost))} <= {"removed_in_flight"}
