"""Nodes in play: each does what a worker's round does, without pulling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coordinator import Claim, CoordinatorError
from coordinator.zookeeper import ZooKeeperCoordinator
from coordinator.zookeeper.access import OPEN, Access
from delayq.base.clock import Clock
from delayq.store.connect.store import Store
from tests.support.timeouts import SESSION_TIMEOUT
from tests.support.waiting import eventually

QUEUES = 16
ERA = 3


class Player:
    """A node that looks only when its coordinator tells it to, so that nothing is found by chance."""

    def __init__(self, coordinator: ZooKeeperCoordinator) -> None:
        self.coordinator = coordinator
        self.held: dict[int, Claim] = {}
        self.told = threading.Event()
        coordinator.watch(self.told.set)

    def start(self) -> None:
        self.coordinator.start()
        self.round()

    def round(self) -> None:
        """What a node does in a round."""
        self.drop()
        for queue in sorted(self.coordinator.assigned() - self.held.keys()):
            claim = self.coordinator.claim(queue)
            if claim is not None:
                self.held[queue] = claim

    def drop(self) -> None:
        """End the jobs of queues that are not assigned any more."""
        for queue in sorted(self.held.keys() - self.coordinator.assigned()):
            self.coordinator.release(queue, self.held.pop(queue).epoch)

    def round_if_told(self) -> None:
        if self.told.is_set():
            self.told.clear()
            try:
                self.round()
            except CoordinatorError:  # a connection that was lost meanwhile: a node does its round again
                self.told.set()

    @property
    def queues(self) -> set[int]:
        return set(self.held)

    @property
    def epochs(self) -> dict[int, str]:
        return {queue: claim.epoch for queue, claim in self.held.items()}


class Team:
    """The nodes of one root of ZooKeeper and one Redis."""

    def __init__(self, hosts: str, root: str, store: Store, clock: Clock, access: Access = OPEN) -> None:
        self.hosts = hosts
        self.access = access
        self.root = root
        self.store = store
        self.clock = clock
        self.era = ERA
        self.players: list[Player] = []

    def make(self, name: str, hosts: str | None = None, session_timeout: int = SESSION_TIMEOUT) -> Player:
        """A node that has not started."""
        player = Player(
            ZooKeeperCoordinator(
                hosts or self.hosts,
                name,
                queues=range(QUEUES),
                store=self.store,
                clock=self.clock,
                read_era=lambda: self.era,
                root=self.root,
                session_timeout=session_timeout,
                address="127.0.0.1:1",
                access=self.access,
            )
        )
        self.players.append(player)
        return player

    def join(self, name: str, hosts: str | None = None, session_timeout: int = SESSION_TIMEOUT) -> Player:
        """A node that has started and claimed what it can."""
        player = self.make(name, hosts, session_timeout)
        player.start()
        return player

    def pair(self) -> tuple[Player, Player]:
        """Two nodes, `one` and `other`, that share the queues."""
        one, other = self.join("one"), self.join("other")
        self.settle(one, other)
        return one, other

    def until(self, look: Callable[[], object], what: str, *players: Player) -> None:
        """Let these players (all, if none is named) do a round whenever they are told to, until this is so."""

        def step() -> object:
            for player in players or self.players:
                player.round_if_told()
            return look()

        eventually(step, what)

    def settled(self, *players: Player) -> bool:
        """Whether these hold all queues between them, each one once, evenly."""
        counts = sorted(len(player.queues) for player in players)
        union = set().union(*(player.queues for player in players))
        return union == set(range(QUEUES)) and sum(counts) == QUEUES and counts[-1] - counts[0] <= 1

    def settle(self, *players: Player) -> None:
        """Until these hold all queues."""
        self.until(lambda: self.settled(*players), "all queues are held, evenly")


@contextmanager
def team(hosts: str, root: str, store: Store, clock: Clock) -> Iterator[Team]:
    """A team whose nodes are stopped at the end."""
    made = Team(hosts, root, store, clock)
    try:
        yield made
    finally:
        for player in made.players:
            player.coordinator.stop()
