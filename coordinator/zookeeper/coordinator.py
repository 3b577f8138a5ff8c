"""The coordinator on ZooKeeper: a node registers, reads which other nodes have, and computes which queues are its own."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

import structlog

from coordinator.assignment import preferred
from coordinator.epoch import Claim
from coordinator.errors import CoordinatorError, CoordinatorRefused
from coordinator.zookeeper.access import OPEN, Access
from coordinator.zookeeper.membership import decode, fault_of, taking_part
from coordinator.zookeeper.node_entry import OwnEntry
from coordinator.zookeeper.owner_znodes import OwnerZnodes
from coordinator.zookeeper.session import Session, Znode
from delayq.base.clock import Clock
from delayq.base.errors import ConfigError
from delayq.store.connect.store import Store

#: ms between two reads of everything (10 % more or less), so that a missed watch has an effect for 2 s at most.
REREAD: Final = 2_000
#: A second client connects when the first one has been away for so many session timeouts.
AWAY: Final = 2
log = structlog.get_logger()


class ZooKeeperCoordinator:
    """Spreads the queues over all live nodes. The old owner of a queue releases it before the new owner claims it.

    Each node has an ephemeral entry (`<root>/nodes/<node>`) and an ephemeral owner znode for each queue that it owns
    (`<root>/owners/<queue>`). The assignment is valid only until the next sign of trouble. From then on this node keeps
    the queues that it owned last. Redis decides which node may pull. After the session has ended, no queue is assigned
    until this node is registered under a new session, or ZooKeeper is away again.

    Watches and kazoo's states only wake this coordinator's own thread. That thread reads everything and notifies the node.
    """

    def __init__(
        self,
        hosts: str,
        node: str,
        *,
        queues: Collection[int],
        store: Store,
        clock: Clock,
        read_era: Callable[[], int],
        root: str = "/delayq",
        session_timeout: int = 4_000,
        address: str = "",
        access: Access = OPEN,
    ) -> None:
        if not node or "/" in node or node in (".", ".."):
            raise ConfigError(f"DELAYQ_NODE: {node!r} cannot be a name in ZooKeeper; choose one without a slash")
        self._hosts = hosts
        self._access = access
        self._name = node
        self._queues = frozenset(queues)
        self._clock = clock
        self._timeout = session_timeout
        self._nodes = f"{root}/nodes"
        self._owners = f"{root}/owners"
        self._entry = OwnEntry(root, node, address, session_timeout, clock)
        self._owned = OwnerZnodes(self._owners, node, store, clock, read_era)
        self._changed: Callable[[], None] = lambda: None
        self._away_since: int | None = None
        self._refusal = ""  # the last one that was logged
        self._spare: Session | None = None
        self._thread = threading.Thread(target=self._run, name="zookeeper", daemon=True)
        self._condition = threading.Condition()  # of the fields below; never held during a call
        self._session: Session | None = None
        self._chosen: dict[int, str] = {}  # who should own each queue
        self._fault = ""  # why this node gets no queues
        self._current = False  # the assignment was computed, and nothing has failed since
        self._registered = False
        self._breaks = 0  # of the connection
        self._states: list[str] = []  # reported by kazoo and not logged yet
        self._woken = False
        self._must_notify = False
        self._stopping = False

    # -- what the node calls -------------------------------------------------------------------------------------------

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this, in the coordinator's thread, when the node should do a round at once."""
        self._changed = changed

    def share(self, queues: Collection[int]) -> None:
        """Use this list of all queues. The nodes read it one by one, and agree within seconds."""
        self._queues = frozenset(queues)
        self._wake()

    def start(self) -> None:
        """Connect and register; raises CoordinatorError if ZooKeeper is away. Call it again then."""
        if self._session is not None or self._stopping:
            return
        session = self._session = Session(self._hosts, self._timeout, self._state_changed, self._access)
        try:
            session.open()
            self._look(session)
        except CoordinatorError:
            self._session = None
            session.close()
            raise
        self._thread.start()

    def assigned(self) -> frozenset[int]:
        """The queues that this node should own, whether or not another node still does."""
        with self._condition:
            registered, current, mine = self._registered, self._current, self._mine
            session = None if self._stopping else self._session
        if session is None or (session.connected and not registered):
            return frozenset()
        return self._owned.assignable(mine) if registered and current else self._owned.kept(self._queues)

    def reason(self, queue: int) -> str:
        """Why a queue is not assigned to this node."""
        with self._condition:
            registered, chosen, fault = self._registered, self._chosen.get(queue), self._fault
        if queue not in self._queues:
            return "the queue no longer exists"
        if not registered:
            return "this node's session with ZooKeeper is over"
        if absence := self._owned.absence(queue):
            return absence
        return f"{chosen or 'another node'} is to have it{': ' if fault else ''}{fault}"

    def claim(self, queue: int) -> Claim | None:
        """Claim a queue; None while another node owns it. Raises StoreError and CoordinatorError."""
        session = self._connected()
        with self._condition:
            current = self._current
        return self._owned.claim(session, queue, self._owner_gone) if current else self._owned.claim_kept(queue)

    def fenced(self, queue: int, epoch: str) -> None:
        """Note that a newer epoch exists. If this node is still the owner, its next claim gets a higher one."""
        self._owned.fenced(queue)

    def release(self, queue: int, epoch: str) -> None:
        """Give a queue back, so that the next owner can claim it at once."""
        if self._session is not None and self._owned.release(self._session, queue):
            self._wake(notify=True)

    def redis_reachable(self, reachable: bool, *, behind: bool = False) -> None:
        """Publish in this node's entry whether it reaches Redis, and whether its clock is behind."""
        if self._entry.record(reachable, behind):
            self._wake()

    @property
    def connected(self) -> bool:
        """Whether this node is registered under a live session."""
        session = self._session
        return session is not None and session.connected and self._registered

    def stop(self) -> None:
        """Leave: close the session. ZooKeeper removes its entry and owner znodes together."""
        with self._condition:
            self._stopping = True
            self._registered = False
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join(self._timeout / 1000)
        if self._session is not None:
            self._entry.stopped(self._session)
            self._session.close()

    # -- called in kazoo's threads, so these must not block --------------------------------------------------------------

    def _state_changed(self, session: Session, state: str) -> None:
        with self._condition:
            if session is not self._session or self._stopping:
                return
            if state != "CONNECTED":
                self._breaks += 1
                self._current = False
            if state == "LOST":
                self._registered = False
                self._entry.lost()
                self._owned.lost()
            self._states.append(state.lower())
        self._wake(notify=state != "SUSPENDED")

    def _node_changed(self, event: Any) -> None:
        self._wake()

    def _owner_gone(self, event: Any) -> None:
        self._wake(notify=True)

    def _wake(self, notify: bool = False) -> None:
        with self._condition:
            self._woken = True
            self._must_notify = self._must_notify or notify
            self._condition.notify_all()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._woken and not self._stopping:
                    self._clock.wait(self._condition, REREAD * random.uniform(0.9, 1.1))
                if self._stopping:
                    break
                self._woken = False
                states, self._states = self._states, []
            for state in states:
                log.info("zookeeper", state=state)
            try:
                self._renew(self._connected())
                self._look(self._connected())
                self._refusal = ""
            except CoordinatorError as error:
                self._mark_outdated()
                self._log_refusal(error)
            except Exception:
                self._mark_outdated()
                log.exception("look_failed")
            self._notify_node()
        self._drop_spare()

    def _mark_outdated(self) -> None:
        """Note that the assignment may be outdated, and have the node look."""
        with self._condition:
            self._must_notify = self._must_notify or self._current
            self._current = False

    def _log_refusal(self, error: CoordinatorError) -> None:
        """Log each new refusal. The states of the connection are logged elsewhere."""
        if not isinstance(error, CoordinatorRefused):
            log.debug("zookeeper_away", error=str(error))
        elif str(error) != self._refusal:
            self._refusal = str(error)
            log.error("zookeeper_refused", error=self._refusal)

    def _notify_node(self) -> None:
        with self._condition:
            notify, self._must_notify = self._must_notify, False
        if notify:
            try:
                self._changed()
            except Exception:
                log.exception("changed_failed")

    def _connected(self) -> Session:
        if self._session is None or self._stopping:
            raise CoordinatorError("this node has not joined, or has left")
        return self._session

    def _renew(self, session: Session) -> None:
        """Replace a client that does not reconnect although ZooKeeper answers.

        Its thread may have died. Or ZooKeeper lost its data, and now refuses clients with a later transaction than its own.
        So a second client connects. If it succeeds and the first one still has no connection at the next look, it replaces it.
        """
        now = self._clock.monotonic()
        if session.connected:
            self._away_since = None
            self._drop_spare()
        elif self._away_since is None:
            self._away_since = now
        elif now - self._away_since < AWAY * self._timeout:
            return
        elif self._spare is None:
            self._spare = Session(self._hosts, self._timeout, self._state_changed, self._access)
            try:
                self._spare.open()
            except CoordinatorError:
                self._drop_spare()
                raise
        elif self._spare.connected:
            log.warning("zookeeper_client_replaced")
            with self._condition:
                self._session, self._spare = self._spare, None
                self._breaks += 1
                self._registered = False
                self._must_notify = True
            self._owned.lost()
            session.close()

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def _look(self, session: Session) -> None:
        """Register if needed, read all nodes and owners, and compute the queues of this node."""
        with self._condition:
            breaks = self._breaks
        if not self._entry.register(session, self._node_changed):
            with self._condition:
                self._must_notify = self._must_notify or self._registered
                self._registered = False
            return
        nodes = session.below(self._nodes, self._node_changed, self._node_changed)
        entries = {name: decode(node.data) for name, node in nodes.items()}
        owners = self._read_owners(session)
        if self._name not in nodes or not nodes[self._name].ours:
            self._wake()  # the entry was removed after it was registered
            return
        names = {queue: node.data.decode(errors="replace") for queue, node in owners.items()}
        members = taking_part(entries)
        chosen = preferred(self._queues, members, names)
        mine = frozenset(queue for queue, name in chosen.items() if name == self._name)
        found = self._owned.tidy(session, owners, mine)
        with self._condition:
            if breaks != self._breaks or self._stopping:
                return  # these answers may belong to a session that has ended
            known = self._registered and self._current
            self._must_notify = self._must_notify or found or not known or mine != self._mine
            self._chosen = chosen
            self._fault = "" if self._name in members else fault_of(entries[self._name])
            self._current = self._registered = True

    @property
    def _mine(self) -> frozenset[int]:
        return frozenset(queue for queue, name in self._chosen.items() if name == self._name)

    def _read_owners(self, session: Session) -> dict[int, Znode]:
        paths = {self._owned.path(queue): queue for queue in self._queues}
        return {paths[path]: node for path, node in session.read(paths).items()}
