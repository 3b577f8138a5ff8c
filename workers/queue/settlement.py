"""What becomes of messages: by `sort` when they were pulled, by `judge` when they were sent; and what of it Redis has yet
to be told.

That is kept over an outage of Redis and told first when it is back; telling it twice is harmless.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from delayq.policies import NO_POLICY, Policies
from delayq.routes import Route
from delayq.store import commands
from delayq.store.commands import AsPulled, Command, Now
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.queue.queue_context import Bounds, QueueContext
from workers.sending.message import InFlightMessage

__all__ = [
    "ACK",
    "Ack",
    "Bury",
    "Corrupt",
    "Destination",
    "Outcome",
    "Park",
    "Retry",
    "Settlement",
    "Step",
    "judge",
    "sort",
]

CHUNK = 500


class Ack(msgspec.Struct, frozen=True):
    """It was forwarded: Redis forgets it."""


class Retry(msgspec.Struct, frozen=True):
    """A failed attempt is counted. It is tried again at `due`; None keeps its due, and it backs off for `pause` ms."""

    due: int | None
    pause: int


class Bury(msgspec.Struct, frozen=True):
    """It is given up after one attempt more."""

    reason: str


class Park(msgspec.Struct, frozen=True):
    """It is set aside in the parked set of this name."""

    name: str


Outcome = Ack | Retry | Bury | Park
ACK = Ack()


class Destination(Enum):
    """Ways on that Redis need not be told of."""

    TO_TARGET = "to its target"
    PULL_ANEW = "pull it anew"
    AWAIT_PERMIT = "wait for a permit, by which a pull appends it"


def sort(
    message: InFlightMessage,
    now: int,
    *,
    targets: Container[str],
    refused: Mapping[tuple[str, str], str],
    parked: ParkedSets,
    lanes: Lanes,
    policies: Policies,
    to_park: Callable[[str], bool],
) -> Destination | Bury | Park:
    """Decide it by what is known: the routes that have a target, the streams that take nothing (and why), what is parked, what is
    about to be parked (`to_park`), and what else is in flight of the message's ordering key."""
    held = ParkedSet.of_topic(message.topic)
    # Others of its topic are about to stand there, and the next pull sets aside what comes behind them.
    if policies.limited and not message.by_force and to_park(held):
        return Park(held)
    route = message.route
    if route is None:
        return Park(ParkedSet.NO_ROUTE)
    if message.expired(now):
        return Bury("expired")
    if route.name not in targets:  # so its topic is a stream in the same Redis
        error = refused.get((route.name, route.stream_of(message.topic)))
        limited = policies.limited and not message.by_force and policies.bucket(message.topic) is not None
        if error is None and limited:
            return Destination.AWAIT_PERMIT
        if error is None:
            return Destination.PULL_ANEW  # the pull did not know of the stream; the next one is told
        if error.startswith("WRONGTYPE"):
            return Bury(f"the key {route.stream_of(message.topic)} is not a stream")
        return Park(ParkedSet.of_route(route.name))
    if message.record.keyed:
        lane = lanes.name(message)
        for name in (ParkedSet.of_route(route.name), lane):
            if parked.holds_up(name, message.place):
                return Park(name)
        if lanes.full(message):
            return Park(lane)
    return Destination.TO_TARGET


def judge(
    message: InFlightMessage,
    route: Route,
    result: Result,
    now: int,
    *,
    bounds: Bounds,
    policies: Policies,
    broken: bool,
    certain: bool,
) -> Ack | Retry | Bury | Park:
    """Decide it. `broken`: the target's circuit is open; `certain`: only the target can be at fault for what failed."""
    if result.outcome == "ok":
        return ACK
    if result.outcome == "rejected":
        return Bury(result.reason)
    spared = broken or message.probe or result.outcome == "full"
    # One that may have arrived, and may be at fault itself, burns an attempt in any case.
    if spared and (certain or result.outcome != "unknown"):
        return Park(ParkedSet.of_route(route.name))
    made = message.attempts + 1
    policy = policies.policy(message.topic) or NO_POLICY
    if made >= (message.record.max_attempts or policy.max_attempts or route.max_attempts or bounds.max_attempts):
        return Bury(f"gave up after {made} attempts: {result.reason}")
    if message.expired(now):
        return Bury("expired")
    wait = policy.backoff[:made][-1] if policy.backoff else bounds.backoff.delay(made)
    pause = max(wait, result.after)
    # With an ordering key the due stays, so that nothing of the key overtakes it.
    return Retry(None if message.record.keyed else now + pause, pause)


