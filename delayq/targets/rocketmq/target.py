"""RocketMQ 5, through its proxy: a message becomes a message of a RocketMQ topic, with its tag, its keys and its body."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError
from delayq.base.secrets import revealed
from delayq.base.urls import split_url
from delayq.base.written import options_as
from delayq.domain.routes import Route, stray_braces
from delayq.targets import Delivery, Result
from delayq.targets.rocketmq.client import ClientConfiguration, Credentials, SendMessageRequest, grpc
from delayq.targets.rocketmq.message import Messages
from delayq.targets.rocketmq.proxy import Call, Proxies, TopicRoute
from delayq.targets.rocketmq.rules import topic_of
from delayq.targets.rocketmq.verdicts import ACCEPTABLE

#: Messages, and bytes of their bodies, that one request has at most: far less than what a broker takes (4 MiB).
MOST_TOGETHER: Final = 64
MOST_BYTES: Final = 256 * 1024
_NOT_SENT: Final = Result.unavailable("it was not sent")
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `options` of a route. A secret is 'env:NAME', 'file:PATH', or itself."""

    topic: str = "{topic}"
    groups: bool = True
    accept: tuple[str, ...] = ()
    access_key: str = ""
    secret_key: str = ""
    namespace: str = ""
    tls: bool = False
    ca: str = ""


class _Request(msgspec.Struct):
    """Messages for one request, and their places in the batch; the call under way, or what came of it already."""

    places: list[int]
    messages: list[Any]
    bytes: int = 0
    call: Call | Result = _NOT_SENT

    @property
    def several(self) -> bool:
        """Whether its messages share their result."""
        return len(self.places) > 1


class RocketMQTarget:
    """Sends the messages of a batch side by side, those of a topic in one request, each with an answer of its own.

    At least once: a send without an answer is repeated by delayq, with the same id. Nothing is sent again by itself, but
    what was refused together with others: that is sent alone.
    """

    max_batch = 256

    def __init__(self, url: str, route: Route, redis_url: str) -> None:
        self._clock = SystemClock()
        try:
            options = options_as(Options, route.options)
            endpoints = _endpoints(url)
            if stray := stray_braces(options.topic):
                raise ValueError(f"topic has {stray[:40]!r}; {{topic}} is all that stands for something")
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
        self._messages = Messages(options.namespace, groups=options.groups, clock=self._clock)
        credentials = grpc.ssl_channel_credentials(roots) if options.tls else None
        self._proxies = Proxies(configuration, credentials, self._clock)

    def send(self, batch: Sequence[Delivery], timeout: float) -> Sequence[Result]:
        """Send them all at once and wait for each."""
        deadline = self._clock.monotonic() + int(timeout * 1000)
        topics = [self.topic_of(one.topic) for one in batch]
        results = [_NOT_SENT] * len(batch)
        known: dict[str, TopicRoute] = {}
        asked: dict[str, Call | Result] = {}
        for topic in set(topics):
            route = self._proxies.route(topic, deadline)
            if route is None:
                asked[topic] = self._proxies.ask(topic, deadline)
            else:
                known[topic] = route
        sent = self._begin(batch, topics, known, results, deadline, wait=not asked)
        learnt: dict[str, TopicRoute] = {}
        for topic, call in asked.items():  # meanwhile the others are on their way
            found = self._learn(topic, call, deadline)
            if isinstance(found, Result):
                for place in (place for place, other in enumerate(topics) if other == topic):
                    results[place] = found
            else:
                learnt[topic] = found
        sent += self._begin(batch, topics, learnt, results, deadline, wait=True)
        alone = [one for request in sent for one in self._end(request, topics, results, deadline)]
        for request in alone:
            self._post(request, topics[request.places[0]], known | learnt, deadline)
        for request in alone:
            self._end(request, topics, results, deadline)
        return results

    def _left(self, deadline: int) -> float:
        return (deadline - self._clock.monotonic()) / 1000

    def _learn(self, topic: str, call: Call | Result, deadline: int) -> TopicRoute | Result:
        return call if isinstance(call, Result) else self._proxies.learn(topic, call, self._left(deadline))

    def _begin(
        self,
        batch: Sequence[Delivery],
        topics: Sequence[str],
        routes: Mapping[str, TopicRoute],
        results: list[Result],
        deadline: int,
        *,
        wait: bool,
    ) -> list[_Request]:
        """Send the messages of topics whose route is known. The others get their result at once.

        With `wait` the last request is waited for, while the others are on their way.
        """
        requests: list[_Request] = []
        together: dict[str, _Request] = {}
        for place, (one, topic) in enumerate(zip(batch, topics, strict=True)):
            route = routes.get(topic)
            if route is None:
                continue
            message = self._messages.make(one, topic, route)
            if isinstance(message, Result):
                results[place] = message
                continue
            size = len(message.body)
            open = together.get(topic)
            # Messages of a group find their queue by it, and only alone. A message that failed before also finds its error alone.
            if message.system_properties.message_group or one.attempt > 1:
                requests.append(_Request([place], [message]))
            elif open is None or len(open.places) == MOST_TOGETHER or open.bytes + size > MOST_BYTES:
                together[topic] = _Request([place], [message], size)
                requests.append(together[topic])
            else:
                open.places.append(place)
                open.messages.append(message)
                open.bytes += size
        for request in requests:
            self._post(request, topics[request.places[0]], routes, deadline, wait=wait and request is requests[-1])
        return requests

    def _post(
        self, request: _Request, topic: str, routes: Mapping[str, TopicRoute], deadline: int, *, wait: bool = False
    ) -> None:
        queues = routes[topic].queues
        group = request.messages[0].system_properties.message_group
        queue = queues.select_queue_by_hash_key(group) if group else queues.select_next_queue()
        asked = SendMessageRequest(messages=request.messages)
        if wait:
            request.call = self._proxies.exchange(queue, asked, deadline, self._accept, several=request.several)
        else:
            request.call = self._proxies.send(queue, asked, deadline)

    def _end(
        self, request: _Request, topics: Sequence[str], results: list[Result], deadline: int
    ) -> Sequence[_Request]:
        """Wait for the answer and record it. Messages that were refused because of another message are sent alone."""
        result = request.call
        if not isinstance(result, Result):
            result = self._proxies.sent(result, self._left(deadline), self._accept, several=request.several)
        for place in request.places:
            results[place] = result
        if result.outcome == "unavailable":
            self._proxies.forget(topics[request.places[0]])  # it may be gone, or elsewhere
        if not request.several or result.outcome != "rejected":
            return ()
        return [_Request([place], [message]) for place, message in zip(request.places, request.messages, strict=True)]

    def topic_of(self, topic: str) -> str:
        """The RocketMQ topic."""
        return topic_of(self._topic, topic)

    def close(self) -> None:
        """Wait for the sends under way, at most 10 s, and close the connections."""
        self._proxies.close()


def _endpoints(url: str) -> str:
    """The proxies' addresses, as the client takes them."""
    parts = split_url(url)
    if "@" in parts.netloc:
        raise ValueError("keys do not go into the URL: use the options accessKey and secretKey")
    addresses = parts.netloc.split(",")
    if not all(_ADDRESS.fullmatch(one) for one in addresses) or parts.path or parts.query or parts.fragment:
        raise ValueError("the URL is rocketmq://HOST:PORT of a proxy, or of several, a comma between two")
    if not all(0 < int(one.rpartition(":")[2]) < 65_536 for one in addresses):
        raise ValueError("a port is from 1 to 65535")
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
