"""The targets that come with the package; a worker's own path into local streams is tested with the pull script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq.base.errors import ConfigError
from delayq.domain.routes import Route
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.targets import Target, open_target
from tests.support.deliveries import delivery, outcomes
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest

Streams = Callable[..., Target]


@pytest.fixture
def streams() -> Iterator[Streams]:
    """Opens targets of the scheme redis+stream, and closes them."""
    opened: list[Target] = []

    def open_one(port: int, **fields: Any) -> Target:
        route = Route(name="r", target=f"redis+stream://{LOCALHOST}:{port}/0", path="general", **fields)
        opened.append(open_target(route, f"redis://{LOCALHOST}:1/0"))
        return opened[-1]

    yield open_one
    for target in opened:
        target.close()


# -- redis+stream --------------------------------------------------------------------------------------------------------


def test_a_batch_is_appended_in_order_with_every_field(streams: Streams, server: ServerUnderTest) -> None:
    target = streams(server.port)
    batch = [
        delivery("a", b"\0\xff\r\n", 2, tags="paid", keys=("k1", "k2"), properties={"n": "v", "e": ""}),
        delivery("b", {"x": 1}),
    ]
    assert outcomes(target.send(batch, 2.0)) == ["ok", "ok"]
    common = {b"topic": b"orders", b"tags": b"", b"keys": b"", b"due": b"20000"}
    first = {b"id": b"a", b"tags": b"paid", b"keys": b"k1 k2", b"body": b"\0\xff\r\n", b"attempt": b"3"}
    assert [entry for _, entry in server.admin.xrange("orders")] == [
        common | first | {b"p:e": b"", b"p:n": b"v"},
        common | {b"id": b"b", b"body": b'{"x":1}', b"attempt": b"1"},
    ]


def test_the_route_names_and_trims_the_stream(streams: Streams, server: ServerUnderTest) -> None:
    target = streams(server.port, stream="events:{topic}", max_length=100)
    assert outcomes(target.send([delivery(f"m{number}") for number in range(450)], 2.0)) == ["ok"] * 450
    assert 100 <= server.admin.xlen("events:orders") < 450


def test_a_server_that_is_not_there_or_full_took_nothing(streams: Streams, server: ServerUnderTest) -> None:
    batch = [delivery("a"), delivery("b")]
    assert outcomes(streams(free_port()).send(batch, 2.0)) == ["unavailable", "unavailable"]
    server.admin.config_set("maxmemory", "1")
    try:
        assert outcomes(streams(server.port).send(batch, 2.0)) == ["unavailable", "unavailable"]
    finally:
        server.admin.config_set("maxmemory", "0")


def test_a_lost_reply_or_none_is_an_unknown_outcome_and_the_next_send_goes_on(
    streams: Streams, proxy: FaultProxy, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.targets.redis_stream.target.PATIENCE", 3_600.0)  # only the time-out of the send ends it
    target = streams(proxy.port)
    assert outcomes(target.send([delivery("warm")], 2.0)) == ["ok"]
    proxy.drop_reply("xadd", when=lambda words: b"b" in words)
    results = outcomes(target.send([delivery("a"), delivery("b"), delivery("c")], 2.0))
    assert results[1:] == ["unknown", "unknown"]
    assert valkey.admin.xlen("orders") >= 3
    assert outcomes(target.send([delivery("d")], 2.0)) == ["ok"]
    proxy.black_hole()  # a server that answers nothing is given up within the time-out
    assert outcomes(target.send([delivery("e"), delivery("f")], 0.1)) == ["unknown", "unknown"]
    proxy.heal()
    assert outcomes(target.send([delivery("g")], 2.0)) == ["ok"]


# -- log -----------------------------------------------------------------------------------------------------------------


def test_each_message_is_a_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    target = open_target(Route(name="r", target="log:"), f"redis://{LOCALHOST}/0")
    batch = [delivery("a", "two\nlines", keys=("k",), properties={"n": "v"}), delivery("b", b"\xff", 1)]
    assert outcomes(target.send(batch, 1.0)) == ["ok", "ok"]
    target.close()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "topic": "orders",
        "id": "a",
        "due": 20_000,
        "attempt": 1,
        "tags": "",
        "keys": ["k"],
        "properties": {"n": "v"},
        "body": "two\nlines",
    }
    assert (second["id"], second["attempt"], second["body"]) == ("b", 2, "\ufffd")


def test_a_standard_output_that_is_gone_took_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError("nobody reads")

    monkeypatch.setattr("sys.stdout", Closed())
    target = open_target(Route(name="r", target="log:"), f"redis://{LOCALHOST}/0")
    assert outcomes(target.send([delivery("a")], 1.0)) == ["unavailable"]


# -- URLs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis+stream:/x", "redis+stream:?a=1", "redis+stream:#f", "redis+stream:orders", "redis+stream:///0", "redis+stream://h/shop",
        "redis+stream://h/1/2", "redis+stream://h/0#f", "redis+stream://h?max_connections=1", "redis+stream://h?socket_timeout=1",
        "redis+stream:redis://h/1/2", "redis+stream:http://h", "redis+stream:redis+cluster://h/1",
        "log:orders", "log://h", "log:?a=1", "log:#x",
        "kafka://h:9092/t?x=1", "kafka://h:9092/t#x", "kafka://h:9092/a/b", "kafka://u:p@h/t", "kafka://h:65536/t", "kafka://h:0/t",
        "rocketmq://h:8081/t", "rocketmq://h:8081?x=1", "rocketmq://h:8081#x", "rocketmq://u:p@h:8081", "rocketmq://h:65536",
        "rabbitmq://h/v?x=1", "rabbitmq://h/v#x", "rabbitmq://h:65536", "rabbitmq://h,",
        "https://example.com/a#x", "https://u:p@example.com/a", "https://example.com:65536/",
    ],
)  # fmt: skip
def test_a_part_of_a_url_that_would_do_nothing_is_refused_by_the_name_of_the_route(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^route mine: "):
        open_target(Route(name="mine", target=url), f"redis://{LOCALHOST}:1/0")
