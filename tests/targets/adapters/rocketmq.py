"""RocketMQ: each topic of a test is one of its broker's, of groups, and read by a consumer group of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from delayq.domain.routes import Route
from delayq.received import read_rocketmq
from delayq.targets.rocketmq.rules import RESERVED
from testbed.rocketmq import RocketMQ
from tests.support.timeouts import SEND_TIMEOUT
from tests.support.waiting import eventually
from tests.targets.adapters import Seen

#: In front of each stored message.
_MAGIC: Final = b"\xda\xa3\x20\xa7"


class RocketMQAdapter:
    """The topics of a broker."""

    def __init__(self, server: RocketMQ) -> None:
        self.server = server

    def route(self, topic: str) -> Route:
        self.server.create_topic(topic, fifo=True)
        return Route(name=topic, match=f"{topic}*", target=self.server.url, options={"topic": topic})

    @property
    def port(self) -> int:
        """Where it listens, and says first what it is before it takes messages."""
        return int(self.server.endpoints.rpartition(":")[2])

    def read(self, topic: str, count: int) -> list[Seen]:
        with Consumer(self.server, topic) as consumer:
            return [seen(one, self.server) for one in consumer.read(count)]

    def read_on(self, topic: str) -> list[Seen]:
        """All that is there, of which one call of the consumer gives only a part."""
        with Consumer(self.server, topic) as consumer:
            return [seen(one, self.server) for one in consumer.read(1, whole=True)]

    def refuse(self, topic: str) -> Mapping[str, Any]:
        """A message with a tag that means two."""
        return {"tags": "a||b"}

    def never(self, topic: str) -> list[dict[str, Any]]:
        """What no RocketMQ takes, in its own words."""
        return [
            {"body": ""},
            {"body": b""},
            {"tags": "a||b"},
            {"tags": "a|b"},
            {"tags": " "},
            {"properties": {"delayq_id": "x"}},
            *({"properties": {name: "x"}} for name in sorted(RESERVED)),
        ]


class Consumer:
    """The client's own consumer, of a group of its own, from the beginning of the topic."""

    def __init__(self, server: RocketMQ, topic: str, tag: str = "*") -> None:
        # Before anything else of the client, which would write its log elsewhere.
        from delayq.targets.rocketmq.client import ClientConfiguration, Credentials

        group = f"group-{uuid.uuid4().hex}"
        server.create_group(group, fifo=True)
        from rocketmq import FilterExpression, SimpleConsumer

        self._consumer = SimpleConsumer(
            ClientConfiguration(server.endpoints, Credentials(), request_timeout=SEND_TIMEOUT // 1_000),
            group,
            {topic: FilterExpression(tag)},
            await_duration=1,
        )

    def read(self, count: int, *, whole: bool = False) -> list[Any]:
        """So many messages, or more, or all that there are."""
        from rocketmq.v5.exception import ClientException

        found: list[Any] = []

        def enough() -> bool:
            try:
                got = self._consumer.receive(32, 60) or []
            except ClientException:  # it has not told the proxy of itself yet
                got = []
            for one in got:
                self._consumer.ack(one)
            found.extend(got)
            return len(found) >= count and not (whole and got)

        eventually(enough, f"{count} messages")
        return found

    def __enter__(self) -> Self:
        self._consumer.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.shutdown()


def seen(one: Any, server: RocketMQ) -> Seen:
    """A message as its consumer has it."""
    properties = dict(one.properties)
    properties.pop("__SHARDINGKEY", None)  # where RocketMQ keeps the group
    own = {name: properties.pop(f"delayq_{name}", "") for name in ("id", "topic", "due", "attempt", "empty")}
    properties.update(dict.fromkeys(json.loads(own["empty"] or "[]"), ""))
    group = one.message_group or ""
    return Seen(
        id=own["id"],
        topic=own["topic"],
        tags=one.tag or "",
        keys=_keys(one, server),
        properties=properties,
        ordering_key="" if group == one.message_id else group,
        payload=one.body,
        due=int(own["due"]),
        attempt=int(own["attempt"]),
        received=read_rocketmq(one),
    )


def _keys(one: Any, server: RocketMQ) -> tuple[str, ...]:
    """The keys in their order, which this client's messages do not keep, as a search for one of them finds it."""
    if not one.keys:
        return ()

    def stored() -> list[str]:
        for record in server.find_by_key(one.topic, next(iter(one.keys))).split(_MAGIC):
            if b"UNIQ_KEY\1" + one.message_id.encode() in record:
                return record.partition(b"KEYS\1")[2].partition(b"\2")[0].decode().split()
        return []

    keys = tuple(eventually(stored, f"{one.message_id} is found by its key"))
    assert set(keys) == one.keys
    return keys
