"""A client that does the least that a delivery takes: it knows all messages, and when there is something due.

What falls due in one ms goes in one packet over a plain socket, and with it whatever became due while the client waited
for the answers before: as plain commands of each message, or as a call of `SCRIPT` for each queue that has something due.
Arguments: the server's port, and the path of a `Handshake` by which it is told the packets.
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

from benchmarks.errors import BenchmarkError
from benchmarks.harness import now
from benchmarks.load.backlog import sleep_until
from benchmarks.load.handshake import Handshake
from benchmarks.running.limit import Placed, command, drain
from delayq import Message
from delayq.store.keys import queue_keys

__all__ = ["SCRIPT", "Packet", "by_script", "deliver", "plain"]

_CHUNK: Final = 1 << 16

#: Six calls for one message: the least by which a script may find what is due, append and remove it. The entry has the
#: record as it is; the topic stands in it where `delayq.codec` puts it.
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
    """What falls due in one ms (Unix): its commands, and how many they are."""

    due: int
    commands: bytes
    replies: int


def plain(messages: Sequence[Message], placed: Sequence[Placed]) -> bytes:
    """The packets of messages that `limit.write_schedule` has placed, each message by its own commands."""
    return _packets(
        messages,
        lambda positions: [
            word
            for position in positions
            for word in drain(messages[position], queue_keys(placed[position][0]), placed[position][1])
        ],
    )


def by_script(messages: Sequence[Message], placed: Sequence[Placed]) -> bytes:
    """The packets with which a script finds, appends and removes what is due of a queue."""
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
    """Deliver what it is told."""
    port, path = sys.argv[1:]
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deliver(connection, msgspec.msgpack.decode(Handshake(Path(path)).wait(), type=list[Packet]))


if __name__ == "__main__":
    main()
