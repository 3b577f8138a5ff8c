"""Connections to RocketMQ's proxies, and the routes of topics."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from delayq.base.clock import Clock
from delayq.base.remembered import Remembered
from delayq.targets import OK, Result
from delayq.targets.rocketmq.client import (
    AddressScheme,
    ClientConfiguration,
    ClientId,
    MessagingServiceStub,
    QueryRouteRequest,
    QueueSelector,
    SendMessageRequest,
    Signature,
    TopicRouteData,
    grpc,
)
from delayq.targets.rocketmq.verdicts import failed, judge

#: ms after which a topic's route is asked for again.
REFRESH: Final = 30_000
MOST_ROUTES: Final = 10_000
#: ms that `close` waits for the sends under way.
LAST_SENDS: Final = 10_000
#: s beyond its own deadline after which the wait for an answer ends: a guard, as the answer arrives at the deadline.
GUARD: Final = 1.0
_REQUEST_ID: Final = "x-mq-request-id"
_OPTIONS: Final = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # Otherwise, after an outage, it would look for the proxy again only every two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class TopicRoute(msgspec.Struct):
    """Where a topic's messages go: its queues, the types of messages that it takes; asked for again after `until`."""

    queues: Any
    types: frozenset[int]
    until: int


class Channel:
    """A channel to a proxy."""

    def __init__(self, channel: Any, now: int) -> None:
        self.grpc = channel
        self.stub = MessagingServiceStub(channel)
        self.answered = now
        self.under_way = 0
        self.retired = False


class Call(msgspec.Struct):
    """A request under way."""

    channel: Any
    future: Any
    since: int


