"""DELAYQ_MIN_REPLICAS and DELAYQ_FSYNC: a change is answered once it is where it was asked to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from delayq import AsyncClient, Client, ConfigError, Message, NotDurable, Settings, StoreError
from delayq.client.scheduling.schedule import Scheduled
from delayq.domain.routes import Route, Routes
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from delayq.store import checks, commands
from delayq.store.connect.durability import believable
from delayq.store.keys import KEYS, Layout
from testbed.process import standing_still
from tests.support.clusters import ClusterUnderTest, Member
from tests.support.policies import put_policy
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, taken
from tests.support.sentinels import SentinelsUnderTest
from tests.support.servers import KEPT
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually

HOUR = 3_600_000
LATER = 10_000_000_000_000  # Unix ms, a time to come
SOON = 500  # ms for a confirmation that does not come


def raised(outcome: Any) -> Any:
    """The outcome of one of several, raised if it is an error."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def ran(proxy: FaultProxy) -> list[str]:
    """What went through, without the question for the time: on a busy machine a second has passed, and it is asked again."""
    return [command for command in proxy.commands if command != "time"]


binaries = pytest.mark.parametrize(
    "binary", [None, pytest.param(Member.binary(), marks=pytest.mark.long)], ids=["valkey", "system"]
)

CHANGES: dict[str, Callable[[Client], Any]] = {
    "schedule": lambda client: client.schedule(Message(topic="t", delay_time=HOUR, id="new")),
    "cancel": lambda client: client.cancel("there"),
    "reschedule": lambda client: client.reschedule("there", delay_time=2 * HOUR),
    "redrive": lambda client: raised(client.redrive(["dead"])[0]),
    "discard": lambda client: client.discard("dead"),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """A primary, and a replica that follows it."""
    with EmbeddedServer(data_dir=tmp_path_factory.mktemp("primary"), extra=KEPT) as primary:
        member = Member(primary)
        member.admin.config_set("repl-diskless-sync-delay", 0)
        member.admin.config_set("repl-ping-replica-period", 1)
        with EmbeddedServer(extra=["--replicaof", LOCALHOST, str(primary.port)]) as replica:
            eventually(lambda: member.replicas == 1, "the replica follows")
            yield primary, replica
        member.admin.close()


@pytest.fixture
def followed(pair: tuple[EmbeddedServer, EmbeddedServer]) -> EmbeddedServer:
    """The primary, empty."""
    with closing(Member(pair[0]).admin) as admin:
        admin.flushall()
    return pair[0]


@pytest.fixture
def replica(pair: tuple[EmbeddedServer, EmbeddedServer], followed: EmbeddedServer) -> int:
    """The process of the replica."""
    assert pair[1].pid is not None
    return pair[1].pid


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """Makes clients of given settings, and closes them; a reply is waited for as long as it may take, if not said else."""
    with ExitStack() as stack:
        yield lambda url, **given: stack.enter_context(
            Client(url, settings=Settings(**({"redis_timeout": REDIS_TIMEOUT} | given)))
        )


def impatient(client: Client) -> Client:
    """The client, which waits but a little for confirmations from now on, as nobody confirms; for replies as before."""
    client.context()
    client.store.timeout = SOON / 1000  # for what a policy wants
    if client.store.durability is not None:
        client.store.durability.timeout = SOON
    return client


def bury(client: Client, id: str) -> None:
    """Schedule a message and make a dead letter of it, as a worker does."""
    client.schedule(Message(topic="t", delay_time=0, id=id))
    keys = KEYS.queue(Layout(16).queue_of(id))
    assert client.store.run(commands.claim(keys, EPOCH)) is not None
    (one,) = taken(client.store.run(commands.pull(keys, EPOCH, offset=0, room=500)))
    assert client.store.run(commands.bury(keys, EPOCH, [(one, 1, "nobody wants it")])) == ["ok"]


def test_a_change_waits_for_its_replicas_on_its_own_connection(
    followed: EmbeddedServer, client: Callable[..., Client]
) -> None:
    for id in ("dead", "gone"):
        bury(client(followed.url), id)
    with FaultProxy(followed.port) as proxy:
        made = client(proxy.url, min_replicas=1)
        made.context()
        proxy.commands.clear()
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="a")).created
        assert made.get("a") is not None
        assert made.cancel("a").result == "cancelled"
        assert made.redrive(["dead"]) == ["scheduled"]
        assert made.discard("gone")
        waited = [[name, "barrier", "wait"] for name in ("schedule", "cancel", "redrive", "discard")]
        assert ran(proxy) == [*waited[0], "get", *waited[1], *waited[2], *waited[3]]
        made = client(proxy.url)
        put_policy(made, minReplicas=1)  # has the messages of its topics wait, and no others
        proxy.commands.clear()
        given = [Message(topic=topic, delay_time=HOUR, id=topic) for topic in ("orders", "t")]
        assert [raised(one).created for one in made.schedule_many(given)] == [True, True]
        assert ran(proxy) == ["schedule", "schedule", "barrier", "wait"]


