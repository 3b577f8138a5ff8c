"""The address of a caller behind proxies that are trusted to report it."""

from __future__ import annotations

import re
from typing import Any, Final

from delayq.base.networks import Address, address_of, parse_networks

#: An address, or an address of IPv6 in brackets; a port may follow either.
_ENTRY: Final = re.compile(r"\[([^\[\]]+)\](?::\d{1,5})?|([^:]+)(?::\d{1,5})?", re.ASCII)


class TrustedProxies:
    """The networks of `DELAYQ_TRUSTED_PROXIES`; false if there are none.

    Each proxy appends the address of its own peer to `X-Forwarded-For`. Therefore the entries are true from the right
    up to the first one that is not a trusted proxy: that is the caller. The caller may have invented the entries
    further left.
    """

    def __init__(self, networks: str) -> None:
        self._networks = parse_networks(networks)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def caller(self, scope: Any) -> tuple[str, int] | None:
        """The address and port of the caller of a request. The port is 0 if a proxy reported the address."""
        client: tuple[str, int] | None = scope.get("client")
        found = address_of(client[0]) if client else None
        if found is None or not self._trusts(found):
            return client
        reported = False
        for entry in reversed(_entries(scope["headers"])):
            address = _address(entry)
            if address is None:
                break  # a proxy did not know its peer, so the entries further left prove nothing
            found, reported = address, True
            if not self._trusts(found):
                break
        return (str(found), 0) if reported else client

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _entries(headers: Any) -> list[str]:
    """The entries of all lines of the header, in order; empty ones do not count (RFC 9110, section 5.6.1)."""
    lines = (value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for")
    return [entry for line in lines for one in line.split(",") if (entry := one.strip(" \t"))]


def _address(entry: str) -> Address | None:
    if (whole := address_of(entry)) is not None:
        return whole
    match = _ENTRY.fullmatch(entry)
    return address_of(match[1] or match[2]) if match else None
