"""A bare client: the least work that a delivery takes. It knows all messages and their due times in advance.

It sleeps until the next due time and sends one packet over a plain socket, with everything that is due then. It has plain
commands for each message, or one call of `SCRIPT` for each queue that has due messages. Arguments: the server's port, and
the path of a `Handshake` from which it reads the packets.
"""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import hiredis
import msgspec

from benchmarks import BenchmarkError
from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.running.limit import Placed, command, drain
from benchmarks.running.processes import Handshake
from delayq import Message
from delayq.store.keys import queue_keys

_CHUNK: Final = 1 << 16

#: The smallest script that finds, appends and removes due messages: six calls for one message. The entry has the complete record;
#: the topic is at the place where `delayq.domain.codec` puts it.
SCRIPT: Final = b"""#!lua
local queue, pool = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local ids = redis.call('ZRANGE', queue, 0, time[1] * 1000 + math.floor(time[2] / 1000), 'BYSCORE')
if #ids == 0 then
  return 0
end
local records = redis.call('HMGET', pool, unpack(ids))
for i, record in ipairs(records) do
  local topic = string.sub(record, 36, 35 + string.byte(record, 23))
  redis.call('XADD', topic, '*', 'id', ids[i], 'record', record)
end
redis.call('ZREM', queue, unpack(ids))
redis.call('HDEL', pool, unpack(ids))
return #ids"""


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """The commands of the messages of one due time (Unix ms), and their number."""

    due: int
    commands: bytes
    replies: int


def plain(messages: Sequence[Message], placed: Sequence[Placed]) -> bytes:
    """The packets for messages of `limit.write_schedule`, with commands for each message."""
    return _packets(
        messages,
        lambda positions: [
            word
            for position in positions
            for word in drain(messages[position], queue_keys(placed[position][0]), placed[position][1])
        ],
    )


def by_script(messages: Sequence[Message], placed: Sequence[Placed]) -> bytes:
    """The packets that call a script for each queue; it finds, appends and removes the due messages."""
    sha = hashlib.sha1(SCRIPT).hexdigest().encode()
    keys = {queue: queue_keys(queue) for queue, _ in placed}
    calls = {
        queue: command(b"EVALSHA", sha, b"2", names.queue.encode(), names.pool.encode())
        for queue, names in keys.items()
    }
    return _packets(messages, lambda positions: [calls[queue] for queue in {placed[one][0] for one in positions}])


def _packets(messages: Sequence[Message], commands: Callable[[Sequence[int]], list[bytes]]) -> bytes:
    dues = [message.expect_date or 0 for message in messages]
    packets = []
    for due, positions in groupby(sorted(range(len(dues)), key=dues.__getitem__), key=dues.__getitem__):
        words = commands(list(positions))
        packets.append(Packet(due, b"".join(words), len(words)))
    return msgspec.msgpack.encode(packets)


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
