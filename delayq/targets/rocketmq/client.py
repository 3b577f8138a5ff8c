"""The parts of RocketMQ's official client that a target needs: its protocol, its signature, its choice of a queue.

The client's own `Producer` is not suitable (docs/decisions/0021):

- It sends again by itself, even after its caller has given up. A message would then overtake the next one of its ordering key.
- It counts timeouts in full seconds.
- After an outage it tries to connect at most every two minutes.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import uuid
from types import ModuleType
from typing import Final

from delayq.base.errors import MissingExtra

_LOG: Final = "rocketmq.v5.log"
_LOGGER: Final = "rocketmq-python-client"


def _keep_it_quiet() -> None:
    """The client opens a log file below the user's home as it is imported, and cannot be imported where it may not.

    Replace its module that does. Its logger uses the normal logging, if somebody sets its level.
    gRPC, too, would write on standard error that a connection was closed.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    logger = logging.getLogger(_LOGGER)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    if _LOG not in sys.modules:
        quiet = ModuleType(_LOG, _keep_it_quiet.__doc__)
        quiet.__dict__["logger"] = logger
        sys.modules[_LOG] = quiet


_keep_it_quiet()
try:
    import grpc
    from rocketmq import ClientConfiguration, Credentials
    from rocketmq.grpc_protocol import (
        AddressScheme,
        Code,
        Encoding,
        Endpoints,
        MessageType,
        MessagingServiceStub,
        QueryRouteRequest,
        SendMessageRequest,
    )
    from rocketmq.grpc_protocol.definition_pb2 import Message
    from rocketmq.v5.client.balancer import QueueSelector
    from rocketmq.v5.model import TopicRouteData
    from rocketmq.v5.util import ClientId, Signature
except ModuleNotFoundError:
    raise MissingExtra("a rocketmq target", "rocketmq") from None

__all__ = [
    "AddressScheme",
    "ClientConfiguration",
    "ClientId",
    "Code",
    "Credentials",
    "Encoding",
    "Endpoints",
    "Message",
    "MessageIds",
    "MessageType",
    "MessagingServiceStub",
    "QueryRouteRequest",
    "QueueSelector",
    "SendMessageRequest",
    "Signature",
    "TopicRouteData",
    "grpc",
]


class MessageIds:
    """RocketMQ's ids, version 1: the machine, the process, the seconds since 2021, a number.

    The client's own generator fails after 2**32 messages.
    """

    _SINCE: Final = 1_609_459_200

    def __init__(self) -> None:
        self._head = b"\1" + uuid.getnode().to_bytes(6, "big") + (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self._numbers = itertools.count()

    def next(self, now: int) -> str:
        """Another one, at this Unix time in ms."""
        seconds = (now // 1000 - self._SINCE) & 0xFFFFFFFF
        number = next(self._numbers) & 0xFFFFFFFF
        return (self._head + seconds.to_bytes(4, "big") + number.to_bytes(4, "big")).hex().upper()
