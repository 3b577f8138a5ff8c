"""A Redis Cluster, from threads: connections to each primary, and the map of the slots."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from typing import Any

import redis
from hiredis import pack_command

from delayq.clock import Clock, SystemClock
from delayq.store.commands import Command
from delayq.store.connect.address import Address, Node
from delayq.store.connect.cluster_exchange import ASKING, NO_PLACE, Lane, Spread, Way, nobody
from delayq.store.connect.durability import BARRIERS, Durability
from delayq.store.connect.exchange import FAULTS, connection_options, words_of
from delayq.store.connect.peer import Peer
from delayq.store.connect.slots import WHO, SlotMap

__all__ = ["Cluster"]


class _Pool:
    """The idle connections to one server, and what is known of it."""

    def __init__(self, url: str, timeout: float) -> None:
        self._factory = redis.ConnectionPool.from_url(url, **connection_options(url, timeout))
        self._idle: list[Any] = []
        self.peer = Peer(timeout)

    def check(self) -> None:
        """Refuse options that redis-py does not know, by a ValueError or TypeError."""
        self._factory.make_connection()  # it connects to nothing yet

    def fresh(self) -> Any:
        """A new connection; raises what redis-py does."""
        connection = self._factory.make_connection()
        connection.connect()
        return connection

    def take(self) -> Any:
        """An idle connection, or a new one; raises what redis-py does."""
        try:
            return self._idle.pop()
        except IndexError:
            return self.fresh()

    def give(self, connection: Any) -> None:
        """Nothing is on its way on it."""
        self._idle.append(connection)

    def drop_idle(self) -> None:
        """Close the idle ones."""
        with suppress(IndexError):  # other threads take and drop them too
            while True:
                self._idle.pop().disconnect()


class Cluster:
    """Runs commands on the primaries of a cluster, pipelined to each; see `Store`."""

    def __init__(
        self, address: Address, *, timeout: float, connections: int, flags: bool, clock: Clock | None = None
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._flags = flags
        self._clock = clock if clock is not None else SystemClock()
        self._slots = SlotMap(address.nodes)
        self._pools: dict[Node, _Pool] = {}
        self._pool(address.nodes[0]).check()
        self._connections = connections
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(connections)
        self._asking = threading.Lock()
        self._pause = threading.Condition()
        self._turn = 0

    def _pool(self, node: Node) -> _Pool:
        pool = self._pools.get(node)
        if pool is None:
            pool = self._pools.setdefault(node, _Pool(self._address.url_of(node), self._timeout))
        return pool

    def run_many(self, commands: Iterable[Command[Any]], durability: Durability | None) -> list[Any]:
        """Run commands, sending ahead of the replies to each primary; an error stands in its command's place."""
        if os.getpid() != self._process:  # after a fork: what there is belongs to the parent and its threads
            self._process = os.getpid()
            self._pools = {}
            self._free = threading.BoundedSemaphore(self._connections)
            self._asking = threading.Lock()
        spread = Spread(commands, self._slots, durability)
        if not self._free.acquire(timeout=self._timeout):
            return spread.give_up(redis.exceptions.ConnectionError("no connection became free in time"))
        try:
            if not self._slots.primaries and (error := self._refresh()) is not None:
                return spread.give_up(error)
            end = self._clock.monotonic() + self._timeout * 1000
            self._round(spread)
            while spread.waiting and self._clock.monotonic() < end and (pause := spread.next_round()) is not None:
                if pause:
                    with self._pause:
                        self._clock.wait(self._pause, pause * 1000)
                if spread.stale:
                    spread.stale = False
                    self._refresh(spread.trouble)
                self._round(spread)
            if spread.stale:
                self._refresh(spread.trouble)
            return spread.result()
        finally:
            for lane in spread.lanes.values():
                if lane.waiting:
                    lane.connection.disconnect()
                else:
                    self._pool(lane.node).give(lane.connection)
            self._free.release()

    def _round(self, spread: Spread) -> None:
        for node, way in spread.to_send():
            lane = spread.lanes.get(node) or self._open(spread, node, way)
            if lane is None:
                continue
            try:
                for one in lane.with_time(way):
                    self._send(lane, one)
                    while lane.full:
                        self._receive(spread, lane)
            except FAULTS as error:
                self._lose(spread, lane, error)
        for _ in range(BARRIERS if spread.durability is not None else 1):
            self._each(spread, self._send_barriers)
            self._each(spread, self._drain)

    def _each(self, spread: Spread, step: Callable[[Spread, Lane], None]) -> None:
        for lane in list(spread.lanes.values()):
            try:
                step(spread, lane)
            except FAULTS as error:
                self._lose(spread, lane, error)

    def _send_barriers(self, _spread: Spread, lane: Lane) -> None:
        for command in lane.barriers():
            self._send(lane, Way(NO_PLACE, command))

    def _drain(self, spread: Spread, lane: Lane) -> None:
        while lane.waiting:
            self._receive(spread, lane)

    def _open(self, spread: Spread, node: Node, way: Way) -> Lane | None:
        pool = self._pool(node)
        try:
            connection = pool.take()
        except FAULTS as error:
            spread.unreachable(node, way, error)
            return None
        lane = spread.lanes[node] = Lane(node, connection, pool.peer, spread.durability)
        return lane

    def _lose(self, spread: Spread, lane: Lane, error: Exception) -> None:
        lane.connection.disconnect()
        self._pool(lane.node).drop_idle()
        spread.lost(lane, error)

    def _send(self, lane: Lane, way: Way) -> None:
        words = pack_command(words_of(way.command, self._flags, lane.peer))
        if way.asking:
            lane.sent(Way(NO_PLACE, ASKING), 0)
            words = pack_command(("ASKING",)) + words
        lane.sent(way, len(words))
        lane.connection.send_packed_command((words,), check_health=False)

    def _receive(self, spread: Spread, lane: Lane) -> None:
        try:
            reply = lane.connection.read_response(disconnect_on_error=True)
        except redis.exceptions.ResponseError as error:
            if (again := spread.refused(lane, error)) is not None:
                self._send(lane, again)
        else:
            spread.answered(lane, reply)

    def _refresh(self, trouble: Set[Node] = frozenset()) -> Exception | None:
        """Ask the servers one by one who serves which slot, those in trouble last; the last error if none knows."""
        seen = self._slots.version
        if not self._asking.acquire(timeout=self._timeout):
            return nobody((), TimeoutError("another thread is asking"))
        try:
            if self._slots.version != seen:  # another thread has asked meanwhile
                return None
            tried = sorted(self._slots.to_ask(), key=lambda node: node in trouble)
            last: Exception | None = None
            for node in tried:
                try:
                    reply = self._ask(node)
                except FAULTS as error:
                    last = error
                    continue
                if reply:
                    self._slots.take(reply, node)
                    return None
            return nobody(tried, last)
        finally:
            self._asking.release()

    def _ask(self, node: Node) -> Any:
        connection = self._pool(node).fresh()
        try:
            connection.send_packed_command((pack_command(WHO),), check_health=False)
            return connection.read_response()
        finally:
            connection.disconnect()

    def make_connection(self) -> Any:
        """A connection to any server, each time to the next one: all of them pass on what is published.

        Raises StoreUnavailable.
        """
        if not self._slots.primaries and (error := self._refresh()) is not None:
            raise error
        nodes = self._slots.to_ask()
        last: Exception | None = None
        for _ in nodes:
            self._turn += 1
            try:
                return self._pool(nodes[self._turn % len(nodes)]).fresh()
            except FAULTS as error:
                last = error
        raise nobody(nodes, last)

    def close(self) -> None:
        """Close the idle connections."""
        for pool in list(self._pools.values()):
            pool.drop_idle()
