"""What goes over a socket until a deadline, and not behind it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from delayq.clock import SystemClock
from delayq.targets.writing import write_until
from delayq.testing import ManualClock

MANY = b"x" * 4_000_000  # more than a system keeps for who does not read


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def everything(theirs: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    parts = []
    while some := theirs.recv(1 << 16):
        parts.append(some)
    return b"".join(parts)


def test_all_of_it_goes_to_one_who_reads_slowly(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(everything(theirs)))
    reader.start()
    clock = SystemClock()
    write_until(ours, MANY, clock, clock.monotonic() + 30_000)
    ours.close()
    reader.join()
    assert read == [MANY]


def test_nothing_goes_when_the_time_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    clock = ManualClock()
    deadline = clock.monotonic() + 100
    clock.advance(100)
    with pytest.raises(TimeoutError):
        write_until(ours, b"late", clock, deadline)
    ours.close()
    assert everything(theirs) == b""


def test_what_does_not_go_in_time_goes_no_more_though_there_is_room_again(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair

    class StoodStill(ManualClock):
        """Stands still after the first write, and then it is late."""

        looks = 0

        def monotonic(self) -> int:
            self.looks += 1
            if self.looks == 3:
                taken.append(theirs.recv(len(MANY)))
                self.advance(1_000)
            return super().monotonic()

    taken: list[bytes] = []
    with pytest.raises(TimeoutError):
        write_until(ours, MANY, StoodStill(), ManualClock().monotonic() + 50)
    ours.close()
    assert taken and taken[0]
    assert 0 < len(taken[0]) + len(everything(theirs)) < len(MANY) // 2


def test_one_who_reads_nothing_is_waited_for_until_then(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    clock = SystemClock()
    with pytest.raises(TimeoutError):
        write_until(ours, MANY, clock, clock.monotonic() + 50)
