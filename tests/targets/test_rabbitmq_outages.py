"""A RabbitMQ that is away, mute, out of memory, or lets nobody in; it is the one that all tests share."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pika
import pytest

from delayq.embedded.processes import LOCALHOST, free_port
from delayq.targets.rabbitmq import connection
from delayq.targets.rabbitmq.address import parameters_of
from delayq.targets.rabbitmq.stream import BrokerStream
from delayq.targets.rabbitmq.target import RabbitMQTarget
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import amqp
from tests.support.deliveries import delivery, outcomes
from tests.support.timeouts import SEND_SECONDS
from tests.support.waiting import eventually
from tests.targets.conftest import Names, Rabbits

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("rabbitmq")]

#: A time-out that is to pass; a busy machine needs some of it to hand the batch over.
SHORT = 5.0


@pytest.fixture
def queue(rabbitmq: RabbitMQ) -> str:
    with amqp(rabbitmq) as other:
        return other.queue()


@contextmanager
def paused(server: RabbitMQ) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


def wait_until_it_takes(target: RabbitMQTarget, id: str, queue: str) -> None:
    """Send a message again until the broker takes it."""
    one = delivery(id, topic=queue)
    eventually(lambda: outcomes(target.send([one], SEND_SECONDS)) == ["ok"], "it takes messages again")


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_broker_that_was_killed_is_found_again(rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits) -> None:
    target = rabbits(rabbitmq.url)
    assert outcomes(target.send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    rabbitmq.kill()
    try:
        for _ in range(2):
            (result,) = target.send([delivery("b", topic=queue)], SEND_SECONDS)
            assert result.outcome in ("unavailable", "unknown")
        assert result.outcome == "unavailable" and "refused" in result.reason.lower()
    finally:
        rabbitmq.start()
    with amqp(rabbitmq) as other:
        other.queue(queue)  # one that was only just made may not be on the broker's disk
    wait_until_it_takes(target, "c", queue)
    with amqp(rabbitmq) as other:  # with the queue its first message may be gone, but not what came after it
        assert other.ids(queue, 1)[-1] == "c"


def test_a_message_without_a_confirm_is_unknown_and_the_next_is_not_sent(
    rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits
) -> None:
    target = rabbits(rabbitmq.url, connectTimeout=500)
    assert outcomes(target.send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    with paused(rabbitmq):
        results = target.send([delivery("b", topic=queue), delivery("c", topic=queue)], SHORT)
        assert [(result.outcome, result.reason) for result in results] == [("unknown", "no answer in time")] * 2
        for _ in range(2):  # it is asked first whether it is there
            (result,) = target.send([delivery("d", topic=queue)], SHORT)
            assert result.outcome == "unavailable" and "connection" in result.reason
    wait_until_it_takes(target, "e", queue)
    with amqp(rabbitmq) as other:
        assert set(other.ids(queue, 2)) - {"b", "c"} == {"a", "e"}


def test_a_broker_out_of_memory_takes_nothing_and_nobody_hangs(
    rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits
) -> None:
    target = rabbits(rabbitmq.url)
    assert outcomes(target.send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    rabbitmq.block()
    try:
        # Far longer than this test may take: what it has to show is that none of these sends waits for so long.
        refused = eventually(
            lambda: [
                result
                for result in target.send([delivery("b", topic=queue), delivery("c", topic=queue)], 1_000.0)
                if result.outcome == "unavailable"
            ],
            "it is blocked",
        )
        assert {result.reason for result in refused} == {"blocked: low on memory"}
        told: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: told.extend(outcomes(target.send([delivery("d", topic=queue)] * 5, 1_000.0))),
                daemon=True,
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == ["unavailable"] * 40
    finally:
        rabbitmq.unblock()
    wait_until_it_takes(target, "z", queue)
    with amqp(rabbitmq) as other:
        assert not {"d"} & set(other.ids(queue, 2))


def test_a_wrong_password_or_virtual_host_is_no_fault_of_the_message(rabbitmq: RabbitMQ, rabbits: Rabbits) -> None:
    for part, wrong, words in ((":guest@", ":canary-word@", "ACCESS_REFUSED"), ("%2F", "nowhere", "nowhere")):
        (result,) = rabbits(rabbitmq.url.replace(part, wrong)).send([delivery("a")], SEND_SECONDS)
        assert result.outcome == "unavailable" and words in result.reason
        assert "canary" not in result.reason


#: What somebody else than a broker may say: nothing, HTTP, a frame without its end, and frames that mean nothing.
GREETINGS = {
    "mute": b"",
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no-end": b"\1\0\0\0\0\0\4\0\x0a\0\x0a!",
    "no-method": b"\1\0\0\0\0\0\4\xff\xff\xff\xff\xce",
    "no-content": b"\1\0\0\0\0\0\2\0\x0a\xce",
    "odd-table": b"\1\0\0\0\0\0\x14\0\x0a\0\x0a\0\x09\0\0\0\x0a\1kT\xff\xff\xff\xff\xff\xff\xff\xff\xce",
}


@contextmanager
def speaking(greeting: bytes) -> Iterator[int]:
    """The port of somebody who greets whoever connects."""
    with socket.create_server((LOCALHOST, 0)) as listener:

        def serve() -> None:
            with ExitStack() as open_ones, suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    open_ones.enter_context(one).sendall(greeting)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("bad", ["unknown", "no-name", "refusing", "no-ipv6", *GREETINGS])
def test_a_host_that_cannot_be_used_does_not_hide_the_next_one(
    rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits, names: Names, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    """For the target, and as the bridge connects."""
    names[LOCALHOST] = [LOCALHOST]
    names["six.example"] = ["::1"]
    if bad == "no-ipv6":
        monkeypatch.setattr(socket, "socket", without_ipv6(socket.socket))
    with speaking(GREETINGS.get(bad, b"")) as port:
        first = {
            "unknown": "gone.example:5672",
            "no-name": f"{'x' * 64}.example:5672",
            "refusing": f"{LOCALHOST}:{free_port()}",
            "no-ipv6": "six.example:5672",
        }.get(bad, f"{LOCALHOST}:{port}")
        url = rabbitmq.url.replace("guest@", f"guest@{first},")
        target = rabbits(url, connectTimeout=1_000)
        wait_until_it_takes(target, "a", queue)
        brokers = parameters_of(url.replace("rabbitmq:", "amqp:"), connect_timeout=1_000, schemes=("amqp", "amqps"))
        with pika.BlockingConnection(brokers, _impl_class=BrokerStream) as other:
            assert other.channel().queue_declare(queue, passive=True).method.message_count == 1


def without_ipv6(make: type[socket.socket]) -> type[socket.socket]:
    """Sockets of a system that has none of IPv6."""

    class Socket(make):  # type: ignore[valid-type, misc]  # the class is a parameter
        def __init__(self, family: int = -1, *more: object, **named: object) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *more, **named)

    return Socket


def test_if_no_host_can_be_used_the_reason_names_each(rabbits: Rabbits, names: Names) -> None:
    names[LOCALHOST] = [LOCALHOST]
    closed = free_port()
    (result,) = rabbits(f"rabbitmq://gone.example:5672,{LOCALHOST}:{closed}/").send([delivery("a")], SEND_SECONDS)
    assert result.outcome == "unavailable"
    assert "gone.example:5672: [Errno -2] Name or service not known; " in result.reason
    assert f"{LOCALHOST}:{closed}: [Errno 111] Connection refused" in result.reason


def test_one_who_accepts_and_says_nothing_is_unavailable(rabbits: Rabbits) -> None:
    with socket.create_server((LOCALHOST, 0)) as mute:
        target = rabbits(f"rabbitmq://{LOCALHOST}:{mute.getsockname()[1]}/", connectTimeout=60_000)
        (result,) = target.send([delivery("a")], 0.3)
        assert (result.outcome, result.reason) == ("unavailable", "no connection in time")
        target.close()  # also while it is still connecting
    assert "rabbitmq-rabbits" not in names_of_threads()


def test_closing_ends_the_thread_and_what_comes_after_is_unavailable(
    rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        target = rabbits(rabbitmq.url)
        assert "rabbitmq-rabbits" not in names_of_threads()
        batch = [delivery(str(number), topic=queue) for number in range(500)]
        assert outcomes(target.send(batch, SEND_SECONDS)) == ["ok"] * 500
        assert "rabbitmq-rabbits" in names_of_threads()
        for _ in range(2):
            target.close()
            assert "rabbitmq-rabbits" not in names_of_threads()
        (result,) = target.send([delivery("late", topic=queue)], SEND_SECONDS)
    assert (result.outcome, result.reason) == ("unavailable", "the target is closed")
    assert [record for record in caplog.records if record.name.startswith("pika")] == []
    with amqp(rabbitmq) as other:
        assert other.ids(queue, 500) == [str(number) for number in range(500)]


def test_closing_lets_what_is_on_its_way_arrive(
    rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSE_SECONDS", 100.0)  # however long a broker on a busy machine takes
    target = rabbits(rabbitmq.url)
    assert outcomes(target.send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    told: list[str] = []
    batch = [delivery(str(number), b"x" * 10_000, topic=queue) for number in range(500)]
    with paused(rabbitmq):  # so that it is on its way for certain
        sending = threading.Thread(target=lambda: told.extend(outcomes(target.send(batch, SEND_SECONDS))), daemon=True)
        sending.start()
        link = target._link
        eventually(lambda: any(one.batch is not None for one in [*link._publishers]), "it is on its way")
        closing = threading.Thread(target=target.close, daemon=True)
        closing.start()
    closing.join()
    sending.join()
    assert told == ["ok"] * 500
    with amqp(rabbitmq) as other:
        assert other.ids(queue, 501)[-1] == "499"


def test_closing_does_not_wait_for_a_broker_that_says_nothing(rabbitmq: RabbitMQ, queue: str, rabbits: Rabbits) -> None:
    target = rabbits(rabbitmq.url)
    assert outcomes(target.send([delivery("a", topic=queue)], SEND_SECONDS)) == ["ok"]
    with paused(rabbitmq):
        target.close()
        assert "rabbitmq-rabbits" not in names_of_threads()
