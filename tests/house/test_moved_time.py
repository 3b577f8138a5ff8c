"""A delayq whose time a test moves: what users of `delayq[testing]` get, with a real worker in a process of its own."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delayq import Client, Message, NotDevelopment, Policy, StillDue
from delayq.embedded import EmbeddedServer, EmbeddedServerError
from delayq.store import commands, scripts
from delayq.store.keys import KEYS
from delayq.testing import Service, ServiceError, run
from delayq.testing.pytest_plugin import dq, dq_routes
from delayq.testing.service import make_development_server
from tests.support.receiver import Receiver
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

__all__ = ["dq", "dq_routes"]  # fixtures, as an installed delayq offers them

pytestmark = pytest.mark.processes
TOPIC = "orders.unpaid"
DAY = 86_400_000


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def dq_service(receiver: Receiver) -> Iterator[Service]:
    """One for the file: topics of `hook.` go to a server of the test, those of `sent.` into streams by way of the worker."""
    hook = {"name": "hook", "match": "hook.*", "target": receiver.url()}
    sent: dict[str, Any] = {"name": "sent", "match": "sent.*", "maxBacklog": 1_000}
    routes = [hook, sent, {"name": "streams", "match": "*"}]
    with run(routes=routes, egress_allow="127.0.0.1", redis_timeout=REDIS_TIMEOUT) as service:
        yield service


def order(id: str, delay: str, topic: str = TOPIC) -> Message:
    return Message(topic=topic, id=id, body="x", delay_time=delay, keys=(f"key-{id}",))


def ids(dq: Service) -> list[str]:
    return [message.id for message in dq.delivered]


def test_an_order_is_delivered_once_its_delay_has_passed_and_not_before(dq: Service) -> None:
    scheduled = dq.client.schedule(order("o-1", "30m"))
    dq.advance("29m")
    assert ids(dq) == []
    dq.advance("1m")
    (message,) = dq.delivered
    assert (message.id, message.topic, message.payload, message.due) == ("o-1", TOPIC, b"x", scheduled.due)
    assert (message.keys, message.attempt) == (("key-o-1",), 1)
    assert scheduled.due is not None and dq.now.timestamp() * 1000 >= scheduled.due


def test_a_cancelled_order_is_never_delivered(dq: Service) -> None:
    dq.client.schedule(order("o-1", "30m"))
    dq.advance("29m")
    assert dq.client.cancel("o-1").result == "cancelled"
    dq.advance("1d")
    assert ids(dq) == []


def test_messages_come_in_the_order_of_their_due_times_and_the_next_test_knows_none_of_them(dq: Service) -> None:
    assert (ids(dq), dq.client.get("o-1")) == ([], None)
    delays = {"c": "3h", "a": "1m", "d": "4d", "b": "2m"}
    dq.client.schedule_many([order(id, delay) for id, delay in delays.items()])
    dq.client.schedule(Message(topic=TOPIC, id="dated", body="x", expect_date=dq.now + timedelta(minutes=90)))
    dq.advance("5d")
    assert ids(dq) == ["a", "b", "dated", "c", "d"]


def test_a_client_that_connected_before_time_moved_goes_by_the_time_that_it_is_now(dq: Service) -> None:
    with Client(dq.redis_url) as before:
        before.schedule(order("first", "1m"))
        dq.advance("1h")
        before.schedule(order("second", "1h"))
        dq.advance("30m")
        assert ids(dq) == ["first"]
        dq.advance("30m")
        assert ids(dq) == ["first", "second"]


def test_what_a_target_refuses_is_tried_again_when_its_back_off_is_over(dq: Service, receiver: Receiver) -> None:
    receiver.requests.clear()
    receiver.say(503)
    dq.client.schedule(order("h-1", "30m", "hook.a"))
    dq.advance("30m")
    tried = len(receiver.requests)
    assert tried >= 1
    receiver.say(200)
    dq.advance("10m")
    assert set(receiver.ids) == {"h-1"} and len(receiver.requests) == tried + 1
    (found,) = dq.client.get_many(["h-1"])
    assert found is not None and found.state == "delivered"


def test_a_pause_holds_messages_until_the_time_at_which_it_ends(dq: Service) -> None:
    dq.client.schedule(order("held", "5m"))
    dq.client.pause(TOPIC, until=dq.now + timedelta(minutes=10))
    dq.advance("9m")
    assert ids(dq) == []
    dq.advance("1m")
    assert ids(dq) == ["held"]


@pytest.mark.parametrize("topic", [TOPIC, "sent.a"])
def test_streams_have_the_moved_time_so_groups_begin_at_it_and_retention_counts_from_it(
    dq: Service, topic: str
) -> None:
    dq.client.schedule(order("before", "1m", topic))
    dq.advance("1h")
    start = dq.now
    dq.client.schedule(order("after", "1m", topic))
    dq.advance("2m")
    got = dq.client.receive(topic, group="mail", start=start)
    assert [one.id for one in got] == ["after"]
    (group,) = dq.client.consumers()
    assert group.oldest is not None
    assert start.timestamp() * 1000 < group.oldest.delivered <= dq.now.timestamp() * 1000
    dq.client.put_policy(Policy(name="keep", match=topic, retention_age=DAY, retention_force=True))
    dq.advance("20h")
    dq.client.schedule(order("last", "1h", topic))
    dq.advance("6h")
    eventually(lambda: ids(dq) == ["last"], "older messages are trimmed, and those of the last day stay")


def test_a_consumer_that_waits_gets_what_is_delivered_after_time_was_moved(dq: Service) -> None:
    dq.advance("1h")
    got: list[str] = []
    waiting = threading.Thread(
        target=lambda: got.extend(one.id for one in dq.client.receive(TOPIC, group="mail", wait="60s"))
    )
    waiting.start()
    with Client(dq.redis_url) as other:
        other.schedule(order("o-1", "30m"))
        other.advance("30m")
        waiting.join()
    assert got == ["o-1"]


async def test_a_coroutine_moves_time_by_its_own_client(dq: Service) -> None:
    async with dq.async_client as client:
        await client.schedule(order("a-1", "1h"))
        before = dq.now
        found = await client.advance(timedelta(hours=1))
        assert found.now - before.timestamp() * 1000 >= 3_600_000 - 1
    assert ids(dq) == ["a-1"]


def test_the_environment_counts_for_nothing_and_what_has_no_worker_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DELAYQ_REDIS_URL", "redis://production.example:6379/0")
    monkeypatch.setenv("DELAYQ_ROUTES", json.dumps([{"name": "x", "match": "nothing"}]))
    with run(redis_timeout=REDIS_TIMEOUT) as dq:
        dq.client.schedule(order("first", "1m"))
        dq.advance("1m")
        assert ids(dq) == ["first"]
        dq.client.schedule(order("o-1", "1m"))
        dq._worker.send_signal(signal.SIGTERM)
        dq._worker.wait()
        with pytest.raises(
            ServiceError, match=r"1 queues have messages that are due and not delivered; .*it has ended"
        ):
            dq.advance("2m")
        with pytest.raises(StillDue):
            dq.client.advance("1m")


# -- every other server refuses --------------------------------------------------------------------------------------------


def test_the_time_of_any_other_server_cannot_be_moved(valkey: ServerUnderTest) -> None:
    with Client(valkey.url) as client:
        client.schedule(order("o-1", "1h"))
        with pytest.raises(NotDevelopment, match="only a development server moves its time"):
            client.advance("1h")
        assert client.store.run(commands.advance(KEYS, 5_000)) is None
        assert (valkey.admin.hexists("delayq:meta", "advanced"), valkey.admin.exists("delayq:advanced")) == (False, 0)


def test_only_a_server_that_keeps_no_data_becomes_a_development_server(tmp_path: Path) -> None:
    with (
        EmbeddedServer(data_dir=tmp_path / "data") as server,
        pytest.raises(EmbeddedServerError, match="keeps no data"),
    ):
        make_development_server(server)


def test_a_moved_time_never_goes_back_and_a_repeated_move_changes_nothing(valkey: ServerUnderTest) -> None:
    valkey.admin.hset("delayq:meta", "advanced", 0)
    with Client(valkey.url) as client:
        client.context()
        told = client.store.run_all([commands.advance(KEYS, ms) for ms in (60_000, 60_000, 10)])
        assert told == [60_000, 60_000, 60_000]
        (seconds, _), moved = valkey.admin.time(), client.store.run(commands.redis_now())
        assert abs(moved - seconds * 1_000 - 60_000) < 1_000 + REDIS_TIMEOUT
        due = client.schedule(order("o-1", "0ms")).due
        assert due is not None and due >= moved


@pytest.mark.parametrize("name", scripts.NAMES)
def test_the_scripts_of_production_know_nothing_of_it(name: str) -> None:
    clock = "redis.call('HGET', 'shop:meta', 'advanced')"
    usual, moved = scripts.load(name), scripts.load(name, "shop:meta")
    assert clock not in usual.text
    assert (clock in moved.text) == ("redis.call('TIME')" in usual.text)
    assert usual._replace(text="", sha="") == moved._replace(text="", sha="")
