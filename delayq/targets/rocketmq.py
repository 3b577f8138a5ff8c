"""RocketMQ 5, through its proxy: a message becomes a message of a RocketMQ topic, with its tag, its keys and its body."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from delayq.clock import Clock, SystemClock
from delayq.errors import ConfigError
from delayq.routes import Route
from delayq.secrets import revealed
from delayq.targets import Delivery, Result
from delayq.targets.rocketmq_client import (
    ClientConfiguration,
    Credentials,
    Encoding,
    MessageIds,
    MessageType,
    SendMessageRequest,
    grpc,
)
from delayq.targets.rocketmq_proxy import Call, Proxies, Way
from delayq.targets.rocketmq_verdicts import ACCEPTABLE

__all__ = ["OWN", "Options", "RocketMQTarget"]

#: What a property's name begins with that delayq adds. Without a '-', which consumers' SQL filters do not take.
OWN: Final = "delayq_"
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")
_NO_TOPIC = re.compile("[^A-Za-z0-9_-]")


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a route may say in `options`. A secret is 'env:NAME', 'file:PATH', or itself."""

    topic: str = "{topic}"
    groups: bool = True
    accept: tuple[str, ...] = ()
    access_key: str = ""
    secret_key: str = ""
    namespace: str = ""
    tls: bool = False
    ca: str = ""


