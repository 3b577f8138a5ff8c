"""A real group behind sentinels: the primary is found, and found anew when it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from delayq import StoreError, StoreUnavailable
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store import checks, commands
from delayq.store.commands import plain
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS
from tests.support.queues import AsyncRunner, Runner
from tests.support.sentinels import SERVICE, GuardedGroup, Sentinel, SentinelsUnderTest, guarded_group
from tests.support.servers import REDIS_SERVER
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

MAKERS = {"sync": Store, "async": AsyncRunner}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, sentinels: SentinelsUnderTest) -> Iterator[Runner]:
    """Each of the two stores."""
    made: Runner = MAKERS[request.param](sentinels.url, timeout=PATIENCE)
    yield made
    made.close()


def works(store: Runner) -> bool:
    """Whether a write is answered."""
    try:
        return store.run(commands.layout(KEYS, 16)).queues == 16
    except StoreUnavailable:
        return False


def port_of(store: Runner) -> int:
    """The port that answers the store's commands; 0 if none answers."""
    try:
        info: Any = store.run(plain("INFO", "server", read=bytes.decode))
    except StoreUnavailable:
        return 0
    return int(info.partition("tcp_port:")[2].split()[0])


def test_the_primary_is_found_through_the_sentinels(sentinels: SentinelsUnderTest, store: Runner) -> None:
    assert port_of(store) == sentinels.primary.port
    found = store.run(checks.server())
    assert (found.role, found.replicas, found.primaries) == ("master", 2, 1)


def test_after_a_fork_nobody_waits_for_who_was_asking_the_sentinels_before(sentinels: SentinelsUnderTest) -> None:
    with closing(Store(sentinels.url, timeout=PATIENCE)) as store:
        primary: Any = store._primary
        held = primary._asking.acquire()  # by a thread that the child does not have
        store._process = 0
        assert works(store)
        del held


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("names", ["nobody", "a replica"])
def test_a_sentinel_that_names_another_server_than_the_rest_does_not_hide_them(
    sentinels: SentinelsUnderTest, make: Any, names: str
) -> None:
    """As one that was cut off from the others before a fail-over."""
    replica = next(one for one in sentinels.members if one is not sentinels.primary)
    with ExitStack() as stack:
        stack.callback(sentinels.forget_strangers)
        alone = stack.enter_context(closing(Sentinel(free_port() if names == "nobody" else replica.port)))
        url = sentinels.url.replace("//", f"//{LOCALHOST}:{alone.port},")
        with closing(make(url, timeout=PATIENCE)) as store:
            eventually(lambda: works(store), "the next sentinel is asked")
            assert port_of(store) == sentinels.primary.port


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_service_that_no_sentinel_knows_is_told(sentinels: SentinelsUnderTest, make: Any) -> None:
    url = sentinels.url.replace(f"/{SERVICE}/", "/strange/")
    reason = "the primary of strange, they do not know it"
    with closing(make(url, timeout=PATIENCE)) as store, pytest.raises(StoreUnavailable, match=reason):
        store.run(commands.layout(KEYS, 16))


@pytest.fixture(params=["plain", "tls"], scope="module")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedGroup]:
    """A group whose servers and sentinel ask for passwords, each for its own."""
    tls = tmp_path_factory.mktemp("tls") if request.param == "tls" else None
    if tls and not REDIS_SERVER:
        pytest.skip("TLS needs a redis-server that is built with it (apt install redis-server)")
    with guarded_group(tls) as group:
        yield group


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_sentinels_and_servers_are_asked_as_different_users_and_a_wrong_password_is_told(
    guarded: GuardedGroup, make: Any
) -> None:
    with closing(make(guarded.url, timeout=PATIENCE)) as store:
        assert works(store)
        assert store.run(checks.server()).role == "master"
        guarded.sentinel.fail_over()
        eventually(lambda: works(store) and port_of(store) == guarded.primary.port, "the store is there")
    eventually(lambda: guarded.primary.replicas == 1, "the old primary follows")
    for servers, asker, reason in (
        (GuardedGroup.SERVERS, "wrong", "no sentinel names the primary of delayq: .*(WRONGPASS|invalid username)"),
        ("wrong", GuardedGroup.ASKER, "refused the credentials"),
    ):
        with closing(make(guarded.url_with(servers, asker), timeout=PATIENCE)) as store:
            # A sentinel that does not answer within a second is passed over: that reason is true, too.
            eventually(lambda store=store, reason=reason: re.search(reason, refused(store)), "the reason is told")  # type: ignore[misc]  # defaults bind them


def refused(store: Runner) -> str:
    """The reason why a call is refused."""
    with pytest.raises(StoreError) as caught:
        store.run(commands.layout(KEYS, 16))
    return str(caught.value)


def test_a_server_that_became_a_replica_is_left_for_the_new_primary(
    sentinels: SentinelsUnderTest, store: Runner
) -> None:
    assert works(store)
    old = sentinels.primary
    sentinels.fail_over()
    eventually(lambda: sentinels.primary is not old and sentinels.primary.is_primary, "another one is primary")
    eventually(lambda: works(store) and port_of(store) == sentinels.primary.port, "the store is there")