def test_a_consumer_waits_for_replicas_and_the_write_before_the_wait_changes_no_stream(
    followed: EmbeddedServer, replica: int
) -> None:
    routes = Routes((Route(name="streams", match="*", target="redis+stream:"),))
    settings = Settings(redis_timeout=REDIS_TIMEOUT, min_replicas=1)
    with closing(Member(followed).admin) as admin, Client(followed.url, settings=settings, routes=routes) as made:
        assert made.receive("t", group="mail") == []
        for id in ("a", "b", "c"):
            admin.xadd("t", {"id": id, "topic": "t", "body": id})
        one, two, three = made.receive("t", group="mail")
        assert made.ack(one)[0].result == "acknowledged"
        assert made.extend(two, "1m").result == "extended"
        assert made.hand_back(three, delay_time="1h").result == "handedBack"
        assert admin.xlen("t") == 3
        record = commands.GroupRecord(topic="t", group="mail", stream="t", since=1)
        assert made.store.run(commands.record_group(KEYS, record, now=LATER))
        (known,) = made.store.run(commands.consumer_groups(KEYS))
        assert 1 < known.since < LATER  # `receive` recorded the group first
        assert known == structs.replace(record, since=known.since)
        assert made.store.run(commands.destroy_group(KEYS.consumers("t", "mail"), "mail"))
        assert admin.type("t") == b"stream"
        with standing_still(replica), pytest.raises(NotDurable):
            impatient(made).receive("t", group="mail")


@pytest.mark.parametrize(("knobs", "lacks"), [({"minReplicas": 1}, "1 replicas"), ({"fsync": "always"}, "on the disk")])
def test_what_a_policy_wants_and_nobody_confirms_is_unknown_of_its_topics_alone(
    own_valkey: EmbeddedServer, client: Callable[..., Client], knobs: dict[str, Any], lacks: str
) -> None:
    made = impatient(client(own_valkey.url))
    put_policy(made, **knobs)
    orders, other = made.schedule_many([Message(topic=topic, delay_time=HOUR, id=topic) for topic in ("orders", "t")])
    assert isinstance(orders, NotDurable) and lacks in str(orders) and orders.id == "orders"
    assert raised(other).created
    assert made.get("orders") is not None


def test_a_change_that_no_replica_confirms_is_unknown(
    own_valkey: EmbeddedServer, client: Callable[..., Client]
) -> None:
    client(own_valkey.url).schedule(Message(topic="t", delay_time=HOUR, id="there"))
    bury(client(own_valkey.url), "dead")
    made = impatient(client(own_valkey.url, min_replicas=1))
    for change in CHANGES.values():
        with pytest.raises(NotDurable, match="1 replicas have it"):
            change(made)
    assert made.get("new") is not None  # reading waits for nobody


def test_the_same_call_once_more_is_confirmed_when_the_replica_is_back_or_after_a_break(
    followed: EmbeddedServer, replica: int, client: Callable[..., Client]
) -> None:
    def schedule(made: Client, id: str) -> bool:
        return made.schedule(Message(topic="t", delay_time=HOUR, id=id)).created

    made = impatient(client(followed.url, min_replicas=1))
    with standing_still(replica):
        for _ in range(2):  # a repeated call writes nothing by itself, and is no more certain for that
            with pytest.raises(NotDurable) as caught:
                schedule(made, "a")
            assert caught.value.id == "a"
    with FaultProxy(followed.port) as proxy:
        made = client(proxy.url, min_replicas=1)
        assert not schedule(made, "a")
        proxy.drop_reply("wait")
        with pytest.raises(NotDurable):
            schedule(made, "b")
        assert not schedule(made, "b")
        with closing(Member(followed).admin) as admin:
            admin.script_flush()
        proxy.commands.clear()
        assert schedule(made, "c")
    assert list(proxy.commands)[-2:] == ["barrier", "wait"]
    assert list(proxy.commands).index("wait") < len(proxy.commands) - 1


async def test_asyncio_waits_as_well(followed: EmbeddedServer, replica: int) -> None:
    settings = Settings(redis_url=followed.url, min_replicas=1, redis_timeout=REDIS_TIMEOUT)
    async with AsyncClient(settings=settings) as client:
        messages = [Message(topic="t", delay_time=HOUR, id=f"m{number}") for number in range(1_200)]
        assert not [one for one in await client.schedule_many(messages) if isinstance(one, Exception)]
        assert client.store.durability is not None
        client.store.durability.timeout = SOON
        with standing_still(replica):
            outcomes = await client.schedule_many(messages)
        assert {type(one) for one in outcomes} == {NotDurable}


# -- DELAYQ_FSYNC --------------------------------------------------------------------------------------------------------


