"""A Redis Cluster: connections to each primary, and the map of the slots."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Any

from delayq.clock import SystemClock
from delayq.store.commands import Command
from delayq.store.connect.address import Address, Node
from delayq.store.connect.async_sentinel import ask
from delayq.store.connect.cluster_exchange import WHO, PrimaryLink, Routed, SlotMap, Spread, nobody
from delayq.store.connect.durability import BARRIERS, Durability
from delayq.store.connect.event_loop import Connection, Semaphore, Server, pause
from delayq.store.connect.exchange import outdates
from delayq.store.connect.peer import Fault, Peer

__all__ = ["AsyncCluster", "drop_idle"]


async def drop_idle(peer: Peer) -> None:
    """Close the connections to a server that nobody uses just now."""
    while (connection := peer.lend()) is not None:
        await connection.close()


class AsyncCluster:
    """Runs commands on the primaries of a cluster, pipelined to each; see `AsyncStore`."""

    def __init__(self, address: Address, *, timeout: float, connections: int) -> None:
        self._address = address
        self._timeout = timeout
        self._connections = connections
        self._clock = SystemClock()
        self._slots = SlotMap(address.nodes)
        self._servers: dict[Node, tuple[Server, Peer]] = {}
        self._begin()

    def _begin(self) -> None:
        self._servers = {}
        self._free = Semaphore(self._connections, self._timeout)
        self._asking = Semaphore(1, self._timeout)
        self._turn = 0
        self._process = os.getpid()  # last: another thread that sees it goes on with what is here

    def _server(self, node: Node) -> tuple[Server, Peer]:
        found = self._servers.get(node)
        if found is None:
            made = Server(self._address.url_of(node), self._timeout), Peer(self._timeout)
            found = self._servers.setdefault(node, made)
        return found

    @property
    def peers(self) -> list[Peer]:
        """The servers that it has talked to."""
        return [peer for _, peer in list(self._servers.values())]

    async def run_many(
        self, commands: Iterable[Command[Any]], durability: Durability | None, until: float
    ) -> list[Any]:
        """Run commands, sending ahead of the replies to each primary; an error stands in its command's place."""
        if os.getpid() != self._process:  # after a fork: what there is belongs to the parent and its threads
            self._begin()
        spread = Spread(commands, self._slots, durability, until)
        try:
            lease = await self._free.acquire()
        except Fault as fault:
            return spread.give_up(fault.error)
        try:
            if not self._slots.primaries and (unknown := await self._refresh()) is not None:
                return spread.give_up(unknown)
            end = self._clock.monotonic() + self._timeout * 1000
            await self._round(spread)
            while spread.waiting and self._clock.monotonic() < end and (seconds := spread.next_round()) is not None:
                if seconds:
                    await pause(seconds)
                if spread.stale:
                    spread.stale = False
                    await self._refresh(spread.trouble)
                await self._round(spread)
            if spread.stale:
                await self._refresh(spread.trouble)
            return spread.result()
        finally:
            for link in spread.links.values():
                if link.waiting or link.connection.outdated:
                    await link.connection.close()
                else:
                    link.peer.idle.append(link.connection)
            self._free.release(lease)

    async def _round(self, spread: Spread) -> None:
        for node, routed in spread.to_send():
            link = spread.links.get(node) or await self._open(spread, node, routed)
            if link is None:
                continue
            try:
                for packed in link.to_send(routed):
                    await link.connection.send(packed)
                    while link.full:
                        await self._receive(spread, link)
            except Fault as fault:
                await self._lose(spread, link, fault.error)
        for _ in range(BARRIERS if spread.durability is not None else 1):
            await self._each(spread, self._send_rest)
            await self._each(spread, self._drain)

    async def _each(self, spread: Spread, step: Callable[[Spread, PrimaryLink], Awaitable[None]]) -> None:
        for link in list(spread.links.values()):
            try:
                await step(spread, link)
            except Fault as fault:
                await self._lose(spread, link, fault.error)

    async def _send_rest(self, _spread: Spread, link: PrimaryLink) -> None:
        if packet := link.rest():
            await link.connection.send(packet)

    async def _drain(self, spread: Spread, link: PrimaryLink) -> None:
        while link.waiting:
            await self._receive(spread, link)
        if link.wrong is not None:
            raise Fault(link.wrong)

    async def _open(self, spread: Spread, node: Node, routed: Routed) -> PrimaryLink | None:
        server, peer = self._server(node)
        try:
            connection = peer.lend() or await server.connect()
        except Fault as fault:
            spread.unreachable(node, routed, fault.error)
            return None
        connection.until = spread.until
        link = spread.links[node] = PrimaryLink(node, connection, peer, spread.durability)
        return link

    async def _lose(self, spread: Spread, link: PrimaryLink, error: Exception) -> None:
        if outdates(error):
            self._server(link.node)[0].outdate()
        await link.connection.close()
        await drop_idle(link.peer)
        spread.lost(link, error)

    async def _receive(self, spread: Spread, link: PrimaryLink) -> None:
        if (again := spread.answered(link, await link.connection.receive())) is not None:
            await link.connection.send(again)

    async def _refresh(self, trouble: Set[Node] = frozenset()) -> Exception | None:
        """Ask the servers one by one who serves which slot, those in trouble last; the last error if none knows."""
        seen = self._slots.version
        try:
            lease = await self._asking.acquire()
        except Fault as fault:  # another one is asking
            return nobody((), fault.error)
        try:
            if self._slots.version != seen:  # another one has asked meanwhile
                return None
            tried = sorted(self._slots.to_ask(), key=lambda node: node in trouble)
            last: Exception | None = None
            for node in tried:
                try:
                    reply = await self._ask(node)
                except Fault as fault:
                    last = fault.error
                    continue
                if reply:
                    self._slots.take(reply, node)
                    return None
            return nobody(tried, last)
        finally:
            self._asking.release(lease)

    async def _ask(self, node: Node) -> Any:
        server, _ = self._server(node)
        connection = await server.connect()
        try:
            return await ask(connection, *WHO)
        finally:
            await connection.close()

    def server_of(self, key: str) -> Node | None:
        """The primary where a key lies, as far as is known."""
        return self._slots.node_of(key)

    async def connect(self) -> Connection:
        """A connection to any server, each time to the next one: all of them pass on what is published.

        Raises Fault.
        """
        if not self._slots.primaries and (error := await self._refresh()) is not None:
            raise Fault(error)
        nodes = self._slots.to_ask()
        last: Exception | None = None
        for _ in nodes:
            self._turn += 1
            try:
                server, _ = self._server(nodes[self._turn % len(nodes)])
                return await server.connect()
            except Fault as fault:
                last = fault.error
        raise Fault(nobody(nodes, last))
