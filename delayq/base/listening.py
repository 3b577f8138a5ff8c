"""Listening sockets: one meaning of `DELAYQ_API_HOST` for the API and for the port of a worker."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any, Final

from delayq.base.errors import ConfigError

#: Every address of the machine, of IPv6 and of IPv4.
ANY: Final = ("", "::")
BACKLOG: Final = 2_048
#: Errors of a system without IPv6, and of an address of another machine.
_ABSENT: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def shown(host: str, port: int) -> str:
    """Return the address for people, such as `[::]:8080`."""
    host = host or "::"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int, setting: str) -> list[socket.socket]:
    """Return a socket for each address of the host, all on one port. `setting` is the variable of the port.

    '' and '::' mean every IPv6 and IPv4 address of the machine, and '0.0.0.0' every IPv4 address. A name means all of
    its addresses on this machine. Port 0 is a free one. Raises ConfigError in one sentence.
    """
    found: list[socket.socket] = []
    absent: OSError | None = None
    with contextlib.ExitStack() as undo:
        for family, address in _addresses(host):
            try:
                one = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    # One socket for each family, so that an IPv4 caller has an IPv4 address.
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address[0], port, *address[2:]))
                one.listen(BACKLOG)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise ConfigError(f"{setting}: cannot listen on {shown(host, port)}: {_words(error)}") from None
                absent = error
                continue
            one.setblocking(False)
            port = one.getsockname()[1]
            found.append(one)
        if not found:
            assert absent is not None
            raise ConfigError(f"DELAYQ_API_HOST: cannot listen on {shown(host, port)}: {_words(absent)}")
        undo.pop_all()
    return found


def _addresses(host: str) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    if host in ANY:
        return [(socket.AF_INET6, ("::", 0, 0, 0)), (socket.AF_INET, ("0.0.0.0", 0))]
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"DELAYQ_API_HOST: {host!r} is not an address or a known name: {_words(error)}") from None
    return [(family, address) for family, _, _, _, address in infos]


def _words(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error)
    return text[:1].lower() + text[1:]
