"""Consumers of the HTTP API: leases that are renewed, topics that a group knows, and errors that pass."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from delayq import Client, InvalidMessage, NotAllowed, OtherFilter, http
from delayq.client import consumer as consuming
from delayq.client.consuming.entries import Leased
from delayq.testing import ManualClock
from tests.http.conftest import Told, answer, problem
from tests.http.test_client import name
from tests.support.waiting import eventually


def test_a_consumer_of_the_api_renews_all_leases_that_it_holds(
    process: Any, direct: Client, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, clock = f"t.{name()}", ManualClock()
    with redis.Redis.from_url(redis_url, protocol=2) as server:
        for id in "abc":
            server.xadd(topic, {"id": id, "topic": topic, "body": id, "due": "1000", "orderingKey": "k"})
    with http.Client(f"http://127.0.0.1:{process.port}", clock=clock) as client:
        seen: list[tuple[str, Any, list[str]]] = []
        real = client.extend_many

        def extend(messages: list[Leased], lease: Any) -> Any:
            results = real(messages, lease)
            seen.append(("".join(one.id for one in messages), lease, [one.result for one in results]))
            return results

        monkeypatch.setattr(client, "extend_many", extend)
        with client.consume(topic, group="mail", lease="30s") as consumer:
            assert next(consumer).id == "a"
            clock.wait_for_waiters()
            clock.advance(10_000)
            eventually(lambda: seen, "the renewal")
        assert seen == [("abc", 30_000, ["extended"] * 3), ("abc", 0, ["released"] * 3)]
    assert [one.id for one in direct.receive(topic, group="mail")] == ["a", "b", "c"]


def test_a_pattern_receives_topics_from_which_its_group_has_received(
    process: Any, direct: Client, redis_url: str
) -> None:
    run = name()
    with redis.Redis.from_url(redis_url, protocol=2) as server:
        for topic in (f"{run}.a", f"{run}.b"):
            server.xadd(topic, {"id": "old", "topic": topic, "body": "", "due": "1000"})
        direct.ack(*direct.receive(f"{run}.a", group="mail"))
        direct.receive(f"{run}.b", group="audit")
        server.xadd(f"{run}.a", {"id": "new", "topic": f"{run}.a", "body": "", "due": "1000"})
    with (
        http.Client(f"http://127.0.0.1:{process.port}") as client,
        client.consume(f"{run}.*", group="mail") as consumer,
    ):
        assert next(consumer).id == "new"


MESSAGE = {
    "id": "a", "topic": "t", "lease": ".1-1.x", "dueTime": "2026-01-01T00:00:00Z", "dueMs": 1, "attempt": 1,
    "deliveries": 1, "handBacks": 0, "body": "x",
}  # fmt: skip
DONE = {"results": [{"id": "a", "status": 200, "result": "acknowledged"}]}


@pytest.mark.parametrize("how", ["loop", "run"])
def test_every_way_to_consume_goes_on_after_refusals_that_pass(
    told: Told, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(consuming, "LONGEST_WAIT", 1)
    told.answers = [
        answer(503, problem(503, "unavailable")),
        answer(429, problem(429, "rate")),
        answer(502, problem(502, "unavailable")),
        b"HTTP/1.1 503 Unavailable\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
        b"",
        answer(500, problem(500, "internal")),
        answer(200, {"messages": [MESSAGE]}),
        answer(200, DONE),
    ]
    seen: list[str] = []
    with http.Client(told.url, give_up_after=1) as client:
        consumer = client.consume("t", group="mail")

        def handle(message: Leased) -> None:
            seen.append(message.id)
            consumer.stop()

        if how == "run":
            consumer.run(handle, concurrency=1)
        else:
            for message in consumer:
                handle(message)
    assert (seen, told.answers) == (["a"], [])


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (401, "unauthorized", NotAllowed),
        (403, "forbidden", NotAllowed),
        (400, "invalid", InvalidMessage),
        (409, "other-filter", OtherFilter),
    ],
)
@pytest.mark.parametrize("how", ["loop", "run"])
def test_every_way_to_consume_ends_by_a_refusal_that_does_not_pass(
    told: Told, status: int, kind: str, error: type[Exception], how: str
) -> None:
    told.answers = [answer(status, problem(status, kind, field="topic"))]
    with http.Client(told.url) as client:
        consumer = client.consume("t", group="mail")
        begin = consumer.__next__ if how == "loop" else lambda: consumer.run(print)
        with pytest.raises(error):
            begin()


def test_a_topic_that_fails_does_not_stop_the_others(told: Told) -> None:
    away = answer(503, problem(503, "unavailable"), "retry-after: 9")
    told.answers = [away, answer(200, {"messages": [MESSAGE]})]
    with http.Client(told.url) as client:
        assert [one.id for one in client.receive(["bad", "t"], group="mail")] == ["a"]


@pytest.mark.parametrize(
    ("result", "warning"),
    [
        ({"status": 409, "result": "lost"}, "the lease of message a of topic t was lost"),
        ({"status": 404, "result": "notFound"}, "the lease of message a of topic t was lost"),
        (
            {"status": 403, "problem": problem(403, "forbidden")},
            "message a could not be settled, and is received again",
        ),
    ],
)
def test_an_acknowledgement_that_comes_too_late_is_logged_and_not_repeated(
    told: Told, caplog: pytest.LogCaptureFixture, result: dict[str, Any], warning: str
) -> None:
    told.answers = [answer(200, {"messages": [MESSAGE]}), answer(200, {"results": [{"id": "a", **result}]})]
    with http.Client(told.url) as client:
        consumer = client.consume("t", group="mail")
        consumer.run(lambda _: consumer.stop(), concurrency=1)
    (logged,) = [one.message for one in caplog.records]
    assert logged.startswith(warning)
