"""A client that does the least that a delivery takes: it knows all messages, and sends what is due as plain commands.

What falls due in one ms goes in one packet over a plain socket, and with it whatever became due while the client waited
for the answers before. Arguments: the server's port, and a file that `write` wrote.
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

from benchmarks.errors import BenchmarkError
from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.running.limit import Placed, drain
from delayq import Message
from delayq.store.keys import queue_keys

__all__ = ["Packet", "deliver", "write"]

_CHUNK: Final = 1 << 16


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """What falls due in one ms (Unix): its commands, and how many they are."""

    due: int
    commands: bytes
    replies: int


def write(path: Path, messages: Sequence[Message], placed: Sequence[Placed]) -> None:
    """Write the packets of messages that `limit.write_schedule` has placed."""
    dues = [message.expect_date or 0 for message in messages]
    packets = []
    for due, positions in groupby(sorted(range(len(dues)), key=dues.__getitem__), key=dues.__getitem__):
        commands = []
        for position in positions:
            queue, id = placed[position]
            commands += drain(messages[position], queue_keys(queue), id)
        packets.append(Packet(due, b"".join(commands), len(commands)))
    path.write_bytes(msgspec.msgpack.encode(packets))


def deliver(connection: socket.socket, packets: Sequence[Packet]) -> None:
    """Send each packet when it is due, and never earlier."""
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
    """Deliver what stands in the file."""
    port, path = sys.argv[1:]
    packets = msgspec.msgpack.decode(Path(path).read_bytes(), type=list[Packet])
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deliver(connection, packets)


if __name__ == "__main__":
    main()
