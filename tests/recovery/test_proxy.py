"""The fault proxy itself: a test of faults is worth what its faults are."""

from __future__ import annotations

import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.proxy import FaultProxy, script_of
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually


def connect(proxy: FaultProxy, timeout: float = 5.0) -> redis.Redis:
    return redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0), socket_timeout=timeout, protocol=2)


def incr(client: redis.Redis, key: str) -> int:
    """INCR as it is written: redis-py's own method sends INCRBY."""
    count: int = client.execute_command("INCR", key)
    return count


def test_what_is_sent_passes_byte_by_byte(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        for value in (b"", b"\r\n$5\r\nx", bytes(range(256)) * 1_000):
            client.set("key", value)
            assert client.get("key") == value
        with client.pipeline(transaction=False) as pipeline:
            for number in range(1_000):
                pipeline.incr("counter")
                pipeline.lrange("nothing", 0, number)
            assert pipeline.execute()[-2:] == [1_000, []]


def test_a_dropped_reply_is_of_a_command_that_ran(proxy: FaultProxy, valkey: ServerUnderTest) -> None:
    with connect(proxy) as client:
        client.ping()
        proxy.drop_reply("incr", times=2)
        for count in (1, 2):
            with pytest.raises(redis.ConnectionError):
                incr(client, "counter")
            assert valkey.admin.get("counter") == b"%d" % count
        assert incr(client, "counter") == 3
    assert proxy.dropped == ["incr", "incr"]
    assert not proxy.armed


def test_only_the_wanted_reply_is_dropped_and_those_before_it_arrive(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        proxy.drop_reply("incr", when=lambda words: words[1] == b"second")
        assert incr(client, "first") == 1
        with pytest.raises(redis.ConnectionError):
            incr(client, "second")
        assert (incr(client, "first"), incr(client, "second")) == (2, 2)


def test_a_cut_passes_exactly_so_many_bytes(proxy: FaultProxy, valkey: ServerUnderTest) -> None:
    with connect(proxy) as client:
        client.ping()
        command = b"*2\r\n$4\r\nINCR\r\n$1\r\nx\r\n"
        proxy.cut_after(2 * len(command) + 5)
        assert (incr(client, "x"), incr(client, "x")) == (1, 2)
        with pytest.raises(redis.ConnectionError):
            incr(client, "x")
        proxy.heal()
        assert client.get("x") == b"2"


def test_a_black_hole_answers_nothing_and_heals(proxy: FaultProxy) -> None:
    with connect(proxy, timeout=PATIENCE) as client:
        client.ping()
        connection = client.connection_pool.get_connection()
        proxy.black_hole()
        connection.send_command("PING")
        assert not connection.can_read(timeout=0.2)
        with connect(proxy, timeout=0.2) as another, pytest.raises(redis.TimeoutError):
            another.ping()
        proxy.heal()
        with pytest.raises(redis.ConnectionError):
            connection.read_response()  # lost with its connection
        client.connection_pool.release(connection)
        assert client.ping()


def test_refusing_resets_what_there_is_and_takes_nothing_new(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.ping()
        proxy.refuse()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        proxy.heal()
        assert client.ping()


def test_a_subscription_passes_and_is_not_counted(proxy: FaultProxy, valkey: ServerUnderTest) -> None:
    with connect(proxy) as client, client.pubsub() as subscription:
        subscription.subscribe("channel")
        eventually(lambda: subscription.get_message(timeout=1), "subscribed")
        valkey.admin.publish("channel", "hello")
        message = eventually(lambda: subscription.get_message(timeout=1), "the message")
        assert message["data"] == b"hello"


def test_a_server_that_is_away_is_a_reset(valkey: ServerUnderTest) -> None:
    with FaultProxy(1) as proxy, connect(proxy) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_no_thread_stays_behind(valkey: ServerUnderTest) -> None:
    before = set(threading.enumerate())
    with FaultProxy(valkey.port) as proxy:
        clients = [connect(proxy) for _ in range(10)]
        for client in clients:
            client.ping()
        proxy.refuse()
        proxy.heal()
        clients.append(connect(proxy))  # the others hear at some time that they were cut
        clients[-1].ping()
        assert len(set(threading.enumerate()) - before) <= 2 * 11 + 1
    for client in clients:
        client.close()
    eventually(lambda: set(threading.enumerate()) <= before, "the proxy's threads ended")


def test_commands_are_known_by_their_scripts() -> None:
    assert script_of([b"GET", b"x"]) == "get"
    assert script_of([b"EVALSHA", b"0" * 40, b"0"]) == "evalsha"
