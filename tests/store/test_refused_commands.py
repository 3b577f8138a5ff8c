"""A user of Redis who may not run one command, or may not touch one key: each script does everything or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from api.wire.problems import problem_of
from delayq.base.errors import NotDone, StoreFull, StoreRefused, StoreUnavailable
from delayq.domain.codec import DUE_HEAD_LENGTH, due_head, encode
from delayq.domain.message import Limits, Message
from delayq.embedded.processes import LOCALHOST
from delayq.store import commands, scripts
from delayq.store.commands import BucketHere, Census, Change, Command, GroupRecord, Known, Lease, Listed, Retention
from delayq.store.connect.exchange import SingleExchange
from delayq.store.connect.link import Link
from delayq.store.connect.server_state import ServerState
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from tests.store.test_repeats import CASES as REPEATED
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, NEW_EPOCH, AsyncRunner, Queue, row, schedule_command, taken
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import PATIENCE

ENTRY = '100 100000 {"actor":"admin","action":"test"}'
SHORT = Retention(window=1_000, most=2)
PLENTY = 7
Case = Callable[[Queue], Command[Any]]
#: In the first outcome of `test_repeats` these scripts run as much as possible.
ALIKE = (
    "advance", "barrier", "bump_era", "claim", "close", "destroy_group", "forget_group", "forget_silent", "layout",
    "publish_node", "record_group", "repair", "set_layouts", "spend", "takes", "write_off",
)  # fmt: skip
CASES: dict[str, Case] = {script: next(iter(REPEATED[script].values())).call for script in ALIKE}


def script_of(name: str) -> str:
    """The script of a case."""
    return name.partition("__")[0]


def case(make: Case) -> Case:
    """A state of a queue, and a command that runs as much as possible of its script then. Its name begins with the script's."""
    CASES[make.__name__] = make
    return make


def ended(q: Queue) -> None:
    """The queue remembers more ids than it is to remember from now on."""
    q.given(*(row(f"end{n}", at=20_000, given=True, ordering_key="lane") for n in range(PLENTY)))
    q.cancel(*(f"end{n}" for n in range(PLENTY)))
    q.retention = SHORT


def in_flight(q: Queue, count: int = 3, **more: Any) -> list[Any]:
    q.given(*(row(f"m{n}", at=10_000, given=True, keys=("k1", "k2"), **more) for n in range(count)))
    return taken(q.pull(now=10_000))


@case
def schedule(q: Queue) -> Command[Any]:
    q.given(row("gone", at=10_000, given=True, ordering_key="lane"), row("there", at=60_000), row("same", at=60_000))
    q.cancel("gone", now=10_001)
    q.retention = SHORT
    rows = [row(id, at=50_000, given=True, keys=("k1", "k2"), ordering_key="lane") for id in ("there", "new", "gone")]
    return schedule_command(q.keys, *rows, row("same", at=60_000), row("past", at=1_000), now=40_000, retention=SHORT)


@case
def cancel(q: Queue) -> Command[Any]:
    ended(q)
    q.given(row("a", at=60_000, keys=("k1", "k2")), row("b", at=60_000, given=True, ordering_key="lane"))
    return commands.cancel(q.keys, ("a", "end0", "b", "none"), entry=ENTRY, now=10_001, retention=SHORT)


@case
def reschedule(q: Queue) -> Command[Any]:
    q.given(row("a", at=60_000, keys=("k1",)))
    return commands.reschedule(q.keys, "a", "a20000", entry=ENTRY, now=10_001)


@case
def deliver_now(q: Queue) -> Command[Any]:
    q.given(row("far", at=60_000, topic="t"))
    one = in_flight(q, topic="t")
    q.park("h:t", one[0])
    q.park("t:r", one[1])
    ids = ("far", "m0", "m1", "m2", "none")
    return commands.deliver_now(q.keys, ids, force=True, held=("t",), entry=ENTRY, now=10_002)


@case
def redrive(q: Queue) -> Command[Any]:
    q.bury(*in_flight(q))
    return commands.redrive(q.keys, ("m0", "none", "m1"), entry=ENTRY, now=10_002)


@case
def discard(q: Queue) -> Command[Any]:
    ended(q)
    q.bury(*in_flight(q))
    return commands.discard(q.keys, ("m0", "end0", "m1"), entry=ENTRY, now=10_002, retention=SHORT)


