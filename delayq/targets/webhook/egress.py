"""Where a target may connect to: addresses of the public Internet, and what its route allows beside them.

Each attempt resolves the name once, checks every address of it, and connects to a checked address. So neither the notation
of an address nor a name with changing addresses avoids the check.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

#: Nothing else is public: not ::1, fc00::/7, fe80::/10, nor IPv4 in IPv6 (::ffff:0:0/96, 64:ff9b::/96).
PUBLIC_6: Final = IPv6Network("2000::/3")
NOT_PUBLIC: Final = {
    ip_network(network): what
    for what, networks in {
        "unspecified": ("0.0.0.0/8",),
        "loopback": ("127.0.0.0/8",),
        "link-local": ("169.254.0.0/16",),
        "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
        "the metadata service of a cloud": ("168.63.129.16/32",),
        "reserved": (
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
            "2001::/23",
            "2001:db8::/32",
            "3ffe::/16",
            "3fff::/20",
        ),
        "multicast": ("224.0.0.0/4",),
        "6to4": ("2002::/16",),
    }.items()
    for network in networks
}

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_PLACE = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


class Refused(Exception):
    """The address is not public, and not allowed."""


class Endpoint(NamedTuple):
    """The parts of an http or https URL; `host` is a name in lower case or an address in its usual notation."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


class ResolvedAddress(NamedTuple):
    """An address that a name has; `sockaddr` is what a socket of the family connects to."""

    family: int
    sockaddr: tuple[Any, ...]

    @property
    def ip(self) -> str:
        """As text."""
        return str(self.sockaddr[0])


def endpoint_of(url: str) -> Endpoint:
    """The parts of the URL. Raises ValueError, which does not repeat the URL: it may hold secrets."""
    if not _VISIBLE.fullmatch(url) or "\\" in url:
        raise ValueError("it has spaces, backslashes or letters that are not ASCII; write such a name as xn--…")
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("it has a user in it; give an authorization header instead")
    if parts.fragment:
        raise ValueError("it has a fragment (#), which is never sent")
    place = _PLACE.fullmatch(parts.netloc)
    if place is None:
        raise ValueError("it has no host, or one that is no name and no address")
    port = int(place["port"] or (443 if parts.scheme == "https" else 80))
    if not 0 < port < 65_536:
        raise ValueError("its port is none")
    host = str(IPv6Address(place["six"])) if place["six"] else _host(place["name"].lower())
    return Endpoint(parts.scheme, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _host(name: str) -> str:
    name = name.removesuffix(".")
    if _NUMBER.fullmatch(name):  # 127.1, 2130706433, 0x7f000001, 0177.0.0.1: as the system would read them
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ValueError("it has an address that is not written as four decimal numbers") from None
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise ValueError("it has no host, or one that is no name and no address")
    return name


class Egress:
    """The check, and what it lets through beside public addresses: networks (10.1.0.0/16), addresses, names (*.internal).

    A name that is allowed may have any address. Raises ValueError for what is none of these.
    """

    def __init__(self, allow: Iterable[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        for one in allow:
            try:
                self._networks.append(ip_network(one.strip("[]")))
                continue
            except ValueError:
                name = one.lower().removesuffix(".")
            bare = name.removeprefix("*.")
            if not _NAME.fullmatch(bare) or _NUMBER.fullmatch(bare):
                raise ValueError(f"{one!r} is no network such as 10.1.0.0/16, no address and no name")
            if bare == name:
                self._names.add(name)
            else:
                self._suffixes.append(f".{bare}")

    def addresses(self, endpoint: Endpoint, timeout: float) -> list[ResolvedAddress]:
        """All addresses of the endpoint. Raises Refused if one of them may not be, OSError if there are none.

        The system's resolver cannot be stopped: after `timeout` seconds it is left behind.
        """
        found = literal(endpoint) or _resolve(endpoint, timeout)
        if not self._named(endpoint.host):
            for address in found:
                self._check(endpoint.host, address.ip)
        return found

    def _named(self, host: str) -> bool:
        return host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def _check(self, host: str, text: str) -> None:
        ip = ip_address(text)
        what = _not_public(ip)
        if what and not any(ip in network for network in self._networks):
            where = text if text == host else f"{host} is at {text}, which"
            raise Refused(f"{where} is not public ({what}): DELAYQ_EGRESS_ALLOW or the route's `allow` can allow it")


def _not_public(ip: IPv4Address | IPv6Address) -> str:
    """The kind of an address outside the public Internet."""
    for network, what in NOT_PUBLIC.items():
        if ip in network:
            return what
    if isinstance(ip, IPv4Address) or ip in PUBLIC_6:
        return ""
    return "loopback" if ip.is_loopback else "multicast" if ip.is_multicast else "not of 2000::/3"


def literal(endpoint: Endpoint) -> list[ResolvedAddress]:
    """The address if the host is one, without asking anybody."""
    try:
        version = ip_address(endpoint.host).version
    except ValueError:
        return []
    if version == 6:
        return [ResolvedAddress(socket.AF_INET6, (endpoint.host, endpoint.port, 0, 0))]
    return [ResolvedAddress(socket.AF_INET, (endpoint.host, endpoint.port))]


def _resolve(endpoint: Endpoint, timeout: float) -> list[ResolvedAddress]:
    answers: queue.SimpleQueue[list[ResolvedAddress] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            answers.put([ResolvedAddress(family, sockaddr) for family, _, _, _, sockaddr in found])
        except (OSError, UnicodeError) as error:
            answers.put(error if isinstance(error, OSError) else OSError(str(error)))

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError("the name was not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    if not answer:
        raise OSError("the name has no address")
    return answer
