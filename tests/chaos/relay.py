"""A process that passes bytes between the others, and breaks what it is told to break.

`python -m tests.chaos.relay '{"name": [port, to port], …}'` listens on the ports, and reads lines from its standard
input: an action and the names it is for. Each line is answered by one, when it is done.

tests/support/proxy.py can do more, because it reads every frame of Redis; this one knows no protocol, so that it does
for ZooKeeper too, and thousands of messages a second cost it little.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

from delayq.embedded.processes import LOCALHOST

__all__ = ["ACTIONS"]

#: See KINDS of faults; 'pass' ends them all.
ACTIONS = ("pass", "reset", "refuse", "hole", "mute")
_AT_ONCE = struct.pack("ii", 1, 0)


class Road:
    """One port, and the port that it leads to."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.mode = "pass"
        self.links: set[Link] = set()

    def act(self, action: str) -> None:
        """Break, or heal: what was swallowed is lost, so those connections are reset."""
        if action in ("reset", "refuse") or (action == "pass" and self.mode in ("hole", "mute")):
            for link in list(self.links):
                link.reset()
        if action != "reset":
            self.mode = action


class End(asyncio.Protocol):
    """One end of a link."""

    def __init__(self, link: Link, *, near: bool) -> None:
        self.link = link
        self.near = near
        self.transport: Any = None
        self.other: End | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.near:
            self.link.begin()

    def data_received(self, data: bytes) -> None:
        mode = self.link.road.mode
        if mode == "hole" or (mode == "mute" and not self.near):
            return
        if self.other is None:
            self.early.append(data)  # the far end is not there yet
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.reset()


class Link:
    """One connection, from both ends."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.near = End(self, near=True)
        self.far: End | None = None
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def begin(self) -> None:
        """The near end is there: go to the far one."""
        self.road.links.add(self)
        if self.road.mode == "refuse":
            self.reset()
        else:
            self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        far = End(self, near=False)
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, LOCALHOST, self.road.to)
        except OSError:
            self.reset()
            return
        if self._over:
            far.transport.abort()
            return
        self.far = far
        far.other, self.near.other = self.near, far
        far.transport.writelines(self.near.early)

    def reset(self) -> None:
        """RST to both ends."""
        self.road.links.discard(self)
        if self._over:
            return
        self._over = True
        for end in (self.near, self.far):
            if end is not None and end.transport is not None:
                with contextlib.suppress(OSError, AttributeError):
                    end.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                end.transport.abort()


async def serve(ports: Mapping[str, tuple[int, int]]) -> None:
    """Until the standard input ends."""
    loop = asyncio.get_running_loop()
    roads = {name: Road(to) for name, (_, to) in ports.items()}
    servers = [
        await loop.create_server(lambda road=roads[name]: Link(road).near, LOCALHOST, port)  # type: ignore[misc]  # a default, so that each has its own
        for name, (port, _) in ports.items()
    ]
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    print("ready", flush=True)
    while line := await words.readline():
        action, *names = line.decode().split()
        for name in names:
            roads[name].act(action)
        print("done", flush=True)
    for server in servers:
        server.close()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(json.loads(sys.argv[1])))
    else:
        uvloop.run(serve(json.loads(sys.argv[1])))
