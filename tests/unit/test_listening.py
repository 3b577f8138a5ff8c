"""What DELAYQ_API_HOST means, for the API and for the port of a worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from delayq.base.errors import ConfigError
from delayq.base.listening import listen, shown
from tests.support.ipv6 import has_ipv6

PORT = "DELAYQ_API_PORT"


@contextmanager
def listening(host: str) -> Iterator[tuple[int, list[socket.socket]]]:
    sockets = listen(host, 0, PORT)
    try:
        yield sockets[0].getsockname()[1], sockets
    finally:
        for one in sockets:
            one.close()


def reaches(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port)):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here: switch it on (sysctl net.ipv6.conf.lo.disable_ipv6=0)")
@pytest.mark.parametrize(
    ("host", "four", "six"),
    [
        ("", True, True),
        ("::", True, True),
        ("0.0.0.0", True, False),
        ("127.0.0.1", True, False),
        ("::1", False, True),
        ("localhost", True, None),  # as the machine's own list of names has it
    ],
)
def test_an_address_means_these_addresses_on_one_port(host: str, four: bool, six: bool | None) -> None:
    with listening(host) as (port, sockets):
        assert {one.getsockname()[1] for one in sockets} == {port}
        assert reaches("127.0.0.1", port) is four
        assert six is None or reaches("::1", port) is six


def test_a_caller_by_ipv4_has_an_address_of_ipv4_also_where_both_are_listened_on() -> None:
    """One socket for both families would show it as ::ffff:127.0.0.1, and lock all of IPv4 out as one network."""
    with listening("::") as (port, sockets), socket.create_connection(("127.0.0.1", port)):
        accepting = next(one for one in sockets if one.family == socket.AF_INET)
        accepting.setblocking(True)
        accepted, address = accepting.accept()
        accepted.close()
        assert address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["", "::"])
def test_a_machine_without_ipv6_listens_on_ipv4(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without_ipv6(family: int = -1, *more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, *more)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    with listening(host) as (port, sockets):
        assert len(sockets) == 1
        monkeypatch.undo()
        assert reaches("127.0.0.1", port)


def test_what_cannot_be_listened_on_is_one_sentence() -> None:
    with listening("127.0.0.1") as (port, _):
        for host in ("127.0.0.1", "::", "", "0.0.0.0"):
            with pytest.raises(ConfigError, match=rf"^{PORT}: cannot listen on .*:{port}: address already in use$"):
                listen(host, port, PORT)
    for host in ("192.0.2.1", "2001:db8::1", "[::1]", "no such name", "a.invalid", "x" * 300, "."):
        with pytest.raises(ConfigError, match=r"^DELAYQ_API_HOST: "):
            listen(host, 0, PORT)
    assert [shown(host, 1) for host in ("", "::", "10.0.0.1")] == ["[::]:1", "[::]:1", "10.0.0.1:1"]
