"""Whether Redis and ZooKeeper let in anybody who reaches them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from delayq.client.findings import FAIL, OK, WARN, Check
from delayq.config import Settings
from delayq.errors import StoreError, StoreRefused
from delayq.store import rights
from delayq.store.checks import is_missing_right
from delayq.store.commands import plain
from delayq.store.connect import address
from delayq.store.connect.store import Store

__all__ = ["MEND", "check_password", "check_rights", "check_zookeeper"]

MEND: Final = "give it these rights (ACL SETUSER); docs/operations.md lists all"


def check_rights(store: Store) -> Check:
    """Whether this user may do all that API, clients, workers and the command line do."""
    missing: dict[str, list[str]] = {}  # right → who needs it
    for needs in rights.PROCESSES:
        try:
            found = store.run(rights.lacking(needs))
        except StoreRefused as error:
            if not is_missing_right(error):
                raise
            return Check("rights", FAIL, str(error), MEND)
        if found is None:
            return Check("rights", OK, "the server cannot say what its user may do")
        for right in found:
            missing.setdefault(right, []).append(needs.processes)
    if not missing:
        return Check("rights", OK, "this user may do all that API, clients, workers and the command line do")
    text = "; ".join(f"{right} ({', '.join(who)})" for right, who in missing.items())
    only_workers = all(who == [rights.WORKER.processes] for who in missing.values())
    return Check("rights", WARN if only_workers else FAIL, f"this user is missing {text}", MEND)


def check_password(store: Store) -> Check:
    """Knocks without name and password."""
    stranger = Store(address.without_user(store.url))
    try:
        stranger.run(plain("PING", read=bool))
    except StoreError:
        return Check("password", OK, "it lets in nobody without a password")
    finally:
        stranger.close()
    if all(_is_loopback(host) for host in address.hosts(store.url)):
        return Check(
            "password", OK, "it takes no password; it is reached here by the loopback address or a Unix socket"
        )
    text = "nobody needs a password: whoever reaches this Redis reads and changes everything"
    mend = "give it a user with the rights that docs/operations.md lists, and turn its default user off"
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
        text = "workers need no user: whoever reaches this ZooKeeper can take queues away from them"
        yield Check("zookeeperAccess", WARN, text, "give it users, and set DELAYQ_ZOOKEEPER_USER: docs/operations.md")


def _is_loopback(host: str) -> bool:
    try:
        return host in ("localhost", "") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
