"""Whether Redis and ZooKeeper accept anybody who can reach them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from delayq.base.errors import StoreError, StoreRefused
from delayq.client.findings import FAIL, OK, WARN, Check
from delayq.config import Settings
from delayq.store import rights
from delayq.store.checks import is_missing_right
from delayq.store.commands import plain
from delayq.store.connect import address
from delayq.store.connect.store import Store

MEND: Final = "grant it these rights (ACL SETUSER); docs/operations.md lists all rights"


def check_rights(store: Store) -> Check:
    """Check that this user has the rights of the API, clients, workers and the command line."""
    missing: dict[str, list[str]] = {}  # right → the processes that need it
    for needs in rights.PROCESSES:
        try:
            found = store.run(rights.lacking(store.keys, needs))
        except StoreRefused as error:
            if not is_missing_right(error):
                raise
            return Check("rights", FAIL, str(error), MEND)
        if found is None:
            return Check("rights", OK, "the server cannot report the rights of its user")
        for right in found:
            if needs is not rights.CONSUMER or right not in missing:  # it has all needs of a client, too
                missing.setdefault(right, []).append(needs.processes)
    if not missing:
        return Check("rights", OK, "this user has the rights of API, clients, workers and the command line")
    text = "; ".join(f"{right} ({', '.join(who)})" for right, who in missing.items())
    some = {rights.WORKER.processes, rights.CONSUMER.processes}
    is_minor = all(some >= {*who} for who in missing.values())
    return Check("rights", WARN if is_minor else FAIL, f"this user is missing {text}", MEND)


def check_password(store: Store) -> Check:
    """Connect without name and password."""
    stranger = Store(address.without_user(store.url))
    try:
        stranger.run(plain("PING", read=bool))
    except StoreError:
        return Check("password", OK, "it requires a password")
    finally:
        stranger.close()
    if all(_is_loopback(host) for host in address.hosts(store.url)):
        return Check(
            "password", OK, "it requires no password; it is reached here by the loopback address or a Unix socket"
        )
    text = "it requires no password, so everybody who reaches this Redis can read and change everything"
    mend = "create a user with the rights in docs/operations.md, and disable its default user"
    return Check("password", WARN, text, mend)


def check_zookeeper(settings: Settings) -> Iterator[Check]:
    """Check by the settings: there is no result without a ZooKeeper."""
    if not settings.zookeeper:
        return
    hosts = [urlsplit(f"//{one.strip()}").hostname or "" for one in settings.zookeeper_hosts.split(",")]
    if settings.zookeeper_user:
        yield Check("zookeeperAccess", OK, f"workers log in as {settings.zookeeper_user}")
    elif all(map(_is_loopback, hosts)):
        yield Check("zookeeperAccess", OK, "workers need no user; it is reached here by the loopback address")
    else:
        text = "workers need no user, so everybody who reaches this ZooKeeper can take queues from them"
        yield Check("zookeeperAccess", WARN, text, "create users, and set DELAYQ_ZOOKEEPER_USER: docs/operations.md")


def _is_loopback(host: str) -> bool:
    try:
        return host in ("localhost", "") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
