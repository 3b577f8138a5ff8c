"""Something that speaks as RocketMQ's proxy does, and answers what a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from delayq.embedded.processes import LOCALHOST, free_port
from delayq.targets.rocketmq.client import AddressScheme, Code, MessageType, grpc

NORMAL_AND_FIFO = (MessageType.NORMAL, MessageType.FIFO)


class FakeProxy:
    """`answer` says which code a message is answered with, `together` what several in one request are; `requests` has how
    many messages each had. `types` which messages a topic takes, None: there is none.

    `hold` keeps back the answers to messages until `release`; with `end` the call ends by this status of gRPC instead, once it
    has the messages. `with FakeProxy() as proxy:`
    """

    def __init__(self, *, credentials: Any | None = None) -> None:
        self.port = free_port()
        self.answer: Callable[[Any], int] = lambda message: Code.OK
        self.types: Callable[[str], tuple[int, ...] | None] = lambda topic: NORMAL_AND_FIFO
        self.together = Code.OK
        self.end: Any = None
        self.messages: list[Any] = []
        self.requests: list[int] = []
        self.metadata: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.queues = 4
        self._credentials = credentials
        self._free = threading.Event()
        self._free.set()
        self._server: Any = None

    @property
    def url(self) -> str:
        return f"rocketmq://{LOCALHOST}:{self.port}"

    def hold(self) -> None:
        """Accept messages and never answer."""
        self._free.clear()

    def release(self) -> None:
        """Say it."""
        self._free.set()

    def start(self) -> None:
        """Listen, on the same port again."""
        from rocketmq.grpc_protocol.service_pb2_grpc import add_MessagingServiceServicer_to_server

        self._server = grpc.server(ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        add_MessagingServiceServicer_to_server(_Service(self), self._server)
        where = f"{LOCALHOST}:{self.port}"
        if self._credentials is None:
            self._server.add_insecure_port(where)
        else:
            self._server.add_secure_port(where, self._credentials)
        self._server.start()

    def stop(self) -> None:
        """Break every connection."""
        self.release()
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- what it is asked ----------------------------------------------------------------------------------------------

    def route(self, request: Any, answer: Any) -> None:
        """The queues of a topic."""
        self.asked.append(request.topic.name)
        types = self.types(request.topic.name)
        answer.status.code = Code.OK if types is not None else Code.TOPIC_NOT_FOUND
        answer.status.message = "" if types is not None else f"no topic {request.topic.name}"
        for number in range(self.queues if types is not None else 0):
            queue = answer.message_queues.add(id=number, permission=3, accept_message_types=types)
            queue.topic.CopyFrom(request.topic)
            queue.broker.name = "fake"
            queue.broker.endpoints.scheme = AddressScheme.IPv4
            queue.broker.endpoints.addresses.add(host=LOCALHOST, port=self.port)

    def send(self, request: Any, answer: Any) -> None:
        """Messages of a topic: as soon as one of them cannot be taken, none is."""
        messages = list(request.messages)
        self.requests.append(len(messages))
        self.messages += messages
        self._free.wait()
        assert len({one.topic.name for one in messages}) == 1
        assert len(messages) == 1 or not any(one.system_properties.message_group for one in messages)
        codes = {self.answer(one) for one in messages} | ({self.together} if len(messages) > 1 else set())
        answer.status.code = max(codes - {Code.OK}, default=Code.OK)
        answer.status.message = "said by the test"
        answer.entries.add(message_id=messages[0].system_properties.message_id)


class _Service:
    """The calls of a proxy that a target makes."""

    def __init__(self, proxy: FakeProxy) -> None:
        self._proxy = proxy

    def __getattr__(self, name: str) -> Any:
        return lambda request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, name)

    def QueryRoute(self, request: Any, context: Any) -> Any:
        from rocketmq.grpc_protocol.service_pb2 import QueryRouteResponse

        answer = QueryRouteResponse()
        self._proxy.route(request, answer)
        return answer

    def SendMessage(self, request: Any, context: Any) -> Any:
        from rocketmq.grpc_protocol.service_pb2 import SendMessageResponse

        self._proxy.metadata.append(dict(context.invocation_metadata()))
        answer = SendMessageResponse()
        self._proxy.send(request, answer)
        if self._proxy.end is not None:
            context.abort(self._proxy.end, "")
        return answer
