"""The context of a queue under one epoch, which all parts of its pull job share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from delayq.base.clock import Clock
from delayq.domain.policies import NO_POLICIES, Policies
from delayq.domain.routes import Routes
from delayq.store.commands import Retention
from delayq.store.connect.store import Store
from delayq.store.keys import QueueKeys
from workers.limits.asking import NodeLimits
from workers.sending.backoff import Backoff
from workers.sending.observer import NO_OBSERVER, Observer
from workers.sending.sender import Sender

if TYPE_CHECKING:
    from workers.sending.spans import Spans


class Incarnation:
    """The name of an owner in scripts: its epoch, and a number that grows when a reply of Redis is lost."""

    __slots__ = ("_count", "epoch", "name")

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._count = 0
        self.name = ""
        self.advance()

    def advance(self) -> None:
        """Use the next number, because the result of commands is unknown. If they arrive later, Redis rejects them."""
        self._count += 1
        self.name = f"{self.epoch}#{self._count:010}"


class CurrentPolicies:
    """The policies of a node. Its pull jobs use `current`, and report queues that have another version."""

    __slots__ = ("_read_now", "ahead", "current")

    def __init__(self, read_now: Callable[[], None] = lambda: None) -> None:
        self.current: Policies = NO_POLICIES
        self.ahead = ""  # the latest version found in a queue after the last read
        self._read_now = read_now

    def report_version(self, version: str) -> None:
        """Note that a queue has another version than `current`, and have the policies read at once."""
        if version > self.ahead:
            self.ahead = version
            self._read_now()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a node for its messages. Counts are messages, times ms.

    The messages in flight of a queue weigh at most `window` together. Each route has a share of that. A message weighs 1, and
    1 more for each 16 KiB: `window_bytes` / `window`.
    """

    window: int = 2_000
    window_bytes: int = 32 * 1024 * 1024
    look: int = 500
    max_attempts: int = 16
    backoff: Backoff = Backoff()
    stuck_after: int = 60_000


class Pace:
    """Allows all queues of a node at most `rate` slices of a census a second. Each costs less than 1 ms."""

    def __init__(self, clock: Clock, rate: int = 10) -> None:
        self._clock = clock
        self._rate = rate
        self._left = float(rate)
        self._at = clock.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """True if a slice may be read now; it counts then."""
        with self._lock:
            now = self._clock.monotonic()
            self._left = min(self._rate, self._left + (now - self._at) * self._rate / 1_000)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class QueueContext(msgspec.Struct, frozen=True, kw_only=True):
    """A queue under one epoch. `senders` are by route. A route without a sender appends to streams in the same Redis."""

    keys: QueueKeys
    incarnation: Incarnation
    store: Store
    clock: Clock
    bounds: Bounds
    retention: Retention
    routes: Routes
    senders: Mapping[str, Sender]
    observer: Observer = NO_OBSERVER
    spans: Spans | None = None
    policies: CurrentPolicies = msgspec.field(default_factory=CurrentPolicies)
    limits: NodeLimits
    pace: Pace | None = None  # of the census; None means no census
    may_send: Callable[[], bool] = lambda: True  # whether this worker may begin a send now
