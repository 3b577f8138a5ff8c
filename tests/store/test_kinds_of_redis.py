"""The URL of one kind of Redis at a server of another kind, and sentinels of which the first ones are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from delayq import Client, ConfigError, Message, StoreError, StoreUnavailable
from delayq.base.errors import WrongRedis
from delayq.config import load_settings
from delayq.domain.routes import Route
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import commands
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import KEYS
from delayq.targets import open_target
from tests.support.clusters import SLOTS, Member
from tests.support.deliveries import delivery
from tests.support.old_redis import answering
from tests.support.queues import AsyncRunner
from tests.support.sentinels import Sentinel
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE, SEND_SECONDS
from tests.support.waiting import eventually
from workers.node.duties.follow_time import clock_for

pytestmark = pytest.mark.processes
MAKERS: dict[str, Any] = {"sync": Store, "async": AsyncRunner}


def write(key: str) -> Command[bytes]:
    return plain("SET", key, "x", read=bytes)


KINDS = {
    "cluster": "the server is a node of a Redis Cluster; use redis+cluster://",
    "sentinel": "the server is a Sentinel; use redis+sentinel://",
    "standalone": "the server is a single Redis server; use redis://",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Member]:
    """A cluster of one server, which refuses no key."""
    with ExitStack() as stack:
        member = Member.started("--cluster-enabled", "yes")
        stack.callback(member.close)
        member.cluster("ADDSLOTSRANGE", "0", str(SLOTS - 1))
        eventually(lambda: "cluster_state:ok" in member.cluster("INFO"), "the cluster is up")
        yield member


@pytest.fixture(scope="module")
def sentinel(cluster: Member) -> Iterator[Sentinel]:
    with closing(Sentinel(cluster.port)) as made:
        yield made


@pytest.fixture
def ports(cluster: Member, sentinel: Sentinel, valkey: ServerUnderTest) -> dict[str, int]:
    return {"cluster": cluster.port, "sentinel": sentinel.port, "standalone": valkey.port}


WRONG = [
    ("redis", "", "cluster"), ("redis", "", "sentinel"), ("redis+cluster", "", "standalone"),
    ("redis+cluster", "", "sentinel"), ("redis+sentinel", "/main", "standalone"), ("redis+sentinel", "/main", "cluster"),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("scheme", "path", "kind"), WRONG)
def test_the_url_of_another_kind_is_refused_with_the_right_one_and_nothing_is_changed(
    ports: dict[str, int], cluster: Member, make: Any, scheme: str, path: str, kind: str
) -> None:
    with closing(make(f"{scheme}://{LOCALHOST}:{ports[kind]}{path}", timeout=PATIENCE)) as store:
        for _ in range(2):
            with pytest.raises(WrongRedis) as caught:
                store.run(commands.layout(KEYS, 16))
            told = str(caught.value)
            assert told.startswith(f"the Redis URL is wrong: it begins with {scheme}://, but {KINDS[kind]}")
        assert [type(one) for one in store.run_many([write("a"), write("b")])] == [WrongRedis] * 2
    assert cluster.admin.dbsize() == 0


def test_every_program_that_takes_the_url_says_so(ports: dict[str, int], cluster: Member) -> None:
    url = f"redis://{LOCALHOST}:{ports['cluster']}/0"
    with Client(url) as client, pytest.raises(ConfigError, match="use redis\\+cluster://"):
        client.schedule(Message(topic="t", delay_time="1h"))
    with pytest.raises(WrongRedis, match="use redis\\+cluster://"):  # before a worker makes its node
        clock_for(load_settings(redis_url=url))
    with closing(open_target(Route(name="r", target=f"redis+stream:{url}"), "redis://127.0.0.1:1/0")) as target:
        (result,) = target.send([delivery("m")], SEND_SECONDS)
    assert (result.outcome, "use redis+cluster://" in result.reason) == ("unavailable", True)
    with Client(url) as client, pytest.raises(StoreError, match="node of a Redis Cluster"):
        Wakes(client.store.connect).connect(["c"])
    assert cluster.admin.dbsize() == 0


def test_a_node_of_a_cluster_that_does_not_tell_its_kind_is_known_by_its_first_refusal() -> None:
    for text in (b"-MOVED 42 127.0.0.1:7000\r\n", b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"):
        refusing = {b"HELLO": b"-NOPERM this user may not run the 'hello' command\r\n", b"SET": text}
        told = pytest.raises(WrongRedis, match="use redis\\+cluster://")
        with answering(refusing) as url, closing(Store(url, timeout=PATIENCE)) as store, told:
            store.run(write("a"))


@pytest.mark.parametrize("hello", [b"-ERR unknown command\r\n", b"-NOPERM no\r\n", b"*0\r\n", b"+OK\r\n"])
def test_a_server_that_does_not_tell_its_kind_is_used(hello: bytes) -> None:
    with answering({b"HELLO": hello}) as url, closing(Store(url, timeout=PATIENCE)) as store:
        assert store.run(write("a")) == b"OK"


# -- sentinels -----------------------------------------------------------------------------------------------------------


@contextmanager
def naming(stack: ExitStack, *servers: tuple[str, int] | bytes) -> Iterator[str]:
    """The URL of sentinels that name these servers, or reply so."""
    hosts = []
    for one in servers:
        if isinstance(one, bytes):
            reply = one
        else:
            host, port = (str(word).encode() for word in one)
            reply = b"*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(host), host, len(port), port)
        url = stack.enter_context(answering({b"SENTINEL": reply}))
        hosts.append(url.removeprefix("redis://").removesuffix("/0"))
    yield f"redis+sentinel://{','.join(hosts)}/main"


def stale(stack: ExitStack) -> dict[str, tuple[str, int] | bytes]:
    replica = stack.enter_context(
        answering({b"ROLE": b"*5\r\n$5\r\nslave\r\n$1\r\nh\r\n:1\r\n$9\r\nconnected\r\n:0\r\n"})
    )
    return {
        "a replica": (LOCALHOST, int(replica.split(":")[2].partition("/")[0])),
        "a dead server": (LOCALHOST, free_port()),
        "a name that is gone": ("gone.invalid", 6379),
        "nothing": b"*-1\r\n",
        "an error": b"-ERR something\r\n",
    }


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_next_sentinel_is_asked_within_the_call(valkey: ServerUnderTest, make: Any) -> None:
    right = (LOCALHOST, valkey.port)
    with ExitStack() as stack:
        named = stale(stack)
        for wrong in ([one] for one in named):
            with (
                naming(stack, *(named[one] for one in wrong), right) as url,
                closing(make(url, timeout=PATIENCE)) as store,
            ):
                assert store.run(commands.layout(KEYS, 16)).queues == 16, wrong
        with naming(stack, *named.values(), right) as url, closing(make(url, timeout=PATIENCE)) as store:
            assert store.run(commands.layout(KEYS, 16)).queues == 16
            with closing(make(url, timeout=PATIENCE)) as other:  # one process of a command, as of cron
                assert other.run(commands.layout(KEYS, 16)).queues == 16


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_if_all_sentinels_are_wrong_the_reason_is_told_and_each_server_is_tried_once(make: Any) -> None:
    with ExitStack() as stack:
        named = stale(stack)
        for wrong, reason in (
            (["a replica"] * 3, "the sentinels name a server that is not a primary"),
            (["a dead server", "a dead server"], "connecting to"),
            (["nothing", "nothing"], "the primary of main, they do not know it"),
        ):
            with naming(stack, *(named[one] for one in wrong)) as url, closing(make(url, timeout=PATIENCE)) as store:
                for _ in range(2):
                    with pytest.raises(StoreUnavailable, match=reason):
                        store.run(commands.layout(KEYS, 16))
