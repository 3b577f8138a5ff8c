"""Cancel and reschedule against delivery, within milliseconds of the due: what was promised holds."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import pytest

from delayq import Client, Message
from delayq.testing import MemoryTarget
from tests.recovery.conftest import pending
from tests.support.nodes import RunningNode, settings_for
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

Clients = Callable[..., Client]
SPREAD = 600  # ms over which the messages fall due


def arrivals(server: ServerUnderTest, target: MemoryTarget, topic: str) -> dict[str, list[int]]:
    """When each message arrived, Unix ms."""
    found: dict[str, list[int]] = {}
    if topic == "s":
        for entry_id, entry in server.admin.xrange("s"):
            found.setdefault(entry[b"id"].decode(), []).append(int(entry_id.split(b"-")[0]))
    for one in target.deliveries:
        found.setdefault(one.id, []).append(one.at)
    return found


def around_their_dues(dues: Mapping[str, int], chance: random.Random) -> Iterator[str]:
    """The ids, each not before 10 ms ahead of its due, in an order that is off by up to 10 ms.

    Those that a slow machine comes to much later are left out: of them nothing is to be seen.
    """
    for id, due in sorted(dues.items(), key=lambda pair: pair[1] + chance.randrange(-10, 11)):
        while (now := time.time_ns() // 1_000_000) < due - 10:
            pass
        if now <= due + 10:
            yield id


@pytest.mark.parametrize("topic", ["m.t", "s"])
def test_a_cancelled_message_is_never_forwarded(
    valkey: ServerUnderTest, target: MemoryTarget, clients: Clients, topic: str
) -> None:
    client, chance = clients(valkey.url), random.Random(3)
    with RunningNode(settings_for(valkey.url, target)):
        start = time.time_ns() // 1_000_000 + 100
        dues = {f"m-{number}": start + chance.randrange(SPREAD) for number in range(1_000)}
        client.schedule_many(Message(topic=topic, id=id, expect_date=due) for id, due in dues.items())
        answers: dict[str, str] = {}
        for id in around_their_dues(dues, chance):
            answers[id] = client.cancel(id).result
        eventually(lambda: pending(client) == 0, "everything is delivered or cancelled")
    found = arrivals(valkey, target, topic)
    counts = Counter(answers.values())
    print(f"answers: {dict(counts)}")
    assert set(counts) <= {"cancelled", "in_flight", "delivered"}
    assert counts["cancelled"] > 10
    assert [id for id in found if answers.get(id) == "cancelled"] == []
    assert [id for id, answer in answers.items() if answer == "delivered" and id not in found] == []
    assert [id for id, times in found.items() if len(times) > 1 or times[0] < dues[id]] == []


@pytest.mark.parametrize("topic", ["m.t", "s"])
def test_a_rescheduled_message_is_not_forwarded_before_its_new_due(
    valkey: ServerUnderTest, target: MemoryTarget, clients: Clients, topic: str
) -> None:
    client, chance = clients(valkey.url), random.Random(4)
    with RunningNode(settings_for(valkey.url, target)):
        start = time.time_ns() // 1_000_000 + 100
        dues = {f"m-{number}": start + chance.randrange(SPREAD) for number in range(600)}
        client.schedule_many(Message(topic=topic, id=id, expect_date=due) for id, due in dues.items())
        moved: dict[str, int] = {}
        for id in around_their_dues(dues, chance):
            answer = client.reschedule(id, delay_time=chance.choice([0, 50, 300]))
            assert answer.result in ("scheduled", "in_flight", "delivered")
            if answer.due is not None:
                moved[id] = answer.due
        eventually(lambda: pending(client) == 0, "everything is delivered")
    found = arrivals(valkey, target, topic)
    assert len(moved) > 10
    assert found.keys() == dues.keys()
    assert [id for id, times in found.items() if len(times) > 1 or times[0] < moved.get(id, dues[id])] == []
