"""Redis Streams elsewhere: another server, or a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.domain.routes import Route
from delayq.embedded.processes import LOCALHOST
from delayq.received import read_stream
from tests.support.clusters import ClusterUnderTest, Member
from tests.support.proxy import FaultProxy
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually
from tests.targets.adapters import Seen


class RedisStreamAdapter:
    """The streams of a server; a proxy before a single one can swallow everything."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._server = server
        self._proxy: FaultProxy | None = None
        self._first: Member | None = None  # the member of a cluster that is asked first
        if isinstance(server, ClusterUnderTest):
            self._first = server.primaries[0]
            self.url = f"redis+stream:redis+cluster://{LOCALHOST}:{self._first.port}"
        else:
            self._proxy = FaultProxy(server.port)
            self._proxy.__enter__()
            self.url = "redis+stream:" + self._proxy.url

    def route(self, topic: str) -> Route:
        return Route(name=topic, match=f"{topic}*", target=self.url, path="general")

    @property
    def port(self) -> int:
        """Where it listens, and is spoken with before it takes messages."""
        return self._first.port if self._first is not None else self._server.port

    def suits(self, topic: str) -> bool:
        """Whether the member that is asked first has the topic's stream, in a cluster."""
        return not isinstance(self._server, ClusterUnderTest) or self._server.primary_of(topic) is self._first

    def read(self, topic: str, count: int) -> list[Seen]:
        eventually(lambda: self._server.admin.xlen(topic) >= count, f"{count} entries in {topic}")
        return [_seen(entry) for _, entry in self._server.admin.xrange(topic)]

    def refuse(self, topic: str) -> Mapping[str, Any]:
        """A message of a topic whose key is no stream."""
        self._server.admin.set(f"{topic}-wrong", "a string")
        return {"topic": f"{topic}-wrong"}

    @property
    def can_hang(self) -> bool:
        """Whether `hang` works."""
        return self._proxy is not None

    def hang(self) -> None:
        """From now on take what comes and answer nothing."""
        assert self._proxy is not None
        self._proxy.black_hole()

    def heal(self) -> None:
        """Be well again."""
        assert self._proxy is not None
        self._proxy.heal()

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.__exit__(None, None, None)


def _seen(entry: Mapping[bytes, bytes]) -> Seen:
    fields = {name.decode(): value for name, value in entry.items()}
    text = {name: value.decode() for name, value in fields.items() if name != "body"}
    return Seen(
        id=text["id"],
        topic=text["topic"],
        tags=text["tags"],
        keys=tuple(text["keys"].split()),
        properties={name[2:]: value for name, value in text.items() if name.startswith("p:")},
        ordering_key=text.get("orderingKey", ""),
        payload=fields["body"],
        due=int(text["due"]),
        attempt=int(text["attempt"]),
        received=read_stream(entry),
    )