@case
def pull(q: Queue) -> Command[Any]:
    ended(q)
    rows = [row(f"s{n:03}", at=90_000 + n, given=True, topic="stream", keys=("k1",)) for n in range(120)]
    q.given(*rows, row("old", at=90_000, topic="stream", expire_after=1), row("general", at=90_500))
    q.given(row("far", at=900_000_000))
    q.admin.hset(q.keys.attempts, "s001", "2")
    q.admin.zadd(q.keys.queue, {"orphan\0aaaaaaa": 90_001})
    return commands.pull(
        q.keys, EPOCH, offset=0, room=500, now=100_000, retention=SHORT,
        known=commands.KnownTopics.of(
            q.keys, [Known("stream", "stream", bucket=BucketHere(KEYS.rate("stream"), 100, 60)), Known("orders")]
        ),
    )  # fmt: skip


@case
def pull__when_the_clocks_were_far_ahead(q: Queue) -> Command[Any]:
    q.given(row("a", at=10_000, topic="stream"), *(row(f"far{n}", at=900_000_000 + n) for n in range(3)))
    q.admin.hset(q.keys.state, mapping={"watermark": "900000001", "lowered_to": q.admin.zrange(q.keys.queue, 2, 2)[0]})
    q.admin.hset(q.keys.state, "parked:t:r", "1")
    known = commands.KnownTopics.of(q.keys, [Known("stream", "stream")])
    return commands.pull(q.keys, EPOCH, offset=0, room=500, now=10_001, known=known, listed=Listed.ALL)


@case
def pull__into_the_sets_of_topics(q: Queue) -> Command[Any]:
    q.given(*(row(f"p{n}", at=90_000 + n) for n in range(7)), row("s", at=90_003, topic="stream", given=True))
    q.pause("ord*")
    known = commands.KnownTopics.of(q.keys, [Known("stream", "stream")])
    return commands.pull(q.keys, EPOCH, offset=0, room=500, now=100_000, known=known, version="1")


@case
def release(q: Queue) -> Command[Any]:
    held(q)
    known = commands.KnownTopics.of(q.keys, [Known("orders")])
    return commands.release(q.keys, EPOCH, {"orders": 5}, known=known, upto=None, now=100_000, version="2")


@case
def release__into_a_stream(q: Queue) -> Command[Any]:
    held(q)
    known = commands.KnownTopics.of(q.keys, [Known("orders", "orders")])
    return commands.release(
        q.keys, EPOCH, {"orders": 5}, known=known, upto=None, now=200_000, retention=SHORT, version="2"
    )


def held(q: Queue) -> None:
    ended(q)
    q.given(
        *(row(f"p{n}", at=90_000 + n, given=True, keys=("k1",)) for n in range(4)),
        row("old", at=90_004, expire_after=20_000),
    )
    q.pause("orders")
    q.pull(now=100_000, version="1")
    q.admin.hset(q.keys.state, "watermark", "1")
    q.pause(version="2")


@case
def ack(q: Queue) -> Command[Any]:
    ended(q)
    return commands.ack(q.keys, NEW_EPOCH, in_flight(q), now=10_003, retention=SHORT)


@case
def retry(q: Queue) -> Command[Any]:
    return commands.retry(q.keys, NEW_EPOCH, [(one, 20_000) for one in in_flight(q)])


@case
def bury(q: Queue) -> Command[Any]:
    q.given(row("x", at=10_000))
    (one,) = q.take(10_000)
    q.bury(one)
    rest = in_flight(q)
    return commands.bury(q.keys, NEW_EPOCH, [(one, 1, "broken"), *((two, 1, "broken") for two in rest)], now=10_003)


@case
def park(q: Queue) -> Command[Any]:
    return commands.park(q.keys, NEW_EPOCH, "t:r", in_flight(q))


@case
def release__set(q: Queue) -> Command[Any]:
    messages = in_flight(q, 4)
    q.park("t:r", *messages)
    q.cancel("m0")
    q.admin.hset(q.keys.state, "watermark", "1")
    return commands.release_set(q.keys, NEW_EPOCH, "t:r", 2, now=10_002)


@case
def keep_census(q: Queue) -> Command[Any]:
    q.run(commands.keep_census(q.keys, EPOCH, Census(began=1, version="", topics={})))
    return commands.keep_census(q.keys, NEW_EPOCH, Census(began=2, version="", topics={}))


@case
def is_drained(q: Queue) -> Command[Any]:
    ended(q)
    q.run(commands.close(q.keys))
    return commands.is_drained(q.keys, now=900_000, retention=SHORT)


