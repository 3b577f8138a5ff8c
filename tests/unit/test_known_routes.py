"""Which topics may be scheduled, by the route tables of the live workers."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from delayq.base.errors import InvalidMessage
from delayq.client.known_routes import EARLY, NO_WORKER, OLDEST, KnownRoutes, name_of_route
from delayq.domain.message import Message
from delayq.domain.nodes import LINE_AGE, NodeLine
from delayq.domain.routes import Route, Routes
from delayq.testing import ManualClock
from tests.support.nodes import lines_with

ORDERS: dict[str, Any] = {"name": "orders", "match": "orders.*", "target": "log:"}
NEWS: dict[str, Any] = {"name": "news", "match": "news", "target": "log:"}
HERE = Routes([Route(name="here", match="here", target="log:")])
KAFKA: dict[str, Any] = {"name": "k", "match": "*", "target": "kafka://k:9092"}


def refused(known: KnownRoutes, *topics: str) -> list[str]:
    found = []
    for topic in topics:
        try:
            known.check(Message(topic=topic))
        except InvalidMessage as error:
            found.append(topic)
            if known.refuses(topic) != ("no live worker has a route" in error.reason):
                raise
    return found


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        (lines_with([ORDERS]), ["here", "news"]),
        (lines_with([ORDERS, NEWS]), ["here"]),
        (lines_with([ORDERS], [NEWS]), ["here"]),  # in the middle of a rolling deployment
        (lines_with([]), ["here", "news", "orders.a"]),
        (lines_with([ORDERS], age=LINE_AGE), ["here", "news"]),
        (lines_with([ORDERS], age=LINE_AGE + 1), []),
        ([], []),
        ([*lines_with([ORDERS]), NodeLine(
            node="older", address="", version="", since=None, seen=0, stale=False, coordinator="", queues={},
            handed_over=None,
        )], []),
    ],
)  # fmt: skip
def test_a_topic_is_refused_if_live_workers_publish_their_tables_and_none_takes_it(
    lines: list[NodeLine], wrong: list[str]
) -> None:
    for own in (HERE, Routes()):  # the table of this process never decides
        known = KnownRoutes(own)
        assert refused(known, "here", "news", "orders.a") == []
        known.take(lines)
        assert refused(known, "here", "news", "orders.a") == wrong
        assert known.refuses_some == bool(wrong)
        known.forget()
        assert refused(known, "here", "news", "orders.a") == []
        off = KnownRoutes(own, checks=False)
        off.take(lines)
        assert (refused(off, "here", "news", "orders.a"), off.outdated, off.refuses_some) == ([], False, False)


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        (lines_with([KAFKA]), True),
        ([], True),
        (lines_with([KAFKA], [KAFKA]), True),
        (lines_with([KAFKA], [NEWS]), True),
        (lines_with([KAFKA | {"target": "kafka://other:9092"}]), False),
        (lines_with([KAFKA | {"name": "other"}]), False),
        (lines_with([KAFKA | {"match": "?*"}]), False),
        (lines_with([ORDERS, KAFKA], [KAFKA | {"target": "log:"}]), False),
    ],
)
def test_the_check_of_a_target_counts_where_each_worker_that_takes_the_topic_has_the_same_route(
    lines: list[NodeLine], counts: bool
) -> None:
    for own in (Routes([Route(**KAFKA)]), Routes([Route(**KAFKA)]).bare()):
        known = KnownRoutes(own)
        known.take(lines)
        assert refused(known, "no:name", "good") == (["no:name"] if counts else [])
        assert not known.reads_body("no:name")


def test_tables_are_read_anew_before_they_are_5_s_old_and_by_one_caller_while_they_are_young() -> None:
    clock = ManualClock()
    known = KnownRoutes(Routes(), clock)
    assert [known.outdated, known.outdated] == [True, True], "nothing is known before somebody has read it"
    known.take(lines_with([ORDERS]))
    assert [known.outdated] == [False]
    clock.advance(EARLY)
    assert [known.outdated, known.outdated] == [True, False]
    clock.advance(OLDEST - EARLY)
    assert [known.outdated, known.outdated] == [True, True]
    known.take(lines_with([NEWS]))
    assert (known.outdated, refused(known, "news", "orders.a")) == (False, ["orders.a"])
    assert OLDEST < 5_000


def test_it_warns_once_and_only_when_a_topic_is_judged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "delayq.client")
    known = KnownRoutes(Routes())
    known.forget()  # Redis did not answer
    refused(known, "a")
    known.take(lines_with([ORDERS]))
    refused(known, "a")
    assert caplog.messages == []
    for _ in range(2):
        known.take([])
        refused(known, "a", "b")
    assert caplog.messages == [NO_WORKER]
    quiet = KnownRoutes(Routes())
    quiet.be_quiet()
    quiet.take([])
    refused(quiet, "a")
    assert (caplog.messages, quiet.without_worker) == ([NO_WORKER], True)


def test_the_name_of_a_route_is_that_of_a_live_worker_or_else_of_the_last_one() -> None:
    live, gone = lines_with([ORDERS]), lines_with([NEWS, ORDERS | {"name": "old"}], age=LINE_AGE + 1)
    for topic, lines, name in (
        ("orders.a", [*gone, *live], "orders"),
        ("news", [*gone, *live], "news"),  # nobody takes it now, and it may be parked under this name
        ("here", [*gone, *live], None),
        ("orders.a", gone, "old"),
        ("here", [], "here"),
    ):
        assert name_of_route(topic, lines, HERE) == name


@pytest.mark.parametrize(
    ("routes", "stream", "topics"),
    [
        ([{"match": "*"}], "orders.a", {"orders.a"}),
        ([{"match": "*", "stream": "events"}], "events", {"*"}),
        ([{"match": "a.*", "stream": "events"}, {"match": "b.?", "stream": "events"}], "events", {"a.*", "b.?"}),
        ([{"match": "a.*", "stream": "events"}, {"match": "*"}], "events", {"a.*"}),
        ([{"match": "a.*"}, {"match": "b.*", "stream": "a.{topic}"}], "a.b.x", {"a.b.x", "b.x"}),
        ([{"match": "*", "stream": "{topic}-{topic}"}], "x-x", {"x"}),
        ([{"match": "*", "stream": "{topic}-{topic}"}], "x-y", set()),
        ([{"match": "*", "stream": "events-{topic}"}], "events-", set()),
        ([{"match": "*", "stream": "events", "perQueue": True}], "events", set()),
        ([{"match": "*", "target": "redis+stream://elsewhere", "stream": "events"}], "events", set()),
    ],
)
def test_the_topics_of_a_stream_are_those_of_every_route_that_leads_there(
    routes: list[dict[str, Any]], stream: str, topics: set[str]
) -> None:
    table = [msgspec.convert({"name": f"r{n}"} | one, Route) for n, one in enumerate(routes)]
    known = KnownRoutes(Routes(table))
    assert known.topics_in(stream, per_queue=False) == topics
    published = [
        {
            "name": one.name,
            "match": one.match,
            "target": one.target,
            "stream": one.own_stream,
            "per_queue": one.per_queue,
        }
        for one in table
    ]
    other = KnownRoutes(Routes())
    assert other.topics_in(stream, per_queue=False) == {stream}
    other.take(lines_with(published[:1], published))
    assert other.topics_in(stream, per_queue=False) == topics
