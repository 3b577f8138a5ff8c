"""Nodes on a ZooKeeper that wants a user, a password and a certificate, and by TLS only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator import CoordinatorError, CoordinatorRefused
from coordinator.zookeeper.access import Access
from coordinator.zookeeper.overview import Overviews
from coordinator.zookeeper.session import Session
from delayq import Client, Message
from delayq.base.clock import SystemClock
from delayq.store.connect.store import Store
from delayq.testing import ManualClock
from testbed.zookeeper import ZooKeeperServer
from testbed.zookeeper_guard import Guard
from tests.coordinator.team import QUEUES, Team
from tests.support.certificates import Authority
from tests.support.servers import ServerUnderTest
from tests.support.service import OneProcess
from tests.support.timeouts import SESSION_TIMEOUT
from tests.support.waiting import eventually
from tests.support.zookeeper import client, real_zookeeper

pytestmark = pytest.mark.long

USERS = {"delayq": "canary-zookeeper-1", "else": "canary-zookeeper-2"}
KEY_PASSWORD = "canary-key-3"
SHORT = 1_000  # of a session that is refused: a look waits for so long, and is repeated


@pytest.fixture(scope="module")
def guarded(authority: Authority) -> Iterator[ZooKeeperServer]:
    own = authority.issue("zookeeper", "127.0.0.1")
    with real_zookeeper(guard=Guard(USERS, own.both, authority.file)) as server:
        yield server


@pytest.fixture(scope="module")
def access(authority: Authority) -> Access:
    """All that this server wants."""
    shown = authority.issue("worker", password=KEY_PASSWORD)
    return Access(
        user="delayq",
        password=USERS["delayq"],
        tls="yes",
        ca=str(authority.file),
        certificate=str(shown.certificate),
        key=str(shown.key),
        key_password=KEY_PASSWORD,
        own=True,
    )


def refused(hosts: str, access: Access) -> str:
    """What a session says that does not get in."""
    session = Session(hosts, SHORT, lambda *_: None, access)

    def ask() -> str:
        try:
            session.open()
            session.children("/")
        except CoordinatorRefused as error:
            return str(error)
        except CoordinatorError:  # a busy machine has not said yet why, and is asked again
            return ""
        return ""

    try:
        return eventually(ask, "it is refused")
    finally:
        session.close()


def test_nodes_share_the_queues_over_tls_with_a_user_and_only_that_user_may_touch_them(
    guarded: ZooKeeperServer, access: Access, store: Store, clock: ManualClock, zookeeper_root: str
) -> None:
    nodes = Team(guarded.secure_hosts, zookeeper_root, store, clock, access)
    try:
        one, other = nodes.join("one"), nodes.join("other")
        nodes.settle(one, other)
        queues = set(range(QUEUES))
        with closing(
            Overviews(guarded.secure_hosts, zookeeper_root, SESSION_TIMEOUT, lambda: queues, SystemClock(), access)
        ) as overviews:
            look = overviews.look()
            assert [member.name for member in look.members] == ["one", "other"]
            assert look.unowned == ()
        login = {"mechanism": "DIGEST-MD5", "username": "delayq", "password": USERS["delayq"]}
        with client(guarded.hosts, sasl_options=login) as admin:
            for path in ("", "/nodes", "/nodes/one", "/starts", "/owners", *(f"/owners/{q}" for q in range(QUEUES))):
                acls, _ = admin.get_acls(zookeeper_root + path)
                assert [(acl.id.scheme, acl.id.id, acl.perms) for acl in acls if acl.id.scheme != "x509"] == [
                    ("sasl", "delayq", 31)
                ]
                assert not any(acl.id.scheme == "world" for acl in acls)
    finally:
        for player in nodes.players:
            player.coordinator.stop()


def test_another_user_gets_in_and_is_told_that_the_znodes_are_not_its_own(
    guarded: ZooKeeperServer, access: Access, zookeeper_root: str
) -> None:
    other = Access(user="else", password=USERS["else"], own=True)
    with (
        closing(Session(guarded.secure_hosts, SESSION_TIMEOUT, lambda *_: None, access)) as session,
        closing(Session(guarded.hosts, SESSION_TIMEOUT, lambda *_: None, other)) as stranger,
    ):
        session.open()
        session.keep(f"{zookeeper_root}/starts", b"{}", None)
        stranger.open()
        with pytest.raises(CoordinatorRefused, match="denies the user else access to existing znodes"):
            stranger.read([f"{zookeeper_root}/starts"])
        with pytest.raises(CoordinatorRefused, match="the user else"):
            stranger.keep(f"{zookeeper_root}/starts", b"{}", None)


def test_who_does_not_get_in_is_told_why_in_one_sentence(
    guarded: ZooKeeperServer, access: Access, tmp_path: Path
) -> None:
    stranger = str(Authority(tmp_path).file)
    refuses = f"ZooKeeper ({guarded.secure_hosts}) refuses the user delayq: check DELAYQ_ZOOKEEPER_USER and"
    untrusted = (
        "is not trusted: unable to get local issuer certificate; set DELAYQ_ZOOKEEPER_CA to the authority to trust"
    )
    for hosts, given, said in (
        (guarded.secure_hosts, replace(access, password="canary-wrong"), f"{refuses} DELAYQ_ZOOKEEPER_PASSWORD"),
        (guarded.secure_hosts, replace(access, user="", password="", own=False), "refuses a client without a user"),
        (guarded.secure_hosts, replace(access, ca=stranger), untrusted),
        (guarded.hosts, access, "does not accept TLS"),
    ):
        assert said in refused(hosts, given)


def test_a_certificate_for_another_host_is_refused_unless_any_will_do(guarded: ZooKeeperServer, access: Access) -> None:
    by_name = guarded.secure_hosts.replace("127.0.0.1", "localhost")
    assert "Hostname mismatch" in refused(by_name, access)
    any_host = replace(access, tls="any-host")
    with closing(Session(by_name, SESSION_TIMEOUT, lambda *_: None, any_host)) as session:
        session.open()
        assert "zookeeper" in session.children("/")


def test_a_worker_over_tls_with_a_user_owns_its_queues_and_one_with_a_wrong_password_ends_in_words(
    guarded: ZooKeeperServer, access: Access, valkey: ServerUnderTest, zookeeper_root: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(USERS["delayq"])
    (tmp_path / "key-password").write_text(KEY_PASSWORD)
    settings = {
        "redis_url": valkey.url, "log_level": "debug", "zookeeper": guarded.secure_hosts,
        "zookeeper_root": zookeeper_root, "zookeeper_user": "delayq", "zookeeper_tls": "yes",
        "zookeeper_password": f"file:{tmp_path}/password", "zookeeper_ca": access.ca,
        "zookeeper_certificate": access.certificate, "zookeeper_key": access.key,
        "zookeeper_key_password": f"file:{tmp_path}/key-password", "session_timeout": str(SESSION_TIMEOUT),
    }  # fmt: skip
    refused = settings | {"session_timeout": "2s"}  # a start waits for so long, and is repeated
    command = [sys.executable, "-m", "workers"]
    stranger = Authority(tmp_path / "else")
    good, wrong, untrusting = all_of_them = [
        OneProcess(name, command, own | {"node": name}, tmp_path / f"{name}.log")
        for name, own in (
            ("good", settings),
            ("wrong", refused | {"zookeeper_password": "canary-wrong"}),
            ("untrusting", refused | {"zookeeper_ca": str(stranger.file)}),
        )
    ]
    try:
        for one in all_of_them:
            one.start()
        with Client(valkey.url) as client:
            client.schedule(Message(topic="guarded", delay_time=0))
            eventually(lambda: valkey.admin.xlen("guarded"), "the message comes")
        for one in (wrong, untrusting):
            eventually(lambda one=one: not one.alive, "it ends")  # type: ignore[misc]  # a lambda with a default is not inferred
        assert good.alive
    finally:
        for one in all_of_them:
            one.stop()
    assert (wrong.returncode, untrusting.returncode) == (2, 2)
    for one, said in (
        (wrong, f"ZooKeeper ({guarded.secure_hosts}) refuses the user delayq: check DELAYQ_ZOOKEEPER_USER"),
        (untrusting, "the certificate of the ZooKeeper at 127.0.0.1:"),
    ):
        assert one.said().splitlines()[-1].startswith(f"delayq worker: {said}")
    for one in all_of_them:
        assert "canary" not in one.said()
        assert "\nTraceback" not in one.said()  # what kazoo logs has one, within its line