def believe(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every server answers WAITAOF when the sync is over."""
    monkeypatch.setattr("delayq.store.checks.believable", lambda *_: True)
    monkeypatch.setattr("delayq.store.connect.durability.believable", lambda *_: True)


def test_what_is_asked_follows_the_server_that_answers(
    client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedServer(extra=["--appendfsync", "always"]) as server, FaultProxy(server.port) as proxy:
        made = client(proxy.url, fsync="always")
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="a")).created
        believe(monkeypatch)  # as when a newer one has taken over
        proxy.commands.clear()
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="b")).created
        assert ran(proxy) == ["schedule", "barrier", "config", "barrier", "waitaof"]
        proxy.commands.clear()
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="c")).created
        assert ran(proxy) == ["schedule", "barrier", "waitaof"]
        monkeypatch.undo()
        proxy.commands.clear()
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="d")).created
        assert ran(proxy) == ["schedule", "barrier", "waitaof", "barrier", "config"]


@binaries
def test_a_server_whose_word_cannot_be_taken_must_write_always_by_itself(
    binary: Path | None, client: Callable[..., Client]
) -> None:
    with EmbeddedServer(binary=binary) as server:
        made = client(server.url, fsync="always")
        known = made.store.run(checks.server())
        if believable(known.name, known.version):
            pytest.skip("the word of the redis-server on PATH can be taken; that of 7.0 to 7.4 cannot")
        with pytest.raises(ConfigError, match=r"needs appendfsync always.* with appendfsync everysec"):
            made.schedule(Message(topic="t", delay_time=HOUR, id="a"))
        admin = Member(server).admin
        admin.config_set("appendfsync", "always")
        admin.close()
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="a")).created


@binaries
def test_a_server_that_is_changed_or_comes_back_without_always_confirms_no_change(
    binary: Path | None, tmp_path: Path, client: Callable[..., Client]
) -> None:
    first = EmbeddedServer(data_dir=tmp_path, binary=binary, extra=["--appendfsync", "always"])
    first.start()
    made = client(first.url, fsync="always")
    made.schedule(Message(topic="t", delay_time=HOUR, id="there"))
    bury(made, "dead")
    member = Member(first)
    with closing(member.admin) as admin:
        for setting, value, good in (("appendfsync", "everysec", "always"), ("appendonly", "no", "yes")):
            admin.config_set(setting, value)
            with pytest.raises(NotDurable, match=f"{setting} {value}"):
                made.reschedule("there", delay_time=HOUR)
            admin.config_set(setting, good)
        assert made.reschedule("there", delay_time=HOUR).result == "scheduled"
        member.wait_for_its_file()
    first.stop()
    with EmbeddedServer(data_dir=tmp_path, port=first.port, binary=binary) as second:
        for change in CHANGES.values():
            for _ in range(2):  # nor does the same call once more, which finds it done
                with pytest.raises(NotDurable, match="it has appendonly yes, appendfsync everysec"):
                    change(made)
        assert made.get("new") is not None  # reading waits for nobody
        with closing(Member(second).admin) as admin:
            admin.config_set("appendfsync", "always")
        CHANGES["schedule"](made)


def test_one_primary_of_a_cluster_without_always_confirms_none_of_its_changes(
    cluster: ClusterUnderTest, client: Callable[..., Client]
) -> None:
    primaries = cluster.primaries
    for one in primaries:
        one.admin.config_set("appendfsync", "always")
    try:
        made = client(cluster.url, fsync="always")
        messages = [Message(topic="t", delay_time=HOUR, id=f"m{number}.{number:04x}") for number in range(200)]
        assert not [one for one in made.schedule_many(messages) if isinstance(one, Exception)]
        primaries[0].admin.config_set("appendfsync", "everysec")
        outcomes = made.schedule_many(messages)
        assert {type(one) for one in outcomes} == {NotDurable, Scheduled}
    finally:
        for one in primaries:
            one.admin.config_set("appendfsync", "everysec")


@pytest.mark.long
def test_a_replica_without_always_that_takes_over_confirms_no_change(
    sentinels: SentinelsUnderTest, client: Callable[..., Client]
) -> None:
    old = sentinels.primary
    old.admin.config_set("appendfsync", "always")
    try:
        made = client(sentinels.url, fsync="always")
        assert made.schedule(Message(topic="t", delay_time=HOUR, id="a")).created
        sentinels.fail_over()
        eventually(lambda: refused(made) is NotDurable, "the new primary confirms nothing")
        sentinels.primary.admin.config_set("appendfsync", "always")
        assert made.cancel("a").result in ("cancelled", "notFound")  # asynchronous replication may have lost it
    finally:
        for one in sentinels.members:
            one.admin.config_set("appendfsync", "everysec")


def refused(client: Client) -> type[Exception] | None:
    """How a change fails."""
    try:
        client.schedule(Message(topic="t", delay_time=HOUR, id="b"))
    except StoreError as error:
        return type(error)
    return None


def test_a_user_who_may_not_ask_is_told_which_right_is_missing(client: Callable[..., Client]) -> None:
    with EmbeddedServer(extra=["--appendfsync", "always"]) as server:
        admin = Member(server).admin
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all", "-config")
        url = server.url.replace("redis://", "redis://poor:secret@")
        with pytest.raises(
            ConfigError, match=r"appendfsync unknown, because its user may not read it \(\+config\|get\)"
        ):
            client(url, fsync="always").schedule(Message(topic="t", delay_time=HOUR))
        admin.close()
