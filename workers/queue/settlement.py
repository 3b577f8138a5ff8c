"""The outcomes of messages: `sort` decides after a pull, `judge` after a send.

A settlement keeps the outcomes that Redis does not know. It survives an outage of Redis, and comes first when Redis is back.
Redis may safely receive an outcome twice.
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
    """The message was delivered, so Redis removes it."""


class Retry(msgspec.Struct, frozen=True):
    """An attempt failed. The next one is at `due`. If that is None, the due time stays, and the worker waits for `pause` ms."""

    due: int | None
    pause: int


class Bury(msgspec.Struct, frozen=True):
    """The message becomes a dead letter, with one more attempt."""

    reason: str


class Park(msgspec.Struct, frozen=True):
    """The message goes into the parked set of this name."""

    name: str


Outcome = Ack | Retry | Bury | Park
ACK = Ack()


class Destination(Enum):
    """The next step of a message whose place in Redis does not change."""

    TO_TARGET = "to its target"
    PULL_AGAIN = "pull it again"
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
    """Decide the next step of a pulled message.

    `targets` are routes with a sender, `refused` are streams that accept nothing, with the error. `to_park` returns whether
    messages are about to go into a parked set. `lanes` has the messages in flight of ordering keys.
    """
    held = ParkedSet.of_topic(message.topic)
    # Other messages of the topic are about to go there, and the next pull moves later ones there, too.
    if policies.limited and not message.by_force and to_park(held):
        return Park(held)
    route = message.route
    if route is None:
        return Park(ParkedSet.NO_ROUTE)
    if message.expired(now):
        return Bury("expired")
    if route.name not in targets:  # then its topic is a stream in the same Redis
        error = refused.get((route.name, route.stream_of(message.topic)))
        limited = policies.limited and not message.by_force and policies.bucket(message.topic) is not None
        if error is None and limited:
            return Destination.AWAIT_PERMIT
        if error is None:
            return Destination.PULL_AGAIN  # the pull did not know the stream, and the next one will
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
    """Decide the outcome of a send. `broken`: the circuit is open. `certain`: only the target can be at fault."""
    if result.outcome == "ok":
        return ACK
    if result.outcome == "rejected":
        return Bury(result.reason)
    spared = broken or message.probe or result.outcome == "full"
    # A message that may have arrived, and may be at fault itself, uses up an attempt in any case.
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
    # The due time of a message with an ordering key stays, so that no other message of the key overtakes it.
    return Retry(None if message.record.keyed else now + pause, pause)


class Corrupt(msgspec.Struct, frozen=True):
    """A pulled message whose record cannot be read: it can only be buried, and is not in flight."""

    ticket: bytes
    score: int
    attempts: int
    digest: None = None
    index_keys: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """One command of a settlement, with the kind of its outcomes, and the parked set if it parks."""

    outcome: type[Outcome]
    name: str
    entries: Sequence[tuple[Any, Any]]  # messages, each with its outcome
    command: Command[Any]

    @property
    def tickets(self) -> Iterator[bytes]:
        """The tickets that it settles."""
        return (message.ticket for message, _ in self.entries)


class Settlement:
    """The messages and outcomes that Redis does not know, by their step. They are removed when Redis has answered."""

    def __init__(self) -> None:
        self._unsent = defaultdict[tuple[type[Outcome], str], list[tuple[Any, Any]]](list)
        # Acks come first: without them, the next owner would deliver these messages again.
        self._unsent[Ack, ""] = []

    def __bool__(self) -> bool:
        return any(self._unsent.values())

    @property
    def but_parkings(self) -> bool:
        """Whether there is an outcome other than Park."""
        return any(unsent for (outcome, _), unsent in self._unsent.items() if outcome is not Park)

    def to_park(self, name: str) -> Sequence[tuple[Any, Any]]:
        """The messages that are about to go into a parked set."""
        return self._unsent.get((Park, name), ())

    @property
    def names(self) -> set[str]:
        """The names of parked sets that are about to get messages."""
        return {name for (_, name), unsent in self._unsent.items() if name and unsent}

    def add(self, message: AsPulled, outcome: Outcome) -> None:
        """Add an outcome to the next step."""
        self._unsent[type(outcome), outcome.name if isinstance(outcome, Park) else ""].append((message, outcome))

    def keep_acks_only(self) -> None:
        """Forget all other outcomes. Their messages stay in the queue, unchanged."""
        for (outcome, _), unsent in self._unsent.items():
            if outcome is not Ack:
                unsent.clear()

    def steps(self, context: QueueContext, now: Now) -> list[Step]:
        """Return the commands."""
        return [
            Step(outcome, name, some, _command(context, outcome, name, some, now))
            for (outcome, name), unsent in self._unsent.items()
            for some in (unsent[start : start + CHUNK] for start in range(0, len(unsent), CHUNK))
        ]

    def answered(self, step: Step) -> None:
        """Remove the outcomes of a step that Redis has answered. Steps are answered in their order."""
        unsent = self._unsent[step.outcome, step.name]
        del unsent[: len(step.entries)]
        if step.name and not unsent:
            del self._unsent[step.outcome, step.name]


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