class Corrupt(msgspec.Struct, frozen=True):
    """A pulled message whose record cannot be read: it can only be buried, and is not in flight."""

    ticket: bytes
    score: int
    attempts: int
    digest: None = None
    index_keys: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """One command of a settlement: `outcome` is the kind of what it tells; `name` is the parked set if it parks."""

    outcome: type[Outcome]
    name: str
    entries: Sequence[tuple[Any, Any]]  # messages, each with its outcome
    command: Command[Any]

    @property
    def tickets(self) -> Iterator[bytes]:
        """The tickets that it settles."""
        return (message.ticket for message, _ in self.entries)


class Settlement:
    """Messages, each with its outcome, by the step that tells it; they are taken off once Redis has answered."""

    def __init__(self) -> None:
        self._untold = defaultdict[tuple[type[Outcome], str], list[tuple[Any, Any]]](list)
        # First: until it is told, what was forwarded would be forwarded by the next owner too.
        self._untold[Ack, ""] = []

    def __bool__(self) -> bool:
        return any(self._untold.values())

    @property
    def but_parkings(self) -> bool:
        """Whether there is anything that ends an attempt."""
        return any(untold for (outcome, _), untold in self._untold.items() if outcome is not Park)

    def to_park(self, name: str) -> Sequence[tuple[Any, Any]]:
        """What is yet to be parked under a name."""
        return self._untold.get((Park, name), ())

    @property
    def names(self) -> set[str]:
        """The parked sets in which something is yet to be parked."""
        return {name for (_, name), untold in self._untold.items() if name and untold}

    def add(self, message: AsPulled, outcome: Outcome) -> None:
        """Tell it in the next step."""
        self._untold[type(outcome), outcome.name if isinstance(outcome, Park) else ""].append((message, outcome))

    def keep_acks_only(self) -> None:
        """Forget the rest: it stays in the queue as it was."""
        for (outcome, _), untold in self._untold.items():
            if outcome is not Ack:
                untold.clear()

    def steps(self, context: QueueContext, now: Now) -> list[Step]:
        """The commands that tell it."""
        return [
            Step(outcome, name, some, _command(context, outcome, name, some, now))
            for (outcome, name), untold in self._untold.items()
            for some in (untold[start : start + CHUNK] for start in range(0, len(untold), CHUNK))
        ]

    def answered(self, step: Step) -> None:
        """Take off what Redis has answered. Steps are answered in the order in which they were made."""
        untold = self._untold[step.outcome, step.name]
        del untold[: len(step.entries)]
        if step.name and not untold:
            del self._untold[step.outcome, step.name]


def _command(
    context: QueueContext, outcome: type[Outcome], name: str, some: Sequence[tuple[Any, Any]], now: Now
) -> Command[Any]:
    keys, epoch = context.keys, context.incarnation.name
    messages = [message for message, _ in some]
    if outcome is Ack:
        return commands.ack(keys, epoch, messages, now=now, retention=context.retention)
    if outcome is Retry:
        return commands.retry(keys, epoch, [(message, retry.due) for message, retry in some])
    if outcome is Bury:
        buried = [(message, message.attempts + 1, bury.reason) for message, bury in some]
        return commands.bury(keys, epoch, buried, now=now)
    return commands.park(keys, epoch, name, messages)
