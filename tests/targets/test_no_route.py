"""Topics that no route of a live worker takes: refused wherever they are scheduled; kept when their route has gone since."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import AsyncClient, Client, InvalidMessage, Message, Scheduled, Settings
from delayq.cli import main
from delayq.client.known_routes import NO_WORKER, OLDEST
from delayq.config import load_settings
from delayq.domain.nodes import LINE_AGE
from delayq.domain.policies import Policy
from delayq.testing import ManualClock
from tests.support.nodes import publish_routes
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT

ORDERS = {"name": "orders", "match": "orders.*", "target": "log:"}
PARCELS = {"name": "parcels", "match": "parcels", "target": "log:"}


def settings_for(server: ServerUnderTest, *routes: dict[str, Any]) -> Settings:
    return load_settings(
        redis_url=server.url, queues=2, routes=json.dumps(routes) if routes else "", redis_timeout=REDIS_TIMEOUT
    )


def message(topic: str) -> Message:
    return Message(topic=topic, delay_time=60_000)


async def test_it_is_refused_when_it_is_scheduled_alone_or_among_others(valkey: ServerUnderTest) -> None:
    publish_routes(valkey.url, [ORDERS])
    messages = [message(topic) for topic in ("orders.a", "parcels", "orders.b")]
    async with AsyncClient(settings=settings_for(valkey, PARCELS)) as client:
        with pytest.raises(InvalidMessage, match="no live worker has a route for 'parcels'") as caught:
            await client.schedule(messages[1])
        assert caught.value.field == "topic"
        assert [type(one) for one in await client.schedule_many(messages)] == [Scheduled, InvalidMessage, Scheduled]
        assert sum(queue.scheduled for queue in await client.queues()) == 2
    async with AsyncClient(settings=settings_for(valkey, PARCELS), check_routes=False) as client:
        assert {type(one) for one in await client.schedule_many(messages)} == {Scheduled}


def hgetalls(server: ServerUnderTest) -> int:
    with redis.Redis.from_url(server.url) as admin:
        found: dict[str, Any] = admin.info("commandstats")
    return int(found.get("cmdstat_hgetall", {"calls": 0})["calls"])


def test_a_client_follows_the_workers_within_5_s_and_asks_them_once_in_a_while_however_often_it_schedules(
    valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    publish_routes(valkey.url, [ORDERS])
    with Client(settings=settings_for(valkey), clock=clock) as client:
        client.schedule(message("orders.a"))
        before = hgetalls(valkey)
        for _ in range(20):
            client.schedule(message("orders.a"))
            client.schedule_many([message("orders.b")])
        assert hgetalls(valkey) == before
        publish_routes(valkey.url, [ORDERS], [PARCELS])
        clock.advance(OLDEST)
        client.schedule(message("parcels"))
        assert hgetalls(valkey) == before + 1
        publish_routes(valkey.url, [ORDERS], [ORDERS])
        clock.advance(OLDEST)
        assert isinstance(client.schedule_many([message("parcels")])[0], InvalidMessage)
        assert caplog.messages == []
        publish_routes(valkey.url, [ORDERS], [ORDERS], age=LINE_AGE + 1)
        for _ in range(2):
            clock.advance(OLDEST)
            client.schedule(message("parcels"))
        assert caplog.messages == [NO_WORKER]


async def test_many_tasks_that_find_the_tables_too_old_ask_the_workers_once(valkey: ServerUnderTest) -> None:
    clock = ManualClock()
    publish_routes(valkey.url, [ORDERS])
    async with AsyncClient(settings=settings_for(valkey), clock=clock) as client:
        await client.schedule(message("orders.a"))
        publish_routes(valkey.url, [PARCELS])
        clock.advance(OLDEST)
        before = hgetalls(valkey)
        found = await asyncio.gather(*(client.schedule(message("orders.a")) for _ in range(50)), return_exceptions=True)
        assert {type(one) for one in found} == {InvalidMessage}
        assert hgetalls(valkey) == before + 1


def test_the_command_line_refuses_it_and_warns_without_a_worker(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", valkey.url)
    monkeypatch.setenv("DELAYQ_ROUTES", json.dumps([PARCELS]))
    table = tmp_path / "rows.csv"
    table.write_text("id,expect_date\na,2033-01-01T00:00:00Z\nb,2033-01-01T00:00:00Z\n")
    schedule = ["schedule", "parcels", "x", "--delay", "1h"]
    backfill = ["backfill", str(table), "--format", "csv", "--local", "--topic", "parcels"]

    def run(*args: str) -> tuple[int, str]:
        code = main(args)
        return code, capsys.readouterr().err

    publish_routes(valkey.url, [ORDERS])
    code, said = run(*schedule)
    assert (code, "TOPIC: no live worker has a route for 'parcels'" in said) == (2, True)
    assert run(*backfill, "--dry-run")[0] == 1
    assert run(*backfill)[0] == 1
    assert run(*schedule, "--no-route-check") == (0, "")
    assert run(*backfill, "--no-route-check", "--dry-run")[0] == 0
    code, said = run(*backfill, "--no-route-check")
    assert (code, NO_WORKER in said) == (0, False)
    publish_routes(valkey.url, [ORDERS], age=LINE_AGE + 1)
    for command in (schedule, backfill):
        code, said = run(*command)
        assert (code, said.count(NO_WORKER)) == (0, 1)
    assert run("cancel", "a")[1] == "", "who schedules nothing is not warned"


def test_what_is_known_of_the_workers_routes_stands_above_what_is_set_here(
    valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    streams = {"name": "streams", "match": "*", "target": "redis+stream:", "local": True}
    ways: dict[str, Callable[[Client], Any]] = {
        "topic": lambda client: client.topic("orders.a").route,
        "topics": lambda client: [one.route for one in client.topics(match="orders.*")],
        "findings": lambda client: [one.code for one in client.status() if one.code in ("parked", "streams")],
    }
    with Client(settings=settings_for(valkey, {"name": "mine", "match": "*", "target": "log:"})) as client:
        client.schedule(message("orders.a"))
        client.pause("orders.a")
        assert {name: way(client) for name, way in ways.items()} == {
            "topic": "mine", "topics": ["mine"], "findings": []
        }  # fmt: skip
        publish_routes(valkey.url, [ORDERS])
        assert {name: way(client) for name, way in ways.items()} == {
            "topic": "orders", "topics": ["orders"], "findings": []
        }  # fmt: skip
        limit = Policy(name="few", match="orders.*", max_in_flight=1)
        publish_routes(valkey.url, [streams])
        with pytest.raises(InvalidMessage, match="route streams appends such topics to streams"):
            client.put_policy(limit)
        publish_routes(valkey.url, [streams], [ORDERS])
        assert client.put_policy(limit).changed
    assert caplog.messages == [NO_WORKER]


def test_an_accepted_message_can_be_moved_and_cancelled_after_its_route_has_gone(valkey: ServerUnderTest) -> None:
    with Client(settings=settings_for(valkey)) as client:
        for id in ("a", "b"):
            client.schedule(Message(topic="parcels", delay_time=60_000, id=id))
        publish_routes(valkey.url, [ORDERS])
        assert client.reschedule("a", delay_time=120_000).result == "scheduled"
        assert client.cancel("b").result == "cancelled"
