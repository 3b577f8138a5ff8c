"""One owner's time with a queue: what is the same for everything that is done in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from delayq.clock import Clock
from delayq.policies import NO_POLICIES, Policies
from delayq.routes import Routes
from delayq.store.commands import Retention
from delayq.store.connect.store import Store
from delayq.store.keys import QueueKeys
from workers.limits.asking import NodeLimits
from workers.queue.census import Pace
from workers.sending.backoff import Backoff
from workers.sending.observer import Observer
from workers.sending.sender import Sender

if TYPE_CHECKING:
    from workers.sending.spans import Spans

__all__ = ["Bounds", "CurrentPolicies", "Incarnation", "QueueContext"]


class Incarnation:
    """By which name scripts know an owner: its epoch, and how often it has gone on without having heard from Redis."""

    __slots__ = ("_count", "epoch", "name")

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._count = 0
        self.name = ""
        self.go_on()

    def go_on(self) -> None:
        """Go on though nobody knows what became of what was sent: should it arrive later, it is to do nothing."""
        self._count += 1
        self.name = f"{self.epoch}#{self._count:010}"


class CurrentPolicies:
    """The policies that a node goes by: its pull jobs act on `current`, and report queues that have another version."""

    __slots__ = ("_hurry", "ahead", "current")

    def __init__(self, hurry: Callable[[], None] = lambda: None) -> None:
        self.current: Policies = NO_POLICIES
        self.ahead = ""  # the latest other version that was found in a queue since they were read last
        self._hurry = hurry

    def report_version(self, version: str) -> None:
        """Have the policies read at once: a queue has another version than `current`."""
        if version > self.ahead:
            self.ahead = version
            self._hurry()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How a node treats its messages; counts are messages, times ms.

    The messages of a queue that are in flight weigh at most `window` together, and those of a route its share of that. A message
    weighs 1, and 1 more for each 16 KiB: `window_bytes` / `window`.
    """

    window: int = 2_000
    window_bytes: int = 32 * 1024 * 1024
    look: int = 500
    max_attempts: int = 16
    backoff: Backoff = Backoff()
    stuck_after: int = 60_000


class QueueContext(msgspec.Struct, frozen=True, kw_only=True):
    """A queue under one epoch. `senders` are by route; a route without one is a stream in the same Redis."""

    keys: QueueKeys
    incarnation: Incarnation
    store: Store
    clock: Clock
    bounds: Bounds
    retention: Retention
    routes: Routes
    senders: Mapping[str, Sender]
    observer: Observer | None = None
    spans: Spans | None = None
    policies: CurrentPolicies = msgspec.field(default_factory=CurrentPolicies)
    limits: NodeLimits
    pace: Pace | None = None  # of the census; without it none is taken
    may_send: Callable[[], bool] = lambda: True  # whether this worker may begin a send now
