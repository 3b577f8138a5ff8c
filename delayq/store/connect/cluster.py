# Made from async_cluster.py by ./dev check --fix; change that one.
"""A Redis Cluster: connections to each primary, and the map of the slots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from typing import Any

from delayq.base.clock import SystemClock
from delayq.store.commands import Command
from delayq.store.connect.address import Address, Node
from delayq.store.connect.cluster_exchange import WHO, ClusterExchange, SlotMap, nobody
from delayq.store.connect.durability import BARRIERS, Durability
from delayq.store.connect.exchange import Exchange, outdates
from delayq.store.connect.link import Link, Sent
from delayq.store.connect.sentinel import ask_once
from delayq.store.connect.server_state import Fault, ServerState
from delayq.store.connect.threads import Connection, Semaphore, Server, pause


def drop_idle(state: ServerState) -> None:
    """Close the idle connections to a server."""
    while (connection := state.lend()) is not None:
        connection.close()


def receive(exchange: Exchange, link: Link) -> None:
    """Read the next reply, and send what it requires. Raises Fault."""
    if (again := exchange.answered(link, link.connection.receive())) is not None:
        link.connection.send(again)


def send(exchange: Exchange, link: Link, packets: Iterable[bytes]) -> None:
    """Send packets, and read replies before another one if there are too many. Raises Fault."""
    for packet in packets:
        link.connection.send(packet)
        while link.full:
            receive(exchange, link)


def send_rest(_exchange: Exchange, link: Link) -> None:
    """Send what waits for other commands. Raises Fault."""
    if packet := link.rest():
        link.connection.send(packet)


def drain(exchange: Exchange, link: Link) -> None:
    """Read all replies. Raises Fault, also if the server is the wrong one."""
    while link.waiting:
        receive(exchange, link)
    if link.wrong is not None:
        raise Fault(link.wrong)


class Cluster:
    """Runs commands on the primaries of a cluster, pipelined to each; see `Store`."""

    def __init__(self, address: Address, *, timeout: float, connections: int) -> None:
        self._address = address
        self._timeout = timeout
        self._connections = connections
        self._clock = SystemClock()
        self._slots = SlotMap(address.nodes)
        self._servers: dict[Node, tuple[Server, ServerState]] = {}
        self._begin()

    def _begin(self) -> None:
        self._servers = {}
        self._free = Semaphore(self._connections, self._timeout)
        self._asking = Semaphore(1, self._timeout)
        self._turn = 0
        self._process = os.getpid()  # last: another thread that reads it continues with this state

    def _server(self, node: Node) -> tuple[Server, ServerState]:
        found = self._servers.get(node)
        if found is None:
            made = Server(self._address.url_of(node), self._timeout), ServerState(self._timeout)
            found = self._servers.setdefault(node, made)
        return found

    @property
    def states(self) -> list[ServerState]:
        """The servers that it has connected to."""
        return [state for _, state in list(self._servers.values())]

    def run(self, commands: Iterable[Command[Any]], durability: Durability | None, until: float) -> ClusterExchange:
        """Run commands, sending ahead of the replies to each primary; an error stands in its command's place."""
        if os.getpid() != self._process:  # after a fork: the connections belong to the parent and its threads
            self._begin()
        exchange = ClusterExchange(commands, self._slots, durability, until)
        try:
            lease = self._free.acquire()
        except Fault as fault:
            exchange.give_up(fault.error)
            return exchange
        try:
            if not self._slots.primaries and (unknown := self._refresh()) is not None:
                exchange.give_up(unknown)
                return exchange
            end = self._clock.monotonic() + self._timeout * 1000
            self._round(exchange)
            while exchange.waiting and self._clock.monotonic() < end and (seconds := exchange.next_round()) is not None:
                if seconds:
                    pause(seconds)
                if exchange.stale:
                    exchange.stale = False
                    self._refresh(exchange.trouble)
                self._round(exchange)
            if exchange.stale:
                self._refresh(exchange.trouble)
            return exchange
        finally:
            for link in exchange.links.values():
                if link.waiting or link.connection.outdated:
                    link.connection.close()
                else:
                    link.state.idle.append(link.connection)
            self._free.release(lease)

    def _round(self, exchange: ClusterExchange) -> None:
        for node, sent in exchange.to_send():
            link = exchange.links.get(node) or self._open(exchange, node, sent)
            if link is None:
                continue
            try:
                send(exchange, link, link.to_send((sent,)))
            except Fault as fault:
                self._lose(exchange, link, fault.error)
        for _ in range(BARRIERS if exchange.durability is not None else 1):
            self._each(exchange, send_rest)
            self._each(exchange, drain)

    def _each(self, exchange: ClusterExchange, step: Callable[[Exchange, Link], None]) -> None:
        for link in list(exchange.links.values()):
            try:
                step(exchange, link)
            except Fault as fault:
                self._lose(exchange, link, fault.error)

    def _open(self, exchange: ClusterExchange, node: Node, sent: Sent) -> Link | None:
        server, state = self._server(node)
        try:
            connection = state.lend() or server.connect()
        except Fault as fault:
            exchange.unreachable(node, sent, fault.error)
            return None
        connection.until = exchange.until
        link = exchange.links[node] = Link(connection, state, exchange.durability, node)
        return link

    def _lose(self, exchange: ClusterExchange, link: Link, error: Exception) -> None:
        assert link.node is not None
        if outdates(error):
            self._server(link.node)[0].outdate()
        link.connection.close()
        drop_idle(link.state)
        exchange.lost(link, error)

    def _refresh(self, trouble: Set[Node] = frozenset()) -> Exception | None:
        """Ask the servers one by one for the map of slots, those with faults last. Returns the last error if none
        answers.
        """
        seen = self._slots.version
        try:
            lease = self._asking.acquire()
        except Fault as fault:  # another task is asking
            return nobody((), fault.error)
        try:
            if self._slots.version != seen:  # another task has asked meanwhile
                return None
            tried = sorted(self._slots.to_ask(), key=lambda node: node in trouble)
            last: Exception | None = None
            for node in tried:
                try:
                    reply = ask_once(self._server(node)[0], self._address, *WHO)
                except Fault as fault:
                    last = fault.error
                    continue
                if reply:
                    self._slots.take(reply, node)
                    return None
            return nobody(tried, last)
        finally:
            self._asking.release(lease)

    def server_of(self, key: str) -> Node | None:
        """Return the primary of a key, as far as it is known."""
        return self._slots.node_of(key)

    def connect(self) -> Connection:
        """Return a connection to any server, in turn: all of them pass on published messages. Raises Fault."""
        if not self._slots.primaries and (error := self._refresh()) is not None:
            raise Fault(error)
        nodes = self._slots.to_ask()
        last: Exception | None = None
        for _ in nodes:
            self._turn += 1
            try:
                server, _ = self._server(nodes[self._turn % len(nodes)])
                return server.connect()
            except Fault as fault:
                last = fault.error
        raise Fault(nobody(nodes, last))
