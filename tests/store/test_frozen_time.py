"""Waits end by real time in a test that freezes the time of its process, as freezegun does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import FunctionType
from typing import Any

import pytest

from delayq import AsyncClient, Client, StoreUnavailable, http
from delayq.base.clock import SystemClock, is_frozen, pause
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store.connect import event_loop
from tests.support.servers import ServerUnderTest

#: Modules that freezegun does not touch.
IGNORED = ("threading", "multiprocessing", "queue", "_pytest", "pytest", "pluggy")
CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


def _constant(value: Any) -> FunctionType:
    def frozen() -> Any:
        return value

    return frozen  # type: ignore[return-value]  # a function is one


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clocks in every module that refers to one."""
    fakes = {id(getattr(time, name)): _constant(getattr(time, name)()) for name in CLOCKS}
    for name, module in list(sys.modules.items()):
        if not name.startswith(IGNORED):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in fakes:
                    monkeypatch.setattr(module, attribute, fakes[id(value)])
    assert time.monotonic() == time.monotonic()
    assert is_frozen()


@pytest.mark.usefixtures("frozen")
def test_the_clock_of_waits_goes_on_while_the_time_of_day_stands_still() -> None:
    clock = SystemClock()
    now, began, precise = clock.now(), clock.monotonic(), clock.precise()
    pause(clock, 5)
    assert clock.now() == now
    assert clock.monotonic() >= began + 4
    assert clock.precise() > precise


@pytest.mark.usefixtures("frozen")
def test_a_receive_ends_its_wait(client: Client, valkey: ServerUnderTest) -> None:
    assert client.receive("nothing", group="g", wait=5) == []
    assert client.receive(["nothing", "neither"], group="g", wait=5) == []


@pytest.mark.usefixtures("frozen")
def test_a_consumer_without_topics_ends(client: Client) -> None:
    consumer = client.consume("none.*", group="g")
    threading.Timer(0.01, consumer.stop).start()
    assert list(consumer) == []


@pytest.mark.usefixtures("frozen")
def test_a_pause_ends_its_wait_for_messages_that_arrive(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from delayq.client.changing import policies

    real = policies.paused

    def one_arrives(keys: Any, found: Any) -> Any:
        done = yield from real(keys, found)
        return type(done)(**{name: getattr(done, name) for name in done.__struct_fields__} | {"in_flight": 1})

    monkeypatch.setattr(policies, "paused", one_arrives)
    assert client.pause("orders.*", wait=5).in_flight == 1


@pytest.mark.usefixtures("frozen")
def test_a_call_of_the_api_gives_up() -> None:
    with (
        http.Client(f"http://{LOCALHOST}:{free_port()}", give_up_after=300) as client,
        pytest.raises(StoreUnavailable, match="no answer"),
    ):
        client.count()


@pytest.mark.usefixtures("frozen")
def test_waits_of_asyncio_end_though_the_time_of_the_loop_stands_still(valkey: ServerUnderTest) -> None:
    async def main() -> None:
        await event_loop.pause(0.001)
        async with AsyncClient(valkey.url) as client:
            assert await client.receive("nothing", group="g", wait=5) == []
            consumer = client.consume("none.*", group="g")
            threading.Timer(0.01, consumer.stop).start()
            async for _ in consumer:
                raise AssertionError("nothing is there")
        url = f"http://{LOCALHOST}:{free_port()}"
        async with http.AsyncClient(url, give_up_after=300) as api:
            with pytest.raises(StoreUnavailable, match="no answer"):
                await api.count()
        waiting = asyncio.ensure_future(event_loop.pause(3_600))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
