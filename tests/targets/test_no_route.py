"""Topics that no route takes: refused when they are scheduled; kept when their route has gone since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delayq import AsyncClient, Client, InvalidMessage, Message, Scheduled, Settings
from delayq.config import load_settings
from delayq.testing import MemoryTarget, register_memory_target
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

ORDERS = {"name": "orders", "match": "orders.*", "target": "log:"}


def settings_for(server: ServerUnderTest, *routes: dict[str, Any]) -> Settings:
    return load_settings(
        redis_url=server.url, queues=2, routes=json.dumps(routes) if routes else "", redis_timeout=REDIS_TIMEOUT
    )


def in_batch() -> list[Message]:
    return [Message(topic=topic, delay_time=60_000) for topic in ("orders.a", "parcels", "orders.b")]


@pytest.mark.parametrize("kind", ["inline", "yaml", "toml", "json"])
def test_it_is_refused_when_it_is_scheduled_wherever_the_table_stands(
    valkey: ServerUnderTest, tmp_path: Path, kind: str
) -> None:
    table = {
        "inline": json.dumps([ORDERS]),
        "json": json.dumps({"routes": [ORDERS]}),
        "yaml": "routes:\n  - {name: orders, match: 'orders.*', target: 'log:'}\n",
        "toml": '[[routes]]\nname = "orders"\nmatch = "orders.*"\ntarget = "log:"\n',
    }[kind]
    if kind != "inline":
        file = tmp_path / f"routes.{kind}"
        file.write_text(table)
        table = str(file)
    with Client(settings=load_settings(redis_url=valkey.url, queues=2, routes=table)) as client:
        with pytest.raises(InvalidMessage) as caught:
            client.schedule(Message(topic="parcels", delay_time=60_000))
        assert caught.value.field == "topic"
        first, second, third = client.schedule_many(in_batch())
        assert isinstance(second, InvalidMessage)
        assert isinstance(first, Scheduled) and isinstance(third, Scheduled)
        assert sum(queue.scheduled for queue in client.stats()) == 2


async def test_the_asynchronous_client_refuses_it_too(valkey: ServerUnderTest) -> None:
    async with AsyncClient(settings=settings_for(valkey, ORDERS)) as client:
        with pytest.raises(InvalidMessage, match="no route takes 'parcels'"):
            await client.schedule(Message(topic="parcels", delay_time=60_000))
        assert [type(one) for one in await client.schedule_many(in_batch())] == [Scheduled, InvalidMessage, Scheduled]


def test_an_accepted_message_can_be_moved_and_cancelled_after_its_route_has_gone(valkey: ServerUnderTest) -> None:
    with Client(settings=settings_for(valkey)) as before:
        for id in ("a", "b"):
            before.schedule(Message(topic="parcels", delay_time=60_000, id=id))
    with Client(settings=settings_for(valkey, ORDERS)) as after:
        assert after.reschedule("a", delay_time=120_000).result == "scheduled"
        assert after.cancel("b").result == "cancelled"


def test_what_is_due_without_a_route_is_kept_until_there_is_one(valkey: ServerUnderTest) -> None:
    with Client(settings=settings_for(valkey)) as before:
        for number in range(20):
            before.schedule(Message(topic="parcels", delay_time=0, id=f"p{number}"))
    settings = settings_for(valkey, ORDERS)
    with RunningNode(settings), Client(settings=settings) as client:
        eventually(lambda: sum(queue.parked for queue in client.stats()) == 20, "all are kept aside")
        found = client.get("p0")
        assert found is not None and (found.state, found.attempts) == ("parked", 0)
    target = MemoryTarget()
    parcels = {"name": "parcels", "match": "parcels", "target": register_memory_target(target, "parcels")}
    with RunningNode(settings_for(valkey, ORDERS, parcels)):
        target.wait_for_ids([f"p{number}" for number in range(20)])
    assert sorted(target.ids) == sorted(f"p{number}" for number in range(20))
