"""RabbitMQ: each message is published to an exchange, with publisher confirms, persistent and mandatory."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial  # noqa: TID251  # the keys are topics of at most 255 characters
from typing import Any, Final

import msgspec

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError, MissingExtra
from delayq.base.secrets import revealed
from delayq.domain.routes import Route, stray_braces
from delayq.targets import Delivery, Result

try:
    from pika.exceptions import AMQPError
except ModuleNotFoundError:
    raise MissingExtra("a RabbitMQ target", "rabbitmq") from None

from delayq.base.written import options_as
from delayq.targets.rabbitmq.address import parameters_of
from delayq.targets.rabbitmq.batch import Batch, Group, Outgoing
from delayq.targets.rabbitmq.connection import BrokerConnection
from delayq.targets.rabbitmq.frames import content_header, publish_method
from delayq.targets.rabbitmq.passthrough import SHORT, carried, way_of

MOST_SUSPECTS: Final = 10_000
MOST_APART: Final = 16
#: Topics come from outside: so many are remembered.
MOST_WAYS: Final = 10_000


class _Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `options` of a route. A password is 'env:NAME', 'file:PATH', or itself. Times are ms."""

    exchange: str = ""
    routing_key: str = "{topic}"
    property_prefix: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = ""
    connect_timeout: int = 5_000
    heartbeat: int = 10_000


class RabbitMQTarget:
    """Publishes batches; a confirm of the broker is what counts, and a message that it returns is not delivered.

    At least once: a message whose confirm was lost is published again, with the same `message_id`.
    """

    max_batch = 500

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self._clock = SystemClock()
        try:
            options = options_as(_Options, route.options)
            for name, text in (("exchange", options.exchange), ("routingKey", options.routing_key)):
                if "{topic}" not in text and len(text.encode()) > SHORT:
                    raise ValueError(f"{name} is longer than {SHORT} bytes")
                if stray := stray_braces(text):
                    raise ValueError(f"{name} has {stray[:40]!r}; {{topic}} is all that stands for something")
            if options.connect_timeout < 1 or options.heartbeat < 1_000:
                raise ValueError("connectTimeout is at least 1 and heartbeat at least 1000 (ms)")
            parameters = parameters_of(
                url,
                user=options.user,
                password=revealed(options.password, "password"),
                tls=_tls(options),
                connect_timeout=options.connect_timeout,
                heartbeat=options.heartbeat,
                name=f"delayq {route.name}",
            )
        except (ValueError, OSError, msgspec.ValidationError) as error:
            raise ConfigError(f"route {route.name}: RabbitMQ cannot be used: {error}") from None
        self._way = lru_cache(MOST_WAYS)(partial(_way, options.exchange, options.routing_key))
        self._prefix = options.property_prefix
        self._link = BrokerConnection(parameters, route.name, self._clock)

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Publish a batch and wait for its confirms."""
        deadline = self._clock.monotonic() + int(timeout * 1000)
        suspects = self._link.learned.suspects
        refused: dict[int, Result] = {}
        groups: dict[str, list[tuple[int, Outgoing]]] = {}
        for place, one in enumerate(batch):
            try:
                ready = self._outgoing(one)
            except (ValueError, AMQPError) as error:  # it cannot be written down
                refused[place] = Result.rejected(str(error) or type(error).__name__)
                continue
            groups.setdefault(ready.exchange, []).append((place, ready))
        apart = _apart(groups.values(), suspects) if suspects else list(groups.values())
        sending = Batch(apart, len(batch), self._clock, deadline)
        self._link.send(sending)
        if suspects:
            done = {one.id for one, result in zip(batch, sending.results, strict=True) if _is_final(result)}
            suspects.difference_update(done if len(suspects) < MOST_SUSPECTS else set(suspects))
        return [result or refused[place] for place, result in enumerate(sending.results)]

    def _outgoing(self, one: Delivery) -> Outgoing:
        topic = one.topic
        exchange, routing_key, method = self._way(topic)
        headers: dict[str, str] = {}
        if tags := one.tags:
            headers["delayq-tags"] = tags
        if keys := one.keys:
            headers["delayq-keys"] = " ".join(keys)
        if ordering_key := one.ordering_key:
            headers["delayq-ordering-key"] = ordering_key
        given: dict[str, Any] = {}
        if properties := one.properties:
            more, given = carried(properties, self._prefix)
            headers |= more
        id = one.id
        header_frame = content_header(id, one.due, one.attempt, one.content_type, topic, headers, given)
        return Outgoing(id, exchange, routing_key, method, header_frame, one.payload)

    def close(self) -> None:
        """Close the connection and end its thread."""
        self._link.close()


def _way(exchange: str, routing_key: str, topic: str) -> tuple[str, str, bytes]:
    """The exchange and the routing key of a topic's messages, and the method that publishes them."""
    exchange, routing_key = way_of(exchange, routing_key, topic)
    return exchange, routing_key, publish_method(exchange, routing_key)


def _apart(groups: Iterable[Group], suspects: set[str]) -> list[Group]:
    """The same messages, with those that may make the broker close a channel in small groups of their own."""
    found: list[Group] = []
    for group in groups:
        doubtful = [entry for entry in group if entry[1].id in suspects]
        step = -(-len(doubtful) // MOST_APART)
        found += [doubtful[start : start + step] for start in range(0, len(doubtful), step or 1)]
        if len(doubtful) < len(group):
            found.append([entry for entry in group if entry[1].id not in suspects])
    return found


def _is_final(result: Result | None) -> bool:
    return result is not None and result.outcome in ("ok", "rejected")


def _tls(options: _Options) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca or None)
    if options.certificate:
        # Without any password OpenSSL would ask for it at the terminal.
        context.load_cert_chain(options.certificate, options.key or None, revealed(options.key_password, "keyPassword"))
    return context