@case
def set_policies(q: Queue) -> Command[Any]:
    q.run(commands.set_policies(KEYS, [Change("pause:a", "", "{}")], maker="0000000001", now=10_000))
    changes = [Change("pause:a", "*", ""), Change("pause:b", "", "{}")]
    return commands.set_policies(KEYS, changes, maker="0000000002", entry=ENTRY, now=10_001)


@case
def apply_policies(q: Queue) -> Command[Any]:
    q.run(commands.apply_policies(q.keys, "0000000001.0000000001", ["a"], now=10_000))
    return commands.apply_policies(q.keys, "0000000002.0000000001", [], now=10_001)


@case
def take_slots(q: Queue) -> Command[Any]:
    q.run(commands.take_slots(KEYS, [commands.SlotRequest("t", 5, 1_000, 2, "first")], now=10_000))
    q.run(commands.take_slots(KEYS, [commands.SlotRequest("t", 5, 900_000, 1, "second")], now=10_000))
    given = commands.taken_slots(900_000, "second", 1)
    return commands.take_slots(KEYS, [commands.SlotRequest("t", 5, 60_000, 3, "third", given)], now=12_000)


GROUP = KEYS.consumers("stream", "mail")
RECORD = GroupRecord(topic="orders", group="mail", stream="stream", queues=(0, 15))


def leased(q: Queue) -> Lease:
    """The lease of the first of three entries of a stream; that of the second has ended."""
    for n in range(3):
        q.admin.xadd("stream", {"id": f"m{n}", "tags": "new"}, id=f"1-{n + 1}")
    q.run(commands.receive(GROUP, "mail", "first", 1, 60_000, now=10_000))
    q.run(commands.receive(GROUP, "mail", "second", 1, 1_000, now=10_000))
    (id, _), *_ = q.admin.xrange("stream")
    return Lease(id.decode(), "first")


@case
def receive(q: Queue) -> Command[Any]:
    leased(q)
    gone = q.admin.xadd("stream", {"id": "gone", "tags": "new"}, id="2-1")
    q.run(commands.receive(GROUP, "mail", "third", 2, 1_000, now=10_000))
    q.admin.xdel("stream", gone)
    q.admin.xadd("stream", {"id": "foreign", "tags": "new", "p:delayq-group": "audit"}, id="3-1")
    q.admin.xadd("stream", {"id": "new", "tags": "new"}, id="3-2")
    return commands.receive(GROUP, "mail", "fourth", 10, 60_000, now=20_000)


@case
def receive__of_a_new_group(q: Queue) -> Command[Any]:
    q.admin.xadd("stream", {"id": "m", "tags": "new"}, id="1-1")
    return commands.receive(GROUP, "mail", "first", 10, 60_000, now=20_000)


@case
def receive__of_a_destroyed_group(q: Queue) -> Command[Any]:
    leased(q)
    q.admin.xgroup_destroy("stream", "mail")
    return commands.receive(GROUP, "mail", "third", 10, 60_000, now=20_000)


@case
def settle_received(q: Queue) -> Command[Any]:
    lease = leased(q)
    acts = [commands.Act("extend", lease, 5_000), commands.Act("ack", lease), commands.Act("ack", lease)]
    return commands.settle_received(GROUP, "mail", acts, now=10_001)


@case
def settle_received__back(q: Queue) -> Command[Any]:
    back = commands.Act("back", leased(q), 5_000, "no stock")
    return commands.settle_received(GROUP, "mail", [back, back], now=10_001)


@case
def give_up(q: Queue) -> Command[Any]:
    q.given(row("there", at=60_000))
    content = encode(Message(topic="t", keys=("k1",), expect_date=1), Limits(), due_head(1))[DUE_HEAD_LENGTH:]
    return commands.give_up(q.keys, [(id, content, 17, "no stock", b"") for id in ("a", "there")], now=10_001)


@case
def trim(q: Queue) -> Command[Any]:
    leased(q)
    q.admin.xack("stream", "mail", "1-1")
    return commands.trim("stream", 10_000, 1, 100, now=10_002)


