"""Topics that no route takes: refused when they are scheduled; kept when their route has gone since."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delayq import AsyncClient, Client, InvalidMessage, Message, Scheduled, Settings
from delayq.config import load_settings
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

ORDERS = {"name": "orders", "match": "orders.*", "target": "log:"}


def settings_for(server: ServerUnderTest, *routes: dict[str, Any]) -> Settings:
    return load_settings(
        redis_url=server.url, queues=2, routes=json.dumps(routes) if routes else "", redis_timeout=REDIS_TIMEOUT
    )


async def test_it_is_refused_when_it_is_scheduled_alone_or_among_others(valkey: ServerUnderTest) -> None:
    messages = [Message(topic=topic, delay_time=60_000) for topic in ("orders.a", "parcels", "orders.b")]
    async with AsyncClient(settings=settings_for(valkey, ORDERS)) as client:
        with pytest.raises(InvalidMessage, match="no route takes 'parcels'") as caught:
            await client.schedule(messages[1])
        assert caught.value.field == "topic"
        assert [type(one) for one in await client.schedule_many(messages)] == [Scheduled, InvalidMessage, Scheduled]
        assert sum(queue.scheduled for queue in await client.stats()) == 2


def test_an_accepted_message_can_be_moved_and_cancelled_after_its_route_has_gone(valkey: ServerUnderTest) -> None:
    with Client(settings=settings_for(valkey)) as before:
        for id in ("a", "b"):
            before.schedule(Message(topic="parcels", delay_time=60_000, id=id))
    with Client(settings=settings_for(valkey, ORDERS)) as after:
        assert after.reschedule("a", delay_time=120_000).result == "scheduled"
        assert after.cancel("b").result == "cancelled"
