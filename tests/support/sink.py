"""A second Redis, to which workers deliver, and checks of the arrived messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain

import msgspec

from tests.support.servers import ServerUnderTest, real_server
from tests.support.waiting import eventually


class Arrival(msgspec.Struct, frozen=True):
    """An entry of a stream: when it was appended (Unix ms by the server's own clock), and for when it was asked."""

    id: str
    at: int
    due: int
    attempt: int


class Sink:
    """Topics 'sink.*' are delivered here by the general path; all others are streams in delayq's own Redis."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.server = server
        self._read: dict[tuple[str, str], tuple[list[Arrival], bytes]] = {}

    @property
    def routes(self) -> str:
        """For DELAYQ_ROUTES."""
        target = self.server.url.replace("redis", "redis+stream", 1)
        sink = {"name": "sink", "match": "sink.*", "target": target}
        return json.dumps([sink, {"name": "streams", "match": "*", "target": "redis+stream:"}])

    def arrivals(self, topic: str, at: ServerUnderTest | None = None) -> list[Arrival]:
        """All that arrived in a stream so far, in order; `at` is the server that has it, if not this one."""
        server = at if at is not None else self.server
        found, last = self._read.get((server.url, topic), ([], b"-"))
        for number, entry in server.admin.xrange(topic, last):
            found.append(
                Arrival(entry[b"id"].decode(), int(number.split(b"-")[0]), int(entry[b"due"]), int(entry[b"attempt"]))
            )
            last = b"(" + number
        self._read[server.url, topic] = (found, last)
        return found

    def expect(
        self,
        topic: str,
        accepted: Collection[str],
        *,
        cancelled: Collection[str] = (),
        maybe: Collection[str] = (),
        twice: int = 0,
        at: ServerUnderTest | None = None,
    ) -> list[Arrival]:
        """Wait until every accepted message has arrived, and see that no promise was broken.

        None is early, none of the `cancelled` came, none came that was not accepted, and there were at most `twice`
        second copies in all, and no third ones. Those that are `maybe` cancelled may come or not.
        """
        wanted = set(accepted) - set(cancelled) - set(maybe)

        def missing() -> set[str]:
            return wanted - {one.id for one in self.arrivals(topic, at)}

        eventually(lambda: not missing(), f"all of {len(wanted)} messages arrive in {topic}")
        arrived = self.arrivals(topic, at)
        assert [one for one in arrived if one.at < one.due] == [], "early"
        counts = Counter(one.id for one in arrived)
        assert counts.keys() & set(cancelled) == set(), "forwarded after it was cancelled"
        assert counts.keys() - set(accepted) == set(), "nobody asked for these"
        again = {id: count for id, count in counts.items() if count > 1}
        assert sum(counts.values()) - len(counts) <= twice, f"{len(again)} came again: {list(again.items())[:5]}"
        assert max(chain([1], again.values())) <= 2, again
        return arrived


@contextmanager
def real_sink() -> Iterator[Sink]:
    """A sink in an embedded Valkey of its own."""
    with real_server("valkey", appendonly=False) as server:
        yield Sink(server)
