"""The owner znodes of one node: their claims and releases, and the epochs that come from them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from coordinator.epoch import Claim, draw_owner, epoch_text
from coordinator.errors import CoordinatorError
from coordinator.zookeeper.session import Session, Watch, Znode
from delayq.base.clock import Clock
from delayq.store import commands
from delayq.store.connect.store import Store

#: ms for which this node leaves a queue alone after Redis refused its epochs. The time doubles each time.
FIRST_HOLD: Final = 1_000
LONGEST_HOLD: Final = 15_000
#: Attempts to create or read an owner znode that other nodes remove meanwhile.
LOOKS: Final = 3
log = structlog.get_logger()


class OwnerZnodes:
    """The number of an epoch is the czxid of the queue's owner znode, so each new owner has a higher epoch.

    A queue is *held* from its claim to its release. A held queue whose znode is gone is *stale*. It must not be claimed
    again before its pull job has ended, so it is not assigned until it is released.

    While ZooKeeper is away, no node can claim a queue there. So a node may go on with a queue that it claimed last, even if
    it has released the queue. It uses the epoch of that claim, and Redis refuses it if there is a newer one.
    """

    def __init__(self, folder: str, node: str, store: Store, clock: Clock, read_era: Callable[[], int]) -> None:
        self._folder = folder
        self._node = node.encode()
        self._store = store
        self._clock = clock
        self._read_era = read_era
        self._era: int | None = None
        self._drawn = draw_owner()  # a ZooKeeper that lost its data may give an old number to another node
        self._turn = threading.Lock()  # one change of owner znodes at a time: two threads make them
        self._lock = threading.Lock()  # of the fields below; never held during a call
        self._held: set[int] = set()
        self._epochs: dict[int, str] = {}  # the last epoch of this node, by queue
        self._stale: set[int] = set()
        self._fenced: set[int] = set()
        self._holds: dict[int, tuple[int, int]] = {}  # by queue: end of the hold (monotonic ms), and its length
        self._logged = False

    def path(self, queue: int) -> str:
        """The path of a queue's owner znode."""
        return f"{self._folder}/{queue}"

    def assignable(self, queues: Iterable[int]) -> frozenset[int]:
        """The queues of this list that do not wait for their release or for the end of a hold."""
        now = self._clock.monotonic()
        with self._lock:
            held_off = {queue for queue, (until, _) in self._holds.items() if until > now}
            return frozenset(queues) - self._stale - held_off

    def kept(self, queues: Iterable[int]) -> frozenset[int]:
        """The queues of this list that this node claimed last, as far as it knows."""
        with self._lock:
            return frozenset(queues) & (self._epochs.keys() - self._stale - self._fenced)

    def absence(self, queue: int) -> str:
        """Why an assigned queue is not assignable now; '' if it is."""
        with self._lock:
            if queue in self._stale:
                return "its owner znode is no longer this node's"
            hold = self._holds.get(queue)
            return "Redis refuses the epochs of this ZooKeeper" if hold and hold[0] > self._clock.monotonic() else ""

    def claim_kept(self, queue: int) -> Claim | None:
        """Own a kept queue without ZooKeeper, under its last epoch; None if it is not kept or Redis has a newer epoch.

        Raises StoreError.
        """
        with self._turn:
            if not self.kept([queue]):
                return None
            epoch = self._epochs[queue]
            claimed = self._store.run(commands.claim(self._store.keys.queue(queue), epoch))
            with self._lock:
                if not claimed.ok:
                    self._fenced.add(queue)
                    return None
                self._held.add(queue)
            return Claim(queue, epoch, claimed.parked)

    def claim(self, session: Session, queue: int, gone: Watch) -> Claim | None:
        """Claim a queue; None if another node owns it (`gone` is called when that ends), or if Redis refuses the epochs."""
        with self._turn:
            if not self.assignable([queue]):
                return None
            with self._lock:
                renew = queue in self._fenced
            while True:
                node = self._own(session, queue, renew, gone)
                if node is None:
                    return None
                if renew or self._era is None:
                    self._era = self._read_era()
                epoch = epoch_text(self._era, node.czxid, self._drawn)
                claimed = self._store.run(commands.claim(self._store.keys.queue(queue), epoch))
                if claimed.ok:
                    self._accepted(queue, epoch)
                    return Claim(queue, claimed.epoch, claimed.parked)
                if renew:
                    self._refused(session, queue)
                    return None
                renew = True  # there is another era or a higher number: try once with a new znode, which has a higher number

    def fenced(self, queue: int) -> None:
        """Note that a newer epoch exists. If the znode still belongs to this node, the next claim replaces it."""
        with self._lock:
            self._fenced.add(queue)

    def release(self, session: Session, queue: int) -> bool:
        """Give a queue back. True if the queue was stale, or if `tidy` has to give it back later."""
        with self._lock:
            news = queue in self._stale
            self._held.discard(queue)
            self._stale.discard(queue)
        try:
            with self._turn:
                self._disown(session, queue)
        except CoordinatorError as error:
            log.debug("release_later", queue=queue, error=str(error))
            news = True
        return news

    def lost(self) -> None:
        """Note that the session has ended. ZooKeeper removed all its owner znodes."""
        with self._lock:
            self._stale |= self._held

    def tidy(self, session: Session, seen: Mapping[int, Znode], assigned: frozenset[int]) -> bool:
        """Remove znodes of queues that this node does not work on; True if a held queue has no znode, so that it is stale.

        A claim or a release may have changed the znodes after they were `seen`. So each doubtful one is read again.
        """
        with self._lock:
            orphans = {queue for queue, node in seen.items() if node.ours} - self._held - assigned
            doubtful = {queue for queue in self._held - self._stale if queue not in seen or not seen[queue].ours}
        found = False
        for queue in sorted(orphans | doubtful):
            with self._turn:
                with self._lock:
                    held = queue in self._held
                if not held:
                    self._disown(session, queue)
                    continue
                node = session.look(self.path(queue))
                if node is None or not node.ours:
                    found = True
                    with self._lock:
                        self._stale.add(queue)
        return found

    def _own(self, session: Session, queue: int, renew: bool, gone: Watch) -> Znode | None:
        """Create or find this node's owner znode. It may exist because the reply to an earlier attempt was lost."""
        path = self.path(queue)
        if renew:
            self._disown(session, queue)
        for _ in range(LOOKS):
            node = session.create(path, self._node) or session.look(path, watch=gone)
            if node is not None:
                return node if node.ours else None
        return None

    def _disown(self, session: Session, queue: int) -> None:
        node = session.look(self.path(queue))
        if node is not None and node.ours:
            session.delete(self.path(queue))

    def _accepted(self, queue: int, epoch: str) -> None:
        with self._lock:
            self._held.add(queue)
            self._epochs[queue] = epoch
            self._stale.discard(queue)
            self._fenced.discard(queue)
            self._holds.pop(queue, None)
            self._logged = self._logged and bool(self._holds)

    def _refused(self, session: Session, queue: int) -> None:
        with self._lock:
            before = self._holds[queue][1] if queue in self._holds else FIRST_HOLD // 2
            hold = min(2 * before, LONGEST_HOLD)
            self._holds[queue] = (self._clock.monotonic() + hold, hold)
            self._fenced.discard(queue)
            logged, self._logged = self._logged, True
        if not logged:
            log.error(
                "epochs_refused",
                queue=queue,
                hint="Redis knows higher epochs than this ZooKeeper gives: it was wiped, or another coordinator was "
                "used before. Run `delayq era bump`.",
            )
        self._disown(session, queue)
