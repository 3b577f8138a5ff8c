"""A relay for each pair of processes. It passes on bytes of any protocol, and breaks on command."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from delayq.embedded.processes import LOCALHOST
from tests.support.proxy import CHUNK, Link, Proxy


class _Road(Proxy):
    """One port, and the port that it leads to."""

    def __init__(self, to: int) -> None:
        super().__init__((LOCALHOST, to))
        self.mode = "pass"

    def link(self, client: socket.socket) -> Link:
        return _Link(self, client)

    def act(self, action: str) -> None:
        """Break, or heal: what was swallowed is lost, so those connections are reset. See KINDS of faults."""
        if action == "reset" or (action == "pass" and self.mode in ("hole", "mute")):
            self.reset()
        if action == "reset":
            return
        self.mode = action
        if action == "refuse":
            self.refuse()
        else:
            self.heal()


class _Link(Link):
    def __init__(self, road: _Road, client: socket.socket) -> None:
        super().__init__(road, client)
        self._road = road

    def _requests(self, server: socket.socket) -> None:
        while data := self._client.recv(CHUNK):
            if self._road.mode != "hole":
                server.sendall(data)

    def _replies(self, server: socket.socket) -> None:
        while data := server.recv(CHUNK):
            if self._road.mode not in ("hole", "mute"):
                self._client.sendall(data)


class Relays:
    """`to` maps names to ports; `address(name)` leads there through the road of this name."""

    def __init__(self, to: Mapping[str, int]) -> None:
        self._roads = {name: _Road(port) for name, port in to.items()}
        self._running = ExitStack()

    def address(self, name: str) -> str:
        """host:port."""
        return f"{LOCALHOST}:{self._roads[name].port}"

    def start(self) -> None:
        """Listen on every road."""
        for road in self._roads.values():
            self._running.enter_context(road)

    def tell(self, action: str, names: Sequence[str]) -> None:
        """Break or heal these; done when this returns."""
        for name in names:
            self._roads[name].act(action)

    def heal(self) -> None:
        """Pass everything on."""
        self.tell("pass", list(self._roads))

    def stop(self) -> None:
        """End every connection."""
        self._running.close()
