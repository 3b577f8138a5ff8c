"""Whether the Redis lets in anybody who reaches it."""

from __future__ import annotations

import ipaddress

from delayq.doctor.check import OK, WARN, Check
from delayq.errors import StoreError
from delayq.store import address
from delayq.store.commands import plain
from delayq.store.store import Store

__all__ = ["check_password"]


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
        return Check("password", OK, "it takes no password; it is reached here by the loopback address")
    text = "nobody needs a password: whoever reaches this Redis reads and changes everything"
    mend = "give it a user with the rights that docs/operations.md lists, and turn its default user off"
    return Check("password", WARN, text, mend)


def _is_loopback(host: str) -> bool:
    try:
        return host in ("localhost", "") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