class Proxies:
    """Asks the proxies that routes name, over a channel each. For several threads."""

    def __init__(self, configuration: ClientConfiguration, credentials: Any | None, clock: Clock) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._clock = clock
        self._id = ClientId().client_id
        self._signed: tuple[int, list[tuple[str, str]]] = (0, [])
        self._condition = threading.Condition()
        self._channels: dict[str, Channel] = {}
        self._retired: list[Channel] = []
        self._routes: Remembered[str, TopicRoute] = Remembered(MOST_ROUTES)
        self._closed = False

    # -- routes --------------------------------------------------------------------------------------------------------

    def route(self, topic: str, deadline: int) -> TopicRoute | None:
        """The topic's route, if it is known; an old one is asked for again meanwhile, until the deadline (monotonic ms)."""
        now = self._clock.monotonic()
        with self._condition:
            route = self._routes.get(topic)
            if route is None or route.until > now:
                return route
            route.until = now + REFRESH  # by one thread
        call = self.ask(topic, deadline)
        if not isinstance(call, Result):
            call.future.add_done_callback(lambda _: self.learn(topic, call, 0))
        return route

    def ask(self, topic: str, deadline: int) -> Call | Result:
        """Ask for the topic's route, until the deadline (monotonic ms); `learn` waits for the answer."""
        request = QueryRouteRequest()
        request.topic.name = topic
        request.topic.resource_namespace = self._configuration.namespace
        request.endpoints.CopyFrom(self._configuration.rpc_endpoints.endpoints)
        return self._call(self._configuration.rpc_endpoints, lambda stub: stub.QueryRoute, request, deadline)

    def learn(self, topic: str, call: Call, timeout: float) -> TopicRoute | Result:
        """The route that was asked for, or why there is none."""
        answer = self._answer(call, timeout)
        if isinstance(answer, Result):
            return Result.unavailable(answer.reason)  # whatever it was, no message was sent
        verdict = judge(answer.status, frozenset())
        queues = TopicRouteData(answer.message_queues)
        writable = [one for one in queues.message_queues if one.is_writable() and one.is_master_broker()]
        if verdict is not OK or not writable:
            with self._condition:
                self._routes.pop(topic, None)
            reason = verdict.reason or f"topic {topic} has no queue that can be written to"
            return verdict if verdict.outcome == "rejected" else Result.unavailable(reason)
        types = frozenset(kind for one in writable for kind in one.accept_message_types)
        route = TopicRoute(QueueSelector.producer_queue_selector(queues), types, self._clock.monotonic() + REFRESH)
        with self._condition:
            return self._routes.keep(topic, route)

    def forget(self, topic: str) -> None:
        """Ask for the topic's route before the next send."""
        with self._condition:
            self._routes.pop(topic, None)

    # -- messages ------------------------------------------------------------------------------------------------------

    def send(self, queue: Any, request: SendMessageRequest, deadline: int) -> Call | Result:
        """Begin to send, not behind the deadline (monotonic ms); `sent` waits for the answer."""
        return self._call(queue.endpoints, lambda stub: stub.SendMessage, request, deadline)

    def sent(self, call: Call, timeout: float, accept: frozenset[int], *, several: bool) -> Result:
        """The outcome of the request, for all its messages."""
        answer = self._answer(call, timeout)
        return answer if isinstance(answer, Result) else judge(answer.status, accept, several=several)

    def exchange(
        self, queue: Any, request: SendMessageRequest, deadline: int, accept: frozenset[int], *, several: bool
    ) -> Result:
        """Send and wait for the answer, in the caller's thread: gRPC needs no other one for it."""
        channel = self._take(queue.endpoints, deadline)
        if isinstance(channel, Result):
            return channel
        since = self._clock.monotonic()
        metadata = self._metadata()
        answer = self._hear(
            channel,
            since,
            lambda: channel.stub.SendMessage(request, metadata=metadata, timeout=self._left(deadline)),
        )
        return answer if isinstance(answer, Result) else judge(answer.status, accept, several=several)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _left(self, deadline: int) -> float:
        """Seconds until then; asked right before a call, for gRPC reckons them from there."""
        return (deadline - self._clock.monotonic()) / 1000

    def _take(self, where: Any, deadline: int) -> Channel | Result:
        """The channel to a proxy, with one more call in progress. `_done` has to end the call."""
        if self._left(deadline) <= 0:
            return Result.unavailable(f"{where}: no time was left to send it")
        with self._condition:
            if self._closed:
                return Result.unavailable(f"{where}: the target is closed")
            channel = self._channels.get(where.facade)
            if channel is None:
                now = self._clock.monotonic()
                channel = self._channels[where.facade] = Channel(self._connect(target_of(where.endpoints)), now)
            channel.under_way += 1
        return channel

    def _call(self, where: Any, method: Callable[[Any], Any], request: Any, deadline: int) -> Call | Result:
        channel = self._take(where, deadline)
        if isinstance(channel, Result):
            return channel
        since = self._clock.monotonic()
        try:
            metadata = self._metadata()
            future = method(channel.stub).future(request, metadata=metadata, timeout=self._left(deadline))
        except BaseException:
            self._done(channel, answered=False)
            raise
        return Call(channel, future, since)

    def _metadata(self) -> list[tuple[str, str]]:
        """The signed credentials. A signature is valid for a second, and is used again within it."""
        second = self._clock.now() // 1000
        if self._signed[0] != second:
            self._signed = (second, Signature.metadata(self._configuration, self._id))
        return [*(pair for pair in self._signed[1] if pair[0] != _REQUEST_ID), (_REQUEST_ID, str(uuid.uuid4()))]

    def _connect(self, target: str) -> Any:
        if self._credentials is None:
            return grpc.insecure_channel(target, _OPTIONS)
        return grpc.secure_channel(target, self._credentials, _OPTIONS)

    def _answer(self, call: Call, timeout: float) -> Any:
        """The answer, or what went wrong."""
        answer = self._hear(call.channel, call.since, lambda: call.future.result(timeout=max(0.0, timeout) + GUARD))
        call.future.cancel()  # does nothing to one that has ended
        return answer

    def _hear(self, channel: Channel, since: int, wait: Callable[[], Any]) -> Any:
        """The answer of `wait`, or its error; the call has ended then."""
        where = str(self._configuration.rpc_endpoints)
        answered = lost = False
        try:
            answer = wait()
            answered = True
            return answer
        except grpc.RpcError as error:
            lost = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return failed(where, error)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            return Result.unknown(f"{where}: no answer")
        finally:
            self._done(channel, answered=answered, lost_since=since if lost else None)

    def _done(self, channel: Channel, *, answered: bool, lost_since: int | None = None) -> None:
        """A call has ended. A channel that has answered nothing while one timed out is not used again.

        Its connection may be dead without a word, and would be taken for a good one until the system gives it up.
        """
        with self._condition:
            channel.under_way -= 1
            if answered:
                channel.answered = self._clock.monotonic()
            if lost_since is not None and channel.answered <= lost_since and not channel.retired:
                channel.retired = True
                self._channels = {target: one for target, one in self._channels.items() if one is not channel}
                self._retired.append(channel)
            over = [one for one in self._retired if one.under_way == 0]
            self._retired = [one for one in self._retired if one.under_way]
            self._condition.notify_all()
        for one in over:
            one.grpc.close()

    def close(self) -> None:
        """Wait for the sends under way, at most `LAST_SENDS`, and close the channels."""
        end = self._clock.monotonic() + LAST_SENDS
        with self._condition:
            self._closed = True
            while any(channel.under_way for channel in (*self._channels.values(), *self._retired)):
                left = end - self._clock.monotonic()
                if left <= 0 or not self._clock.wait(self._condition, left):
                    break
            channels = [*self._channels.values(), *self._retired]
            self._channels, self._retired = {}, []
        for channel in channels:
            channel.grpc.close()


def target_of(endpoints: Any) -> str:
    """The target of gRPC for these addresses."""
    kind = {AddressScheme.IPv4: "ipv4", AddressScheme.IPv6: "ipv6"}.get(endpoints.scheme, "dns")
    brackets = kind == "ipv6"
    hosts = [f"[{one.host}]:{one.port}" if brackets else f"{one.host}:{one.port}" for one in endpoints.addresses]
    return f"{kind}:{','.join(hosts)}"
