"""A consumer renews the leases of all messages that it holds, while its handlers work, and gives them back at the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from delayq import AsyncClient, Client, InvalidMessage, StoreError, StoreUnavailable
from delayq.client.consuming import event_loop
from delayq.client.consuming.entries import Leased
from delayq.testing import ManualClock
from tests.store.test_receiving import TOPIC, append, pending, receive
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

LEASE = 30_000
RENEW_EVERY = LEASE // 3


class Renewals:
    """The ids and the new lease of each renewal of a client; the next ones fail with `failures`."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int]] = []
        self.failures: list[Exception] = []
        self._real = client.extend_many
        monkeypatch.setattr(client, "extend_many", self._extend)

    def _extend(self, messages: list[Leased], lease: int) -> Any:
        if lease:
            self.seen.append(("".join(one.id for one in messages), lease))
        if self.failures:
            raise self.failures.pop(0)
        return self._real(messages, lease)


@pytest.fixture
def manual(valkey: ServerUnderTest, clock: ManualClock) -> Iterator[Client]:
    with Client(valkey.url, clock=clock) as made:
        yield made


@pytest.fixture
def renewals(manual: Client, monkeypatch: pytest.MonkeyPatch) -> Renewals:
    return Renewals(manual, monkeypatch)


@pytest.fixture
def other(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made


def advance(clock: ManualClock, ms: int, seen: Sequence[Any]) -> None:
    """Move the time, and return once the renewal has made another call, or logged another line, and waits again."""
    clock.wait_for_waiters()
    count = len(seen)
    clock.advance(ms)
    eventually(lambda: len(seen) > count, "the renewal")
    clock.wait_for_waiters()


def end_leases(valkey: ServerUnderTest) -> None:
    (key,) = valkey.admin.keys("delayq:consumers:*:leases")
    valkey.admin.zadd(key, dict.fromkeys(valkey.admin.zrange(key, 0, -1), 0))


def threads() -> int:
    return sum(one.name == "delayq-leases" for one in threading.enumerate())


def test_a_loop_renews_all_leases_that_it_holds_up_to_the_longest_one(
    manual: Client,
    renewals: Renewals,
    valkey: ServerUnderTest,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for id in "abc":
        append(valkey, id, orderingKey="one")
    with manual.consume(TOPIC, group="mail", lease=LEASE, max_lease="45s") as consumer:
        next(consumer)
        for _ in range(2):
            advance(clock, RENEW_EVERY, renewals.seen)
        advance(clock, RENEW_EVERY, caplog.records)
        assert threads() == 1
    assert renewals.seen == [("abc", LEASE), ("abc", 25_000)]
    warnings = [one.message for one in caplog.records if "no longer renewed" in one.message]
    assert [one.split()[4] for one in warnings] == ["a", "b", "c"]
    assert "45 s after its receipt, the maximum (max_lease)" in warnings[0]
    assert threads() == 0


def test_run_renews_while_its_handlers_work_and_what_is_handled_but_not_acknowledged(
    manual: Client, renewals: Renewals, valkey: ServerUnderTest, clock: ManualClock
) -> None:
    for id in "abc":
        append(valkey, id)
    working, done = threading.Barrier(3), threading.Event()

    def handle(message: Leased) -> None:
        if message.id != "c":
            working.wait(PATIENCE)
            done.wait(PATIENCE)

    consumer = manual.consume(TOPIC, group="mail", lease=LEASE)
    running = threading.Thread(target=consumer.run, args=(handle,), kwargs={"concurrency": 2})
    running.start()
    working.wait(PATIENCE)
    advance(clock, RENEW_EVERY, renewals.seen)
    assert renewals.seen == [("abc", LEASE)], "c waits for a handler"
    consumer.stop()
    done.set()
    running.join(PATIENCE)
    assert receive(manual, max=1)[0].id == "c", "it is given back"
    assert threads() == 0


def test_a_renewal_that_fails_is_tried_again_until_it_succeeds(
    manual: Client,
    renewals: Renewals,
    valkey: ServerUnderTest,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    append(valkey, "a")
    renewals.failures = [StoreUnavailable("away"), RuntimeError("a bug"), StoreError("other")]
    with manual.consume(TOPIC, group="mail", lease=LEASE) as consumer:
        next(consumer)
        advance(clock, RENEW_EVERY, renewals.seen)
        for _ in range(3):
            advance(clock, 500, renewals.seen)
        assert renewals.seen == [("a", LEASE)] * 4
        advance(clock, RENEW_EVERY, renewals.seen)
        assert len(renewals.seen) == 5
    assert sum("cannot renew leases, trying again: away" in one.message for one in caplog.records) == 1


def test_a_lease_that_was_lost_is_logged_and_its_message_is_neither_renewed_nor_handed_out(
    manual: Client,
    renewals: Renewals,
    other: Client,
    valkey: ServerUnderTest,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for id in "abc":
        append(valkey, id)
    with manual.consume(TOPIC, group="mail", lease=LEASE) as consumer:
        first = next(consumer)
        manual.extend(consumer._ahead[0], 0)
        manual.extend(first, 0)
        assert {one.id for one in receive(other)} == {"a", "b"}
        advance(clock, RENEW_EVERY, renewals.seen)
        advance(clock, RENEW_EVERY, renewals.seen)
        assert renewals.seen == [("abc", LEASE), ("c", LEASE)]
        assert next(consumer).id == "c"
        consumer.stop()
        assert list(consumer) == []
    lost = [one.message for one in caplog.records if "was lost" in one.message]
    assert f"the lease of message a of topic {TOPIC} was lost" in lost[0]
    assert [one.split()[4] for one in lost] == ["a", "b", "a"], "by the renewal, and by the acknowledgement of a"


@pytest.mark.parametrize("how", ["ack", "hand_back", "receive"])
def test_a_lost_acknowledgement_is_logged(
    client: Client, other: Client, valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    append(valkey, "a")

    def handle(_: Leased) -> None:
        end_leases(valkey)
        assert [one.id for one in receive(other)] == ["a"]
        consumer.stop()
        if how == "hand_back":
            raise RuntimeError("too late")

    if how == "receive":
        (got,) = receive(client)
        end_leases(valkey)
        receive(other)
        assert receive(client, ack=[got]) == []
    else:
        consumer = client.consume(TOPIC, group="mail")
        consumer.run(handle, concurrency=1)  # it receives nothing while the handler works
    (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "the lease of message a of topic orders.paid was lost" in warning.message


@pytest.mark.parametrize("how", ["break", "exception", "close", "next"])
def test_a_loop_that_ends_gives_back_what_is_left_and_renews_nothing_any_more(
    client: Client, other: Client, valkey: ServerUnderTest, how: str
) -> None:
    for id in "abc":
        append(valkey, id)

    def consume() -> None:
        if how == "next":
            assert next(client.consume(TOPIC, group="mail")).id == "a"
        elif how == "close":
            consumer = client.consume(TOPIC, group="mail")
            next(consumer)
            consumer.close()
        else:
            for message in client.consume(TOPIC, group="mail"):
                if message.id == "b":
                    if how == "break":
                        break
                    raise RuntimeError("no stock")

    with suppress(RuntimeError):
        consume()
    gc.collect()
    eventually(lambda: threads() == 0, "the renewal ends")
    expected = ["b", "c"] if how in ("break", "exception") else ["a", "b", "c"]
    assert [(one.id, one.deliveries) for one in receive(other)] == [(id, 1) for id in expected]
    assert len(pending(valkey)) == len(expected), "what was handled is acknowledged"


def test_the_bounds_of_the_longest_lease(client: Client, valkey: ServerUnderTest) -> None:
    for given in ("29s", "13h"):
        with pytest.raises(InvalidMessage, match="maxLease: is at least the lease, and at most 12 h"):
            client.consume(TOPIC, group="mail", max_lease=given)
    append(valkey, "a")
    with client.consume(TOPIC, group="mail", lease="2h") as consumer:
        assert next(consumer).id == "a"
        assert threads() == 0, "its lease is longer than the default, and is not renewed"


class Pauses:
    """Pauses of asyncio that end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[float] = []
        self._begun = asyncio.Semaphore(0)
        self._ended = asyncio.Semaphore(0)
        monkeypatch.setattr(event_loop, "pause", self._pause)

    async def _pause(self, seconds: float) -> None:
        self.seen.append(seconds)
        self._begun.release()
        await self._ended.acquire()

    async def pass_one(self) -> None:
        """End a pause, and return when the next one has begun."""
        await self._begun.acquire()
        self._ended.release()
        await self._begun.acquire()
        self._begun.release()


@pytest.mark.parametrize("how", ["loop", "run"])
async def test_a_consumer_of_asyncio_renews_too(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for id in "ab":
        append(valkey, id)
    pauses, seen = Pauses(monkeypatch), list[tuple[str, int]]()
    async with AsyncClient(valkey.url) as client:
        real = client.extend_many

        async def extend(messages: list[Leased], lease: int) -> Any:
            seen.append(("".join(one.id for one in messages), lease))
            return await real(messages, lease)

        monkeypatch.setattr(client, "extend_many", extend)
        consumer = client.consume(TOPIC, group="mail", lease=LEASE)
        if how == "loop":
            async for message in consumer:
                assert message.id == "a"
                await pauses.pass_one()
                break
            await consumer.aclose()
        else:

            async def handle(message: Leased) -> None:
                consumer.stop()
                await pauses.pass_one()

            await consumer.run(handle, concurrency=1)
        assert seen == [("ab", LEASE), ("ab" if how == "loop" else "b", 0)]
        assert pauses.seen[:2] == [RENEW_EVERY / 1000] * 2
        assert [one.id for one in await client.receive(TOPIC, group="mail")] == ([*"ab"] if how == "loop" else ["b"])


async def test_a_loop_of_asyncio_that_nobody_ended_gives_back_what_is_left(
    valkey: ServerUnderTest, other: Client
) -> None:
    for id in "abc":
        append(valkey, id)
    async with AsyncClient(valkey.url) as client:
        async for message in client.consume(TOPIC, group="mail"):
            if message.id == "b":
                break
        gc.collect()
    assert [one.id for one in receive(other)] == ["b", "c"], "the client waits for that when it is closed"


def test_a_client_that_is_closed_waits_until_its_forgotten_loops_have_given_back_what_is_left(
    valkey: ServerUnderTest, other: Client
) -> None:
    for id in "abc":
        append(valkey, id)
    with Client(valkey.url) as client:
        for message in client.consume(TOPIC, group="mail"):
            if message.id == "b":
                break
        gc.collect()
    assert threads() == 0
    assert [one.id for one in receive(other)] == ["b", "c"]


async def test_an_event_loop_that_was_blocked_is_logged(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append(valkey, "a")
    clock, pauses = ManualClock(), Pauses(monkeypatch)
    async with AsyncClient(valkey.url, clock=clock) as client, client.consume(TOPIC, group="mail") as consumer:
        await anext(consumer)
        clock.advance(25_000)
        await pauses.pass_one()
    (late,) = [one.message for one in caplog.records if "late" in one.message]
    assert (
        late == "leases are renewed 15000 ms late: the event loop was blocked; let asyncio.to_thread call what blocks"
    )