class Refusing:
    """A queue, and a user of its Redis whose rights change."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.server, self.admin = server, server.admin
        self.owner = Store(server.url, timeout=PATIENCE)
        self.allow()
        self.user = Store(server.url.replace("redis://", "redis://user:user@"), timeout=PATIENCE)

    def allow(self, *without: str) -> None:
        """Everything but that."""
        rights = ("reset", "on", ">user", "+@all", "allkeys", "allchannels", *without)
        self.admin.execute_command("ACL", "SETUSER", "user", *rights)

    def prepared(self, name: str) -> Command[Any]:
        """The command of a case, in its state."""
        self.server.flush()
        return CASES[name](Queue(self.owner, self.server))

    def data(self) -> dict[str, Any]:
        """Everything in Redis, but for what a claim leaves, and for times that the server's clock gives."""
        found: dict[str, Any] = {}
        for key in sorted(self.admin.keys()):
            kind = self.admin.type(key)
            if kind == b"hash":
                found[key] = {name: value for name, value in self.admin.hgetall(key).items() if name not in CLAIMED}
            elif kind == b"zset":
                found[key] = self.admin.zrange(key, 0, -1, withscores=True)
            elif kind == b"string":
                found[key] = self.admin.get(key), self.admin.ttl(key) > 0
            else:
                found[key] = [fields for _, fields in self.admin.xrange(key)], self.admin.ttl(key) > 0
        return {key: value for key, value in found.items() if value}


#: What an owner that comes leaves, before the rest of its call is refused: it owns the queue all the same.
CLAIMED = (b"epoch", b"incarnation", b"born")


@pytest.fixture(params=["session_valkey", pytest.param("session_redis7", marks=pytest.mark.long)])
def refusing(request: pytest.FixtureRequest) -> Iterator[Refusing]:
    made = Refusing(request.getfixturevalue(request.param))
    yield made
    made.user.close()
    made.owner.close()
    made.admin.execute_command("ACL", "DELUSER", "user")


def test_every_script_that_writes_has_a_case() -> None:
    writing = {name for name in scripts.NAMES if "no-writes" not in scripts.load(name).text.partition("\n")[0]}
    assert {script_of(name) for name in CASES} == writing


#: What a script goes on without: a wake that nobody hears costs a second; a stream that is refused is what is asked for there.
GOES_ON = {"-publish", "resetchannels", "-xinfo|stream"}
#: Not run in a case: times are given there, and some scripts have functions that they do not need, or rarely.
NOT_RUN = {
    "": {"-time"},
    "ack": {"-zcount"},
    "schedule": {"-zcard", "-zcount", "-zrange"},
    "pull": {"-hscan", "-hexists", "-hget", "-hkeys", "-hsetnx", "-zrank"},
    "pull__into_the_sets_of_topics": {"-hscan", "-hget", "-hkeys", "-mget", "-set", "-zrank"},
    "pull__when_the_clocks_were_far_ahead": {"-hexists", "-mget", "-set", "-zmscore"},
    "receive": {"-pexpire", "-xgroup|create"},
    "receive__of_a_destroyed_group": {"-hdel", "-hsetnx", "-xack", "-xrange", "-zmscore", "-zrem", "-zscore"},
    "receive__of_a_new_group": {
        "-pexpire",
        "-xpending",
        "-hsetnx",
        "-hdel",
        "-xack",
        "-xrange",
        "-zmscore",
        "-zrem",
        "-zscore",
    },
    "release": {"-hexists", "-hlen", "-zmscore", "-zscore"},
    "release__into_a_stream": {"-hexists", "-zmscore"},
    "release__set": {"-hexists", "-hlen", "-zmscore"},
}


def without_one(name: str, command: Command[Any]) -> Iterator[tuple[str, ...]]:
    """The user's rights, without one that the script of a command needs: a command, the channels, or one of its keys."""
    for one in sorted(scripts.called(script_of(name)) | {"evalsha"}):
        yield (f"-{one}",)
    yield ("resetchannels",)
    for key in command.keys:
        yield ("resetkeys", *(f"~{other}" for other in command.keys if other != key))


@pytest.mark.parametrize("name", sorted(CASES))
def test_without_one_right_a_script_does_everything_or_nothing_and_says_so(name: str, refusing: Refusing) -> None:
    command = refusing.prepared(name)
    before = refusing.data()
    answer = str(refusing.user.run(command))
    after = refusing.data()
    assert name in UNCHANGED or before != after
    for rights in without_one(name, command):
        if rights[0] == "-xadd" and script_of(name) in ("pull", "release", "takes"):
            continue  # a stream that takes nothing: tests/workers/test_refusals.py
        command = refusing.prepared(name)
        refusing.allow(*rights)
        (told,) = refusing.user.run_many([command])
        refusing.allow()
        if isinstance(told, StoreRefused):
            assert rights[0] not in GOES_ON
            assert refusing.data() == before, rights
            named = {"resetchannels": "channel", "resetkeys": "key"}.get(rights[0], rights[0][1:])
            assert named in str(told).lower() or f"{named[0]}delayq:" in str(told).replace("~", "k").replace(
                "&", "c"
            ), rights
        else:
            assert rights[0] in GOES_ON | NOT_RUN[""] | NOT_RUN.get(name, set()), (rights, told)
            assert (refusing.data(), str(told)) == (after, answer), rights


