"""The outcomes of messages, as pure decisions: `sort` decides after a pull, `judge` after a send."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from enum import Enum

import msgspec

from delayq.domain.policies import NO_POLICY, Policies
from delayq.domain.routes import Route
from delayq.store.keys import ParkedSet
from delayq.targets import Result
from workers.queue.ordering import Lanes
from workers.queue.parked_sets import ParkedSets
from workers.queue.queue_context import Bounds
from workers.sending.message import InFlightMessage


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
