"""A reply that says "this is not the primary" is a state of the connection: it is closed, and the name resolved again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from delayq.base.errors import NotDone, StoreError, StoreUnavailable
from delayq.domain.routes import Route
from delayq.store import checks, commands
from delayq.store.commands import Command, Kept, plain
from delayq.store.connect.exchange import SingleExchange, translate
from delayq.store.connect.link import Link
from delayq.store.connect.server_state import ServerState, WrongServer, read_error
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import KEYS
from delayq.targets import open_target
from tests.support.deliveries import delivery, outcomes
from tests.support.moved import MovingName, moving_name
from tests.support.old_redis import answering
from tests.support.queues import AsyncRunner, Runner
from tests.support.timeouts import PATIENCE, SEND_SECONDS
from tests.support.waiting import eventually

pytestmark = pytest.mark.processes
MAKERS: dict[str, Any] = {"sync": Store, "async": AsyncRunner}

ERRORS = [
    "READONLY You can't write against a read only replica.",
    "READONLY You can't write against a read only replica. script: 6b1bf486, on @user_script:1.",
    "ERR Error running script (call to f_6b1b): @user_script:1: -READONLY You can't write against a read only replica.",
    "ERR user_script:1: READONLY You can't write against a read only replica.",
    "EXECABORT Transaction discarded because of: READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "NOREPLICAS Not enough good replicas to write.",
    "ERR Error running script (call to f_6b1b): @user_script:1: -NOREPLICAS Not enough good replicas to write.",
]


@pytest.mark.parametrize("text", ERRORS)
def test_every_form_of_such_a_reply_is_known_and_says_that_nothing_was_done(text: str) -> None:
    error = read_error(text)
    assert isinstance(error, WrongServer)
    assert type(translate(error)) is NotDone


@pytest.mark.parametrize(
    "text", ["ERR no such key", "WRONGTYPE Operation against a key", "NOPERM the 'readonly' command", "OOM command"]
)
def test_no_other_error_is_taken_for_one(text: str) -> None:
    assert not isinstance(read_error(text), WrongServer)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("MOVED 42 127.0.0.1:7000", redis.exceptions.MovedError), ("ASK 42 127.0.0.1:7000", redis.exceptions.AskError),
        ("TRYAGAIN Multiple keys", redis.exceptions.TryAgainError), ("CLUSTERDOWN Hash slot", redis.exceptions.ClusterDownError),
        ("LOADING Redis is loading", redis.exceptions.BusyLoadingError), ("NOSCRIPT No", redis.exceptions.NoScriptError),
        ("NOAUTH Authentication", redis.exceptions.AuthenticationError), ("OOM command", redis.exceptions.OutOfMemoryError),
    ],
)  # fmt: skip
def test_the_errors_of_a_cluster_are_known_whatever_version_redis_py_has(text: str, kind: type[Exception]) -> None:
    error = read_error(text)
    assert type(error) is kind
    if isinstance(error, redis.exceptions.AskError):
        assert (error.slot_id, error.host, error.port) == (42, "127.0.0.1", 7000)


# -- a name that moves ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_servers() -> Iterator[MovingName]:
    with moving_name() as made:
        yield made


@pytest.fixture
def moving(two_servers: MovingName) -> MovingName:
    two_servers.settle()
    return two_servers


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, moving: MovingName) -> Iterator[Runner]:
    """Each of the two stores."""
    made: Runner = MAKERS[request.param](moving.url, timeout=PATIENCE)
    yield made
    made.close()


def write(key: str = "written") -> Command[int]:
    return plain("INCR", key, read=int)


def layout(store: Runner) -> Any:
    return store.run(commands.layout(KEYS, 16)).queues


CALLS: dict[str, Callable[[Runner], Any]] = {
    "a script": layout,
    "a plain write": lambda store: store.run(write()),
    "several writes": lambda store: store.run_many([write("a"), write("b"), write("c")])[2],
    "more writes than are sent ahead": lambda store: store.run_many([write(f"k{n}") for n in range(100)])[99],
    "a write that has to be on disk": lambda store: store.run_many(Kept([commands.layout(KEYS, 16)], 0, True))[0],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_follows_the_name_at_once(moving: MovingName, store: Runner, call: Callable[[Runner], Any]) -> None:
    moving.new.admin.config_set("appendfsync", "always")
    moving.old.admin.config_set("appendfsync", "always")
    assert layout(store) == 16
    moving.move()
    assert not isinstance(call(store), StoreError)
    eventually(lambda: moving.name.connections == 1, "the connection to the new server is the only one")


def test_what_is_answered_behind_a_refused_change_is_not_overtaken(moving: MovingName, store: Runner) -> None:
    assert store.run(write()) == 1
    moving.move()
    eventually(moving.follows, "the old primary follows")
    refused, read = store.run_many([write(), plain("GET", "written", read=int)])
    assert (type(refused), read) == (NotDone, 1)  # a write that is done now would stand behind its reading
    assert store.run(write()) == 2


def test_a_server_that_says_of_itself_that_it_is_a_replica_is_left(moving: MovingName, store: Runner) -> None:
    """An API that is not ready gets no call that changes anything: only `/readyz` can find out."""
    assert store.run(checks.server()).role == "master"
    moving.move()
    assert store.run(checks.server()).role == "slave"
    assert store.run(checks.server()).role == "master"


def test_as_long_as_the_name_leads_to_a_replica_each_call_is_refused_as_not_done(
    moving: MovingName, store: Runner
) -> None:
    assert store.run(write()) == 1
    moving.promote()
    for _ in range(2):
        answers = store.run_many([write() for _ in range(40)])
        assert {type(answer) for answer in answers} == {NotDone}
    eventually(lambda: moving.name.connections == 0, "no connection is kept")
    moving.name.lead_to(moving.new.port)
    assert store.run(write()) == 2


@pytest.mark.parametrize("code", ["LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS"])
@pytest.mark.parametrize("command", [b"SELECT", b"INCR"], ids=["while it connects", "in a call"])
def test_such_a_reply_leaves_no_connection_behind(moving: MovingName, store: Runner, code: str, command: bytes) -> None:
    url = moving.url.replace("/0", "/1") if command == b"SELECT" else moving.url
    make: Any = type(store)
    with (
        answering({command: f"-{code} not here\r\n".encode()}) as nowhere,
        closing(make(url, timeout=PATIENCE)) as one,
    ):
        moving.name.lead_to(urlsplit(nowhere).port or 0)
        with pytest.raises(StoreUnavailable, match="not here"):
            one.run(write())
        moving.name.lead_to(moving.old.port)
        assert one.run(write()) == 1
        eventually(lambda: moving.name.connections == 1, "only the connection to the right server is left")


def test_connections_that_are_in_use_or_subscribed_are_left_too(moving: MovingName) -> None:
    store = Store(moving.url, timeout=PATIENCE)
    wakes = Wakes(store.connect)
    wakes.connect(["channel"])
    assert wakes.receive(PATIENCE) == ("", b"")
    begun = store.begin([plain("PING", read=bytes)])
    assert store.run(write()) == 1  # another connection
    moving.move()
    assert store.run(write()) == 2
    assert store.end(begun) == [b"PONG"]
    with pytest.raises(StoreUnavailable, match="no longer the primary"):
        wakes.receive(0.01)
    eventually(lambda: moving.name.connections == 1, "the connection to the new server is the only one")
    wakes.connect(["channel"])
    assert wakes.receive(PATIENCE) == ("", b"")
    moving.new.publish("channel", "hello")
    assert wakes.receive(PATIENCE) == ("channel", b"hello")
    wakes.close()
    store.close()


@pytest.mark.parametrize("bounded", [False, True], ids=["plain", "maxBacklog"])
def test_a_stream_target_follows_the_name(moving: MovingName, bounded: bool) -> None:
    route = Route(name="r", match="*", target=f"redis+stream:{moving.url}", max_backlog=100 if bounded else None)
    target = open_target(route, "redis://127.0.0.1:1")
    assert outcomes(target.send([delivery("one")], SEND_SECONDS)) == ["ok"]
    moving.move()
    assert set(outcomes(target.send([delivery("two"), delivery("three")], SEND_SECONDS))) <= {"ok", "unavailable"}
    assert outcomes(target.send([delivery("four")], SEND_SECONDS)) == ["ok"]
    target.close()


# -- what a server says that no test can make it say ----------------------------------------------------------------------


def exchange(*wanted: Command[Any], replies: Sequence[Any]) -> SingleExchange:
    """Commands that were sent, and the first replies to them."""
    sent = SingleExchange(wanted)
    sent.link = Link(None, ServerState(1.0))
    b"".join(sent.link.to_send(sent.wanted()))
    for reply in replies:
        sent.answered(sent.link, reply)
    return sent


def test_what_an_owner_sends_is_not_sent_again_though_it_did_not_run() -> None:
    sent = exchange(Command("ack", ("{q}k",), ("x#1",), bytes), replies=[read_error("READONLY")])
    assert sent.link is not None
    assert sent.link.wrong is not None
    assert not sent.broke(sent.link.wrong)
    assert [type(answer) for answer in sent.result()] == [NotDone]


def test_a_connection_that_breaks_while_the_rest_is_read_leaves_only_that_unknown() -> None:
    sent = exchange(write(), write(), replies=[read_error("READONLY no")])
    assert not sent.broke(redis.exceptions.TimeoutError("slow"))
    assert [type(answer) for answer in sent.result()] == [NotDone, StoreUnavailable]
