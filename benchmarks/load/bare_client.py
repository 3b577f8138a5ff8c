"""A bare client: the least work that a delivery takes. It knows all messages and their due times in advance.

It sleeps until the next due time and sends one packet over a plain socket, with everything that is due then. Arguments:
the server's port, and the path of a `Handshake` from which it reads the packets.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import hiredis
import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.running.limit import Placed, drain
from benchmarks.running.processes import Handshake
from delayq import Message
from delayq.store.keys import KEYS

_CHUNK: Final = 1 << 16


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """The commands of the messages of one due time (Unix ms), and their number."""

    due: int
    commands: bytes
    replies: int


def packets(messages: Sequence[Message], placed: Sequence[Placed]) -> bytes:
    """The packets for messages of `limit.write_schedule`."""
    dues = [message.expect_date or 0 for message in messages]
    found = []
    for due, positions in groupby(sorted(range(len(dues)), key=dues.__getitem__), key=dues.__getitem__):
        words = [
            word
            for position in positions
            for word in drain(messages[position], KEYS.queue(placed[position][0]), placed[position][1])
        ]
        found.append(Packet(due, b"".join(words), len(words)))
    return msgspec.msgpack.encode(found)


def deliver(connection: socket.socket, packets: Sequence[Packet]) -> None:
    """Send each packet at its due time, never earlier."""
    reader = hiredis.Reader(notEnoughData=Ellipsis)
    position = 0
    while position < len(packets):
        sleep_until(packets[position].due)
        first, moment = position, now()
        while position < len(packets) and packets[position].due <= moment:
            position += 1
        connection.sendall(b"".join(packet.commands for packet in packets[first:position]))
        _read(connection, reader, sum(packet.replies for packet in packets[first:position]))


def _read(connection: socket.socket, reader: hiredis.Reader, replies: int) -> None:
    while replies:
        chunk = connection.recv(_CHUNK)
        if not chunk:
            raise BenchmarkError("the server closed the connection")
        reader.feed(chunk)
        while (reply := reader.gets()) is not Ellipsis:
            if isinstance(reply, Exception):
                raise BenchmarkError(f"the server answered {reply}")
            replies -= 1


def main() -> None:
    """Deliver the packets of the handshake."""
    port, path = sys.argv[1:]
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deliver(connection, msgspec.msgpack.decode(Handshake(Path(path)).wait(), type=list[Packet]))


if __name__ == "__main__":
    main()
