# Made from async_cluster.py by ./dev check --fix; change that one.
"""A Redis Cluster: connections to each primary, and the map of the slots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from typing import Any

import redis

from delayq.base.clock import SystemClock
from delayq.store.commands import Command
from delayq.store.connect.address import Address, Node
from delayq.store.connect.cluster_exchange import WHO, ClusterExchange, PrimaryLink, Routed, SlotMap, nobody
from delayq.store.connect.durability import BARRIERS, Durability
from delayq.store.connect.exchange import outdates
from delayq.store.connect.sentinel import ask, mode_of
from delayq.store.connect.server_state import Fault, ServerState, WrongKind
from delayq.store.connect.threads import Connection, Semaphore, Server, pause


def drop_idle(state: ServerState) -> None:
    """Close the idle connections to a server."""
    while (connection := state.lend()) is not None:
        connection.close()


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

    def run_many(self, commands: Iterable[Command[Any]], durability: Durability | None, until: float) -> list[Any]:
        """Run commands, sending ahead of the replies to each primary; an error stands in its command's place."""
        if os.getpid() != self._process:  # after a fork: the connections belong to the parent and its threads
            self._begin()
        exchange = ClusterExchange(commands, self._slots, durability, until)
        try:
            lease = self._free.acquire()
        except Fault as fault:
            return exchange.give_up(fault.error)
        try:
            if not self._slots.primaries and (unknown := self._refresh()) is not None:
                return exchange.give_up(unknown)
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
            return exchange.result()
        finally:
            for link in exchange.links.values():
                if link.waiting or link.connection.outdated:
                    link.connection.close()
                else:
                    link.state.idle.append(link.connection)
            self._free.release(lease)

    def _round(self, exchange: ClusterExchange) -> None:
        for node, routed in exchange.to_send():
            link = exchange.links.get(node) or self._open(exchange, node, routed)
            if link is None:
                continue
            try:
                for packed in link.to_send(routed):
                    link.connection.send(packed)
                    while link.full:
                        self._receive(exchange, link)
            except Fault as fault:
                self._lose(exchange, link, fault.error)
        for _ in range(BARRIERS if exchange.durability is not None else 1):
            self._each(exchange, self._send_rest)
            self._each(exchange, self._drain)

    def _each(self, exchange: ClusterExchange, step: Callable[[ClusterExchange, PrimaryLink], None]) -> None:
        for link in list(exchange.links.values()):
            try:
                step(exchange, link)
            except Fault as fault:
                self._lose(exchange, link, fault.error)

    def _send_rest(self, _spread: ClusterExchange, link: PrimaryLink) -> None:
        if packet := link.rest():
            link.connection.send(packet)

    def _drain(self, exchange: ClusterExchange, link: PrimaryLink) -> None:
        while link.waiting:
            self._receive(exchange, link)
        if link.wrong is not None:
            raise Fault(link.wrong)

    def _open(self, exchange: ClusterExchange, node: Node, routed: Routed) -> PrimaryLink | None:
        server, state = self._server(node)
        try:
            connection = state.lend() or server.connect()
        except Fault as fault:
            exchange.unreachable(node, routed, fault.error)
            return None
        connection.until = exchange.until
        link = exchange.links[node] = PrimaryLink(node, connection, state, exchange.durability)
        return link

    def _lose(self, exchange: ClusterExchange, link: PrimaryLink, error: Exception) -> None:
        if outdates(error):
            self._server(link.node)[0].outdate()
        link.connection.close()
        drop_idle(link.state)
        exchange.lost(link, error)

    def _receive(self, exchange: ClusterExchange, link: PrimaryLink) -> None:
        if (again := exchange.answered(link, link.connection.receive())) is not None:
            link.connection.send(again)

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
                    reply = self._ask(node)
                except Fault as fault:
                    last = fault.error
                    continue
                if reply:
                    self._slots.take(reply, node)
                    return None
            return nobody(tried, last)
        finally:
            self._asking.release(lease)

    def _ask(self, node: Node) -> Any:
        server, _ = self._server(node)
        connection = server.connect()
        try:
            return ask(connection, *WHO)
        except Fault as fault:
            if not isinstance(fault.error, redis.exceptions.ConnectionError):
                mode = mode_of(connection)
                if mode not in ("", "cluster"):
                    raise Fault(WrongKind.of(mode, self._address.scheme)) from None
            raise
        finally:
            connection.close()

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
