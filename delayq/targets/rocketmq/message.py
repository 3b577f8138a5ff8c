"""A message of delayq as one of RocketMQ's: its tag, its keys, its body, its group, and its properties."""

from __future__ import annotations

import json
import socket
from typing import Any

from delayq.base.clock import Clock
from delayq.targets import Delivery, Result
from delayq.targets.rocketmq.client import Encoding, Message, MessageIds, MessageType
from delayq.targets.rocketmq.proxy import TopicRoute
from delayq.targets.rocketmq.rules import NO_BODY, OWN


class Messages:
    """Makes them, each with an id of its own. For several threads."""

    def __init__(self, namespace: str, *, groups: bool, clock: Clock) -> None:
        self._namespace = namespace
        self._groups = groups
        self._clock = clock
        self._ids = MessageIds()
        self._host = socket.gethostname()

    def make(self, one: Delivery, topic: str, route: TopicRoute) -> Any | Result:
        """RocketMQ's message, or why it cannot be one of this topic."""
        properties = _properties(one)
        if isinstance(properties, Result):
            return properties
        if not one.payload:  # a proxy that accepts it by a setting could not hand it to a consumer
            return Result.rejected(f"the body {NO_BODY}")
        message = Message()
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
        group = self._group(one, topic, route, system.message_id)
        if isinstance(group, Result):
            return group
        system.message_type = MessageType.FIFO if group else MessageType.NORMAL
        if group:
            system.message_group = group
        return message

    def _group(self, one: Delivery, topic: str, route: TopicRoute, id: str) -> str | Result:
        """The message group: the ordering key; in a topic of groups a message without a key is one by itself."""
        types = route.types
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


def _properties(one: Delivery) -> dict[str, str] | Result:
    given = one.properties
    taken = next((name for name in given if name.startswith(OWN)), None)
    if taken is not None:
        return Result.rejected(f"property {taken}: names that begin with {OWN} are delayq's own")
    found = {name: value for name, value in given.items() if value}
    if len(found) < len(given):  # RocketMQ loses those without a value
        found[f"{OWN}empty"] = json.dumps([name for name, value in given.items() if not value])
    own = {"id": one.id, "topic": one.topic, "due": str(one.due), "attempt": str(one.attempt)}
    return found | {f"{OWN}{name}": value for name, value in own.items()}
