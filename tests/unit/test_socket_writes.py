"""What goes over a socket until a deadline, and not behind it; in the clear and by TLS."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from delayq.base.clock import SystemClock
from delayq.base.socket_writes import RECORD, write_until
from delayq.testing import ManualClock
from tests.support.certificates import Authority

MANY = b"x" * 4_000_000  # more than a system keeps for who does not read


class Pair:
    """Two ends of a connection. What comes to the other one is read when that is told to."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.ours = ours
        self._theirs = theirs
        self.read = b""

    def everything(self) -> None:
        """Read all that comes until our end is closed."""
        with suppress(ssl.SSLError, ConnectionError):
            while some := self._theirs.recv(1 << 16):
                self.read += some


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    if request.param == "tls":
        authority = Authority(tmp_path)
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(authority.issue("server").both)
        client = ssl.create_default_context(cafile=str(authority.file))
        answering = server.wrap_socket(theirs, server_side=True, do_handshake_on_connect=False)
        shaking = threading.Thread(target=answering.do_handshake)
        shaking.start()
        ours, theirs = client.wrap_socket(ours, server_hostname="localhost"), answering
        shaking.join()
    with ours, theirs:
        yield Pair(ours, theirs)


class StandsStill(ManualClock):
    """After so many looks a second is gone."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def precise(self) -> float:
        if not self._left:
            self.advance(1_000)
        self._left -= 1
        return super().precise()


def test_all_of_it_goes_to_one_who_reads_slowly(pair: Pair) -> None:
    reader = threading.Thread(target=pair.everything)
    reader.start()
    clock = SystemClock()
    write_until(pair.ours, MANY, clock, clock.precise() + 30_000)
    pair.ours.close()
    reader.join()
    assert pair.read == MANY


def test_nothing_goes_when_the_time_is_over_and_before_each_piece_the_clock_is_looked_at(pair: Pair) -> None:
    for looks, data in ((0, b"late"), (1, MANY)):
        with pytest.raises(TimeoutError):
            write_until(pair.ours, data, StandsStill(looks), 1_000)
    pair.ours.close()
    pair.everything()
    most = RECORD if isinstance(pair.ours, ssl.SSLSocket) else len(MANY) // 2  # what the system takes at once
    assert 0 < len(pair.read) <= most
    assert b"late" not in pair.read


def test_what_did_not_go_in_time_goes_no_more_though_there_is_room_again(pair: Pair) -> None:
    pair.ours.settimeout(0)
    written = 0
    with suppress(BlockingIOError, ssl.SSLWantWriteError):
        while True:
            written += pair.ours.send(MANY[:RECORD])
    if isinstance(pair.ours, ssl.SSLSocket):
        written += RECORD  # it keeps the record that it was given, and goes on with it
    reader = threading.Thread(target=pair.everything)

    class Late(ManualClock):
        """Once somebody waits for room there is some, and it is late."""

        looks = 0

        def precise(self) -> float:
            self.looks += 1
            if self.looks == 2:
                reader.start()
                self.advance(1_000)
            return super().precise()

    with pytest.raises(TimeoutError):
        write_until(pair.ours, MANY, Late(), 50)
    pair.ours.close()
    reader.join()
    assert len(pair.read) <= written


def test_one_who_reads_nothing_is_waited_for_until_then(pair: Pair) -> None:
    clock = SystemClock()
    with pytest.raises(TimeoutError):
        write_until(pair.ours, MANY, clock, clock.precise() + 50)
