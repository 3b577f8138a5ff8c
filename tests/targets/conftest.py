"""A receiver of webhooks, a broker, and targets that send to them."""

from __future__ import annotations

import select
import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import pytest

from delayq.domain.routes import Route
from delayq.targets.rabbitmq.target import RabbitMQTarget
from delayq.targets.webhook.target import WebhookTarget
from testbed.rabbitmq import RabbitMQ
from tests.support.amqp import Amqp, amqp

T = TypeVar("T")


def has_arrived(hook: WebhookTarget) -> bool:
    """Whether something can be read on each connection that is kept: the end, or what nobody asked for."""
    return all(select.select([one.wire._sock], [], [], 0)[0] for one in hook._connections._idle)


Webhooks = Callable[..., WebhookTarget]
Rabbits = Callable[..., RabbitMQTarget]
Names = dict[str, list[str]]


class Closing(Protocol):
    """Keeps a target, so that it is closed."""

    def __call__(self, target: T) -> T: ...


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Closes at the end of the test what it is given."""
    opened: list[Any] = []

    def keep(target: T) -> T:
        opened.append(target)
        return target

    yield keep
    for target in opened:
        target.close()


@pytest.fixture
def webhooks(closing: Closing) -> Webhooks:
    """Opens webhooks, by default with the addresses of this machine allowed; closes them."""

    def open_one(url: str, *, allow: tuple[str, ...] = ("127.0.0.0/8",), clock: Any = None, **options: Any) -> Any:
        route = Route(name="hook", target=url, allow=allow, options=options)
        return closing(WebhookTarget(url, route, "", clock=clock))

    return open_one


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """What names are resolved to: the test fills it, and the system is not asked."""
    known: Names = {}

    def getaddrinfo(host: str, port: int, *args: object, **more: object) -> list[tuple[Any, ...]]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (ip, port, 0, 0))
            if ":" in ip
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port))
            for ip in known[host]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.fixture
def rabbits(closing: Closing) -> Rabbits:
    """Opens RabbitMQ targets, closes them."""

    def open_one(url: str, **options: Any) -> RabbitMQTarget:
        route = Route(name="rabbits", target=url, options=options)
        return closing(RabbitMQTarget(url, route, ""))

    return open_one


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"orders.{uuid.uuid4().hex}"


@pytest.fixture
def broker(rabbitmq: RabbitMQ) -> Iterator[Amqp]:
    """A connection to the broker beside the one under test."""
    with amqp(rabbitmq) as one:
        yield one