class RocketMQTarget:
    """Sends the messages of a batch side by side, each with an answer of its own.

    At least once: a send without an answer is repeated by delayq, with the same id. Nothing is sent again by itself.
    """

    max_batch = 64

    def __init__(self, url: str, route: Route, redis_url: str, *, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        try:
            options = msgspec.convert(route.options, Options)
            endpoints = _endpoints(url)
            self._accept = frozenset(_acceptable(one) for one in options.accept)
            if bool(options.access_key) != bool(options.secret_key):
                raise ValueError("accessKey and secretKey go together")
            if options.ca and not options.tls:
                raise ValueError("ca is for tls")
            keys = Credentials(revealed(options.access_key, "accessKey"), revealed(options.secret_key, "secretKey"))
            configuration = ClientConfiguration(endpoints, keys, options.namespace)
            roots = Path(options.ca).read_bytes() if options.ca else None
        except (ValueError, OSError, msgspec.ValidationError) as error:
            raise ConfigError(f"route {route.name}: RocketMQ cannot be used: {error}") from None
        self._topic = options.topic
        self._namespace = options.namespace
        self._groups = options.groups
        self._ids = MessageIds()
        self._host = socket.gethostname()
        credentials = grpc.ssl_channel_credentials(roots) if options.tls else None
        self._proxies = Proxies(configuration, credentials, self._clock)

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Send them all at once and wait for each."""
        deadline = self._clock.monotonic() + int(timeout * 1000)
        topics = [self.topic_of(one.topic) for one in batch]
        begun: list[Call | Result | None] = []
        asked: dict[str, Call | Result] = {}
        for one, topic in zip(batch, topics, strict=True):
            way = self._proxies.way(topic, self._left(deadline))
            begun.append(None if way is None else self._begin(one, topic, way, deadline))
            if way is None and topic not in asked:
                asked[topic] = self._proxies.ask(topic, self._left(deadline))
        # Meanwhile the others are on their way.
        learnt = {topic: self._learn(topic, call, deadline) for topic, call in asked.items()}
        results: list[Result] = []
        for place, topic in enumerate(topics):
            if begun[place] is None:
                found = learnt[topic]
                begun[place] = found if isinstance(found, Result) else self._begin(batch[place], topic, found, deadline)
        for topic, call in zip(topics, begun, strict=True):
            assert call is not None
            results.append(self._end(topic, call, deadline))
        return results

    def _left(self, deadline: int) -> float:
        return (deadline - self._clock.monotonic()) / 1000

    def _learn(self, topic: str, call: Call | Result, deadline: int) -> Way | Result:
        return call if isinstance(call, Result) else self._proxies.learn(topic, call, self._left(deadline))

    def _begin(self, one: Delivery, topic: str, way: Way, deadline: int) -> Call | Result:
        properties = self._properties(one)
        if isinstance(properties, Result):
            return properties
        if not one.payload:  # a proxy that may be told to take it could not give it to a consumer
            return Result.rejected("RocketMQ has no messages without a body")
        request = SendMessageRequest()
        message = request.messages.add()
        message.topic.name = topic
        message.topic.resource_namespace = self._namespace
        message.body = one.payload
        message.user_properties.update(properties)
        system = message.system_properties
        if one.tags:
            system.tag = one.tags
        system.keys.extend(one.keys)
        now = self._clock.now()
        system.message_id = self._ids.next(now)
        system.body_encoding = Encoding.IDENTITY
        system.born_timestamp.FromMilliseconds(now)
        system.born_host = self._host
        group = self._group(one, topic, way, system.message_id)
        if isinstance(group, Result):
            return group
        system.message_type = MessageType.FIFO if group else MessageType.NORMAL
        if group:
            system.message_group = group
        queue = way.queues.select_queue_by_hash_key(group) if group else way.queues.select_next_queue()
        return self._proxies.send(queue, request, self._left(deadline))

    def _properties(self, one: Delivery) -> dict[str, str] | Result:
        given = one.properties
        taken = next((name for name in given if name.startswith(OWN)), None)
        if taken is not None:
            return Result.rejected(f"property {taken}: names that begin with {OWN} are delayq's own")
        found = {name: value for name, value in given.items() if value}
        if len(found) < len(given):  # RocketMQ loses those without a value
            found[f"{OWN}empty"] = json.dumps([name for name, value in given.items() if not value])
        own = {"id": one.id, "topic": one.topic, "due": str(one.due), "attempt": str(one.attempt)}
        return found | {f"{OWN}{name}": value for name, value in own.items()}

    def _group(self, one: Delivery, topic: str, way: Way, id: str) -> str | Result:
        """The message group: the ordering key; in a topic of groups a message without a key is one by itself."""
        types = way.types
        if one.ordering_key and self._groups:
            if types and MessageType.FIFO not in types:
                return Result.unavailable(
                    f"topic {topic} takes no message groups: make it one of type FIFO, or set the route's option groups"
                    " to false"
                )
            return one.ordering_key
        if not types or MessageType.NORMAL in types:
            return ""
        if MessageType.FIFO in types and self._groups:
            return id
        return Result.unavailable(f"topic {topic} takes no ordinary messages")

    def _end(self, topic: str, call: Call | Result, deadline: int) -> Result:
        if isinstance(call, Result):
            return call
        result = self._proxies.sent(call, self._left(deadline), self._accept)
        if result.outcome == "unavailable":
            self._proxies.forget(topic)  # it may be gone, or elsewhere
        return result

    def topic_of(self, topic: str) -> str:
        """The RocketMQ topic; what its name cannot have becomes '-'."""
        return self._topic.replace("{topic}", _NO_TOPIC.sub("-", topic))

    def close(self) -> None:
        """Wait for the sends under way, at most 10 s, and close the connections."""
        self._proxies.close()


def _endpoints(url: str) -> str:
    """The proxies' addresses, as the client takes them."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("keys do not go into the URL: use the options accessKey and secretKey")
    addresses = parts.netloc.split(",")
    if not all(_ADDRESS.fullmatch(one) for one in addresses) or parts.path or parts.query or parts.fragment:
        raise ValueError("the URL is rocketmq://HOST:PORT of a proxy, or of several, a comma between two")
    if len(addresses) > 1 and not all(_is_ipv4(one.partition(":")[0]) for one in addresses):
        raise ValueError("several proxies are IPv4 addresses; otherwise give one name that has several")
    return ";".join(addresses)


def _is_ipv4(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def _acceptable(name: str) -> Any:
    if name not in ACCEPTABLE:
        raise ValueError(f"accept: {name!r} is none of {', '.join(ACCEPTABLE)}")
    return ACCEPTABLE[name]
