"""Installations in namespaces of their own share a Redis, and neither sees nor changes anything of the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from delayq import Message
from delayq.store import rights
from delayq.store.keys import Keys
from tests.faults.test_h_rights import known_to
from tests.support.clusters import ClusterUnderTest
from tests.support.namespaces import TOPICS, Installation
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
PASSWORD = "only-for-one"
#: The streams of the default namespace have the names of topics.
STREAMS = {"shop": "shop:*", "delayq": "orders.*"}


@pytest.fixture(params=["valkey", "cluster"])
def shared(request: pytest.FixtureRequest) -> Iterator[tuple[ServerUnderTest, list[Any]]]:
    """A server or a cluster, and its primaries, with a user for each namespace, who may touch its keys only."""
    found: ServerUnderTest = request.getfixturevalue(request.param)
    primaries = [one.admin for one in found.primaries] if isinstance(found, ClusterUnderTest) else [found.admin]
    servers = [one.admin for one in found.members] if isinstance(found, ClusterUnderTest) else primaries
    for admin in servers:
        for name, streams in STREAMS.items():
            line = rights.acl_line(name, PASSWORD, streams, Keys(name)).split()
            admin.execute_command(*line[:3], "reset", *known_to(admin, line[3:]))
        for topic in ("full.*", "slow.*", "held.*"):
            admin.execute_command("ACL", "SETUSER", "delayq", f"~{topic}")
        admin.execute_command("ACL", "LOG", "RESET")
    yield found, primaries
    for admin in servers:
        admin.execute_command("ACL", "DELUSER", *STREAMS)


def installations(server: ServerUnderTest) -> list[Installation]:
    return [Installation(server.url.replace("://", f"://{name}:{PASSWORD}@", 1), name) for name in STREAMS]


def contents(primaries: list[Any], keys: Keys) -> dict[bytes, bytes]:
    """The value of each key of a namespace."""
    found = {key: admin.dump(key) for admin in primaries for key in admin.scan_iter(match=keys.pattern)}
    return {key: value for key, value in found.items() if value is not None}


def refused(primaries: list[Any]) -> list[Any]:
    """The keys and channels that a user was refused."""
    found = [one for admin in primaries for one in admin.execute_command("ACL", "LOG")]
    entries = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
    return [one for one in entries if one[b"reason"] in (b"key", b"channel")]


async def test_everything_stays_in_its_namespace(shared: tuple[ServerUnderTest, list[Any]]) -> None:
    server, primaries = shared
    first, second = installations(server)
    await first.do_everything()
    names = [key.decode().split(":") for admin in primaries for key in admin.scan_iter()]
    assert {name for name, *_ in names} == {"shop"}
    kinds = {kind for _, kind, *_ in names}
    assert kinds >= {"meta", "policies", "audit", "groups", "rate", "report", "trimmed", "consumers", "orders.a", "{0}"}
    before = contents(primaries, first.keys)
    await second.do_everything()
    after = contents(primaries, first.keys)
    assert [key for key in before if before[key] != after.get(key, before[key])] == []
    assert {key.split(b":")[1] for key in before.keys() - after.keys()} <= {b"rate", b"slots"}, "only these expire"
    assert refused(primaries) == []


def test_messages_of_the_same_ids_are_delivered_side_by_side(shared: tuple[ServerUnderTest, list[Any]]) -> None:
    server, primaries = shared
    both = installations(server)
    topics = [*TOPICS, "m.good"]
    with ExitStack() as stack:
        for one in both:
            stack.enter_context(RunningNode(one.settings))
        clients = [stack.enter_context(one.client()) for one in both]
        clients[0].pause("slow.*")
        for client, body in zip(clients, STREAMS, strict=True):
            client.schedule_many(
                Message(topic=topic, id=f"{topic}-{n}", delay_time=0, body=body) for topic in topics for n in range(9)
            )
        for one, client in zip(both, clients, strict=True):
            eventually(lambda one=one: len(one.target.ids) == 9, "the messages for the target have arrived")  # type: ignore[misc]
            assert {each.payload for each in one.target.deliveries} == {one.namespace.encode()}
            for topic in TOPICS if one is both[1] else ("orders.a", "own.a", "full.a"):
                bodies = list[bytes]()
                while len(bodies) < 9:
                    some = client.receive(topic, group="mail", wait="10s")
                    client.ack(*some)
                    bodies += [each.body for each in some]
                assert set(bodies) == {one.namespace.encode()}
        assert clients[0].count().messages == 9, "a pause of one namespace"
        assert clients[1].count().messages == 0
    assert refused(primaries) == []