#: Scripts whose case changes nothing that `data` shows.
UNCHANGED = {"claim", "takes"}


# -- a server that refuses writes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["full", "full soon", "a replica"])
def test_a_server_that_takes_no_writes_refuses_a_script_whole(state: str, refusing: Refusing) -> None:
    """Redis looks at both before a script begins, and not again at its second write."""
    admin, refused = refusing.admin, 0
    for name in CASES:
        refusing.prepared(name)
        before = refusing.data()
        answer = str(refusing.user.run(refusing.prepared(name)))
        after = refusing.data()
        command = refusing.prepared(name)
        if state == "a replica":
            admin.execute_command("REPLICAOF", LOCALHOST, 1)
        else:
            room = 0 if state == "full" else 1_000
            admin.config_set("maxmemory", admin.info("memory")["used_memory"] + room if room else 1)
        (told,) = refusing.user.run_many([command])
        admin.execute_command("REPLICAOF", "NO", "ONE")
        admin.config_set("maxmemory", 0)
        if isinstance(told, StoreFull | NotDone):
            refused += 1
            assert refusing.data() == before, name
        else:
            assert (refusing.data(), str(told)) == (after, answer), name
    assert refused or state == "full soon"


# -- a login that Redis refuses ------------------------------------------------------------------------------------------

LOGINS = {
    "wrong password": "redis://user:wrong@",
    "unknown user": "redis://nobody:user@",
    "no password": "redis://",
    "disabled user": "redis://off:off@",
    "password without a user": "redis://:wrong@",
}


@pytest.mark.parametrize("kind", [Store, AsyncRunner])
@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
def test_a_refused_login_is_told_as_refused_and_nothing_was_done(
    kind: Any, login: str, valkey: ServerUnderTest
) -> None:
    admin = valkey.admin
    admin.execute_command("ACL", "SETUSER", "off", "off", ">off", "+@all", "allkeys")
    admin.config_set("requirepass", "secret")
    try:
        store = kind(valkey.url.replace("redis://", login), timeout=PATIENCE)
        one = schedule_command(KEYS.queue(3), row("a", at=60_000), now=10_000)
        told = store.run_many([one, commands.layout(KEYS, 4)])
        store.close()
    finally:
        admin.config_set("requirepass", "")
        admin.execute_command("ACL", "DELUSER", "off")
    assert [type(answer) for answer in told] == [StoreRefused] * 2
    assert problem_of(told[0].about("a")).out.detail.endswith("nothing was done. Repeat with the same id, a.")
    assert admin.dbsize() == 0


def test_what_was_sent_where_nobody_has_logged_in_did_not_run() -> None:
    """On Redis 7.0 a connection without a password is made, and its first command is refused."""
    exchange = SingleExchange([commands.layout(KEYS, 4)])
    again = True
    while again:
        exchange.link = Link(None, ServerState(1.0))
        list(exchange.link.to_send(exchange.wanted()))
        assert exchange.link.waiting
        again = exchange.broke(redis.exceptions.AuthenticationError("NOAUTH Authentication required."))
    assert [type(answer) for answer in exchange.result()] == [StoreRefused]


@pytest.mark.parametrize("kind", [Store, AsyncRunner])
def test_a_call_whose_reply_was_lost_stays_unknown_if_the_next_login_is_refused(
    kind: Any, valkey: ServerUnderTest, proxy: FaultProxy
) -> None:
    def change_password(_: object) -> bool:
        valkey.admin.execute_command("ACL", "SETUSER", "user", "resetpass", ">other")
        return True

    valkey.admin.execute_command("ACL", "SETUSER", "user", "on", ">user", "+@all", "allkeys", "allchannels")
    store = kind(proxy.url.replace("redis://", "redis://user:user@"), timeout=PATIENCE)
    proxy.drop_reply("schedule", when=change_password)
    one = schedule_command(KEYS.queue(3), row("a", at=60_000), now=10_000)
    told = store.run_many([commands.layout(KEYS, 4), one, commands.layout(KEYS, 4)])
    store.close()
    valkey.admin.execute_command("ACL", "DELUSER", "user")
    assert [type(answer) for answer in told[1:]] == [StoreUnavailable, StoreUnavailable]
    assert valkey.admin.hexists(KEYS.queue(3).pool, "a")
