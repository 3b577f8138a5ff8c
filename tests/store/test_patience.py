"""A consumer tries again while its server is away, and ends by an error that does not pass; and what its handlers raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import (
    AsyncClient,
    Client,
    ConfigError,
    DelayqError,
    InvalidMessage,
    LayoutMismatch,
    Message,
    NotAllowed,
    NotDone,
    OtherFilter,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from delayq.base.errors import StoreRefused
from delayq.client import async_consumer
from delayq.client import consumer as consuming
from delayq.client.consuming.entries import Leased
from delayq.domain.routes import Route, Routes
from tests.store.test_receiving import TOPIC, append, pending, receive
from tests.support.servers import ServerUnderTest

PASSING = [
    StoreUnavailable("away"),
    NotDone("READONLY You can't write against a read only replica."),
    StoreFull("OOM command not allowed"),
    StoreError("MISCONF Redis is configured to save RDB snapshots"),
]
LASTING = [
    NotAllowed("the key has no right"),
    InvalidMessage("topic", "no live worker has a route for it"),
    OtherFilter("mail", ("paid",)),
    StoreRefused("NOPERM"),
    ConfigError("is this the URL of its API?"),
    LayoutMismatch("other queues"),
]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (consuming, async_consumer):
        monkeypatch.setattr(module, "LONGEST_WAIT", 1)


@pytest.fixture
def other(valkey: ServerUnderTest) -> Iterator[Client]:
    with Client(valkey.url) as made:
        yield made


class Failing:
    """Makes a call of a client raise these errors first."""

    def __init__(self, client: Any, name: str, errors: list[Any]) -> None:
        self._real, self._errors = getattr(client, name), list(errors)
        setattr(client, name, self._async if asyncio.iscoroutinefunction(self._real) else self._call)

    def _raise(self) -> None:
        if self._errors and (error := self._errors.pop(0)) is not None:
            raise error

    def _call(self, *args: Any, **options: Any) -> Any:
        self._raise()
        return self._real(*args, **options)

    async def _async(self, *args: Any, **options: Any) -> Any:
        self._raise()
        return await self._real(*args, **options)


def consume(url: str, how: str, errors: list[Any], name: str = "receive") -> list[str]:
    """Consume two messages with a client whose calls fail first, and return their ids."""
    seen: list[str] = []
    consumer: Any = None

    def handle(message: Leased) -> None:
        seen.append(message.id)
        if len(seen) == 2:
            consumer.stop()

    async def run() -> None:
        nonlocal consumer
        async with AsyncClient(url) as client:
            Failing(client, name, errors)
            consumer = client.consume(TOPIC, group="mail", prefetch=1)
            if how == "async loop":
                async with consumer:
                    async for message in consumer:
                        handle(message)
            else:

                async def handler(message: Leased) -> None:
                    handle(message)

                await consumer.run(handler, concurrency=1)

    if how.startswith("async"):
        asyncio.run(run())
        return seen
    with Client(url) as client:
        Failing(client, name, errors)
        consumer = client.consume(TOPIC, group="mail", prefetch=1)
        if how == "loop":
            with consumer:
                for message in consumer:
                    handle(message)
        else:
            consumer.run(handle, concurrency=1)
    return seen


WAYS = ["loop", "run", "async loop", "async run"]


@pytest.mark.parametrize("how", WAYS)
def test_every_way_to_consume_goes_on_after_errors_that_pass(
    valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    append(valkey, "a")
    append(valkey, "b")
    assert consume(valkey.url, how, [*PASSING, None, *PASSING]) == ["a", "b"]
    assert pending(valkey) == [], "a failed call keeps what it was to acknowledge"
    texts = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert texts == ["cannot receive messages, trying again: away"] * 2, "once for each time that it is away"


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_every_way_to_consume_ends_by_an_error_that_does_not_pass(
    valkey: ServerUnderTest, how: str, error: DelayqError
) -> None:
    append(valkey, "a")
    with pytest.raises(type(error)) as caught:
        consume(valkey.url, how, [error])
    assert caught.value is error


@pytest.mark.parametrize("how", ["run", "async run"])
@pytest.mark.parametrize("error", [NotAllowed("no right"), StoreRefused("NOPERM"), RuntimeError("a bug")], ids=repr)
def test_an_acknowledgement_that_is_refused_is_logged_and_not_repeated(
    valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture, how: str, error: Exception
) -> None:
    append(valkey, "a")
    append(valkey, "b")
    assert consume(valkey.url, how, [error], "ack") == ["a", "b"]
    assert f"message a could not be settled, and is received again: {error}" in [one.message for one in caplog.records]
    assert [fields[b"id"] for fields in pending(valkey)] == [b"a"]


@pytest.mark.parametrize("how", WAYS)
def test_an_end_while_the_server_is_away_is_no_error(valkey: ServerUnderTest, how: str) -> None:
    append(valkey, "a")
    append(valkey, "b")
    assert consume(valkey.url, how, [StoreUnavailable("away")] * 99, "ack") == ["a", "b"]


def test_a_topic_that_fails_does_not_stop_the_others(
    client: Client, valkey: ServerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    real = client.store.follow

    def follow(plan: Any) -> Any:
        if plan.gi_frame and getattr(plan.gi_frame.f_locals.get("consumer"), "topic", "") == "bad":
            raise StoreUnavailable("its server is away")
        return real(plan)

    client.store.follow = follow  # type: ignore[method-assign]  # as if the topic lay on a server that is away
    seen: list[str] = []
    consumer = client.consume(["bad", TOPIC], group="mail")
    for id in "ab":
        append(valkey, id)

    def handle(message: Leased) -> None:
        seen.append(message.id)
        if len(seen) == 2:
            append(valkey, "c")
        elif len(seen) == 3:
            consumer.stop()

    consumer.run(handle, concurrency=1)
    assert seen == ["a", "b", "c"]
    with pytest.raises(StoreUnavailable, match="its server is away"):
        client.receive(["bad", TOPIC], group="mail")


def test_a_pattern_receives_topics_from_which_its_group_has_received_though_nothing_waits(
    client: Client, other: Client, valkey: ServerUnderTest
) -> None:
    for topic in (TOPIC, "orders.void", "orders.else"):
        append(valkey, "old", topic, topic=topic)
    for topic, group in ((TOPIC, "mail"), ("orders.void", "audit"), ("refunds", "mail")):
        other.ack(*other.receive(topic, group=group))
    append(valkey, "new")
    with client.consume("orders.*", group="mail") as consumer:
        assert next(consumer).id == "new"
        consumer.stop()
        assert list(consumer) == []
        assert list(consumer._topics) == [TOPIC], "the topics of other groups and of other patterns are not its own"


def test_a_found_topic_that_gets_another_route_does_not_stop_the_others(
    valkey: ServerUnderTest,
) -> None:
    seen: list[str] = []
    with Client(valkey.url, routes=Routes([Route(name="own")])) as client:
        for topic in ("orders.a", "orders.b"):
            client.schedule(Message(topic=topic, delay_time="1h"))
            append(valkey, topic, topic, topic=topic)
        consumer = client.consume("orders.*", group="mail", prefetch=1)

        def handle(message: Leased) -> None:
            seen.append(message.id)
            if len(seen) == 2:
                own = [Route(name="kafka", match="orders.a", target="kafka://k:9092"), Route(name="own")]
                client.known_routes.own = Routes(own)
                append(valkey, "late", "orders.b", topic="orders.b")
            elif len(seen) == 3:
                consumer.stop()

        consumer.run(handle, concurrency=1)
    assert sorted(seen) == ["late", "orders.a", "orders.b"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("ctrl-c"), GeneratorExit("closed")], ids=repr)
@pytest.mark.parametrize("how", ["run", "loop"])
def test_what_ends_the_program_in_a_handler_ends_the_consumer_and_leases_nothing(
    client: Client, other: Client, valkey: ServerUnderTest, how: str, error: BaseException
) -> None:
    append(valkey, "a")
    append(valkey, "b")

    def handle(_: Leased) -> None:
        raise error

    def run() -> None:
        if how == "run":
            client.consume(TOPIC, group="mail").run(handle, concurrency=1)
        else:
            with client.consume(TOPIC, group="mail") as consumer:
                for message in consumer:
                    handle(message)

    with pytest.raises(type(error)) as caught:
        run()
    assert caught.value is error
    assert [one.id for one in receive(other)] == (["b"] if how == "run" else ["a", "b"])
    (group,) = other.consumers(match=TOPIC)
    assert group.handed_back == (1 if how == "run" else 0), "the handler of run is given as the reason"


async def test_a_handler_of_asyncio_that_is_cancelled_hands_back_and_the_others_go_on(valkey: ServerUnderTest) -> None:
    append(valkey, "a")
    append(valkey, "b")
    seen: list[str] = []
    async with AsyncClient(valkey.url) as client:

        async def handle(message: Leased) -> None:
            seen.append(message.id)
            if message.id == "a":
                raise asyncio.CancelledError
            consumer.stop()

        consumer = client.consume(TOPIC, group="mail")
        await consumer.run(handle, concurrency=1)
        (group,) = await client.consumers(match=TOPIC)
    assert (seen, group.handed_back, group.leased) == (["a", "b"], 1, 0)


def test_system_exit_in_a_handler_of_asyncio_ends_the_program_and_leases_nothing(
    other: Client, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    append(valkey, "b")

    async def handle(_: Leased) -> None:
        raise SystemExit(3)

    async def main() -> None:
        async with AsyncClient(valkey.url) as client:
            await client.consume(TOPIC, group="mail").run(handle, concurrency=1)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert [one.id for one in receive(other)] == ["b"]
    (group,) = other.consumers(match=TOPIC)
    assert (group.handed_back, group.leased) == (1, 1)
