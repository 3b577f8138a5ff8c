"""Exceptions that signal handlers raise reach the caller, whatever they look like, and the client still works then."""

from __future__ import annotations

import functools
import gc
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import hiredis
import msgspec
import pytest
import redis

from delayq import Client, Message, Settings, StoreUnavailable
from delayq.base import json_text
from delayq.domain import codec
from delayq.domain.message import Limits
from delayq.store import commands
from delayq.store.commands import plain
from delayq.store.connect import server_state
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Semaphore
from delayq.store.keys import KEYS
from tests.support.amounts import amount
from tests.support.proxy import FaultProxy
from tests.support.queues import row, schedule_command
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, REDIS_TIMEOUT

SIGNAL = signal.SIGUSR1  # SIGALRM is pytest's


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """The signal's handler as it was before."""
    before = signal.getsignal(SIGNAL)
    yield
    signal.signal(SIGNAL, before)


class TimeLimit(Exception):
    """As those of Celery and RQ."""


class Limit:
    """A time limit whose handlers raise `error`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def method(self, *_: object) -> None:
        raise self.error

    def __call__(self, *_: object) -> None:
        raise self.error


KINDS: dict[str, Callable[[Limit], Any]] = {
    "a method": lambda limit: limit.method,
    "a function": lambda limit: lambda *_: limit.method(),
    "a callable": lambda limit: limit,
    "a partial": lambda limit: functools.partial(limit.method, 1),
}
ERRORS = [
    TimeLimit("soft"), TimeoutError("time limit"), ConnectionResetError("x"), OSError("x"), redis.exceptions.ConnectionError("x"),
    redis.exceptions.TimeoutError("x"), ValueError("x"), KeyError("x"), msgspec.DecodeError("x"), RuntimeError("x"),
    KeyboardInterrupt(), SystemExit(1),
]  # fmt: skip


@contextmanager
def interrupted(handler: Any, seconds: float) -> Iterator[None]:
    """Raise the signal after so many seconds, if the block has not ended.

    Python drops what a handler raises while the garbage collector calls back a weak reference, so none runs meanwhile.
    """
    gc.disable()
    before = signal.signal(SIGNAL, handler)
    ended = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def wait() -> None:
        if not ended.wait(seconds):
            signal.pthread_kill(main, SIGNAL)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        signal.signal(SIGNAL, signal.SIG_IGN)
        ended.set()
        thread.join()
        signal.signal(SIGNAL, before)
        gc.enable()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("db", [0, 1], ids=["in a call", "while it connects"])
def test_it_reaches_the_caller_and_no_reply_is_left_for_the_next_call(
    proxy: FaultProxy, error: BaseException, db: int
) -> None:
    with closing(Store(proxy.url.replace("/0", f"/{db}"), timeout=PATIENCE)) as store:
        if db == 0:
            assert store.run(plain("ECHO", "warm", read=bytes)) == b"warm"
        proxy.hold()
        with pytest.raises(type(error)) as caught, interrupted(Limit(error).method, 0.02):
            store.run(plain("ECHO", "first", read=bytes))
        assert caught.value is error
        proxy.release()
        assert store.run(plain("ECHO", "second", read=bytes)) == b"second"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_whatever_the_handler_is(proxy: FaultProxy, kind: Callable[[Limit], Any]) -> None:
    with closing(Store(proxy.url, timeout=PATIENCE)) as store:
        proxy.hold()
        with (
            pytest.raises(TimeoutError, match="time limit"),
            interrupted(kind(Limit(TimeoutError("time limit"))), 0.02),
        ):
            store.run(plain("ECHO", "first", read=bytes))
        proxy.release()


def test_no_other_address_of_a_host_is_tried_then(valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(socket.socket):
        def connect(self, address: Any) -> None:
            tried.append(address[0])
            if address[0] == "127.0.0.2":
                signal.raise_signal(SIGNAL)
            super().connect(address)

    tried: list[str] = []
    real = socket.getaddrinfo

    def two(host: Any, *more: Any, **options: Any) -> Any:
        return (
            [one for each in ("127.0.0.2", "127.0.0.1") for one in real(each, *more, **options)]
            if host == "name"
            else real(host, *more, **options)
        )

    monkeypatch.setattr(socket, "getaddrinfo", two)
    monkeypatch.setattr(socket, "socket", Slow)
    with closing(Store(f"redis://name:{valkey.port}", timeout=PATIENCE)) as store:
        signal.signal(SIGNAL, Limit(TimeoutError("time limit")).method)
        with pytest.raises(TimeoutError, match="time limit"):
            store.run(plain("PING", read=bytes))
        assert tried == ["127.0.0.2"]
        signal.signal(SIGNAL, signal.SIG_IGN)
        assert store.run(plain("PING", read=bytes)) == b"PONG"
        assert tried[1:] == ["127.0.0.2", "127.0.0.1"]  # the server is at the second one only


def test_an_error_of_redis_is_not_taken_for_the_one_that_the_caller_is_just_handling() -> None:
    with closing(Store("redis://127.0.0.1:1", timeout=PATIENCE)) as store:
        try:
            with interrupted(Limit(TimeoutError("time limit")).method, 0):
                threading.Event().wait(PATIENCE)
        except TimeoutError as limit:
            signal.signal(SIGNAL, Limit(limit).method)
            with pytest.raises(StoreUnavailable):
                store.run(plain("PING", read=bytes))


def test_a_client_that_is_interrupted_anywhere_still_works_and_schedules_nothing_twice(valkey: ServerUnderTest) -> None:
    with Client(valkey.url, settings=Settings(redis_timeout=REDIS_TIMEOUT)) as client:
        client.queues()
        client.store._free = Semaphore(2, PATIENCE)  # each of two places that is lost would be missed soon
        draw = random.Random(7)
        for number in range(amount(200, 3_000)):
            try:
                with interrupted(Limit(TimeoutError("time limit")).method, draw.random() * 0.002):
                    client.schedule(Message(topic="t", body="x", id=f"m{number}", delay_time=3_600_000))
            except TimeoutError:
                pass
            assert client.schedule(Message(topic="t", body="x", id=f"m{number}", delay_time=3_600_000)) is not None
        assert sum(queue.scheduled for queue in client.queues()) == amount(200, 3_000)


@pytest.mark.parametrize(
    "error", [ValueError("x"), TypeError("x"), RecursionError("x"), UnicodeDecodeError("utf-8", b"", 0, 1, "x")]
)
def test_a_message_is_not_blamed_for_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large body takes long to encode and to decode."""

    def slow(*_args: Any, **_options: Any) -> Any:
        signal.raise_signal(SIGNAL)

    message = Message(topic="t", body={"a": 1}, delay_time=1)
    record = codec.Record(b"0000001%013d0" % 1 + codec.encode(message, Limits()))
    signal.signal(SIGNAL, Limit(error).method)
    calls: list[tuple[Any, str, Callable[[], Any]]] = [(json_text, "encode", lambda: codec.encode(message, Limits()))]
    if isinstance(error, ValueError):
        calls.append((msgspec.json, "decode", lambda: record.body))
    for module, name, call in calls:
        monkeypatch.setattr(module, name, slow)
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_places_that_were_lost_are_found_again() -> None:
    free = Store("redis://127.0.0.1:1", timeout=0.01, connections=2)._free
    for _ in range(5):
        free.acquire()  # its lease is lost at once, as by an exception right behind this line
    leases = [free.acquire(), free.acquire()]
    with pytest.raises(server_state.Fault):
        free.acquire()
    free.release(leases.pop())
    leases.append(free.acquire())
    with pytest.raises(server_state.Fault):
        free.acquire()


def test_hiredis_gets_no_numbers(valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """hiredis 3 crashes if a signal handler raises while it makes the text of a number."""
    packed: list[Any] = []

    def pack(words: Any) -> bytes:
        packed.extend(words)
        whole: bytes = real(words)
        return whole

    real = hiredis.pack_command
    monkeypatch.setattr(server_state, "pack_command", pack)
    monkeypatch.setattr("redis.connection.hiredis.pack_command", pack)
    with closing(Store(valkey.url.replace("/0", "/3"), timeout=PATIENCE)) as store:
        store.run(schedule_command(KEYS.queue(0), row("a", at=20_000), now=1))
        store.run(commands.layout(KEYS, 16))
    assert "SELECT" in packed or b"SELECT" in packed
    assert {type(word) for word in packed} <= {str, bytes}
