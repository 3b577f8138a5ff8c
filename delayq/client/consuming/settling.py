"""The plan that acknowledges, extends and hands back the messages that calls leased."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from delayq.base.errors import DelayqError, InvalidMessage, StoreError
from delayq.client.consuming.entries import message_of, why_foreign
from delayq.client.consuming.giving_up import GivenUp, bury
from delayq.client.consuming.groups import Consumer
from delayq.client.consuming.leases import LeaseRun, Wanted, parse
from delayq.client.consuming.streams import TopicStreams, streams_of_topic
from delayq.client.handshake import learn_policies
from delayq.client.plan import Context, Plan
from delayq.domain.policies import Policy
from delayq.store import commands
from delayq.store.commands import Command, Lease, Settled, StreamEntry

#: ms after which a message that was handed back is received again: RocketMQ's delay levels 3 to 18, the last one repeats.
HAND_BACK_DELAYS: Final = (
    10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
#: After so many hand-backs a message becomes a dead letter unless its policy differs.
MOST_HAND_BACKS: Final = 16
_DONE: Final = {"ack": "acknowledged", "extend": "extended", "back": "handedBack", "release": "released"}


class Settlement(msgspec.Struct, frozen=True):
    """The result of a change of a lease.

    It is 'acknowledged', 'extended', 'handedBack', 'released', 'dead', or 'lost' if this consumer does not hold the lease.
    `until` is when the lease or the pause ends (Unix ms).
    """

    result: str
    until: int | None = None


def hand_back_rules(policy: Policy) -> tuple[int, Sequence[int]]:
    """The most hand-backs of a message of the policy's topics, and the delay (ms) of each; the last delay repeats."""
    most = MOST_HAND_BACKS if policy.max_hand_backs is None else policy.max_hand_backs
    return most, policy.backoff or HAND_BACK_DELAYS


def settle(context: Context, consumer: Consumer, wanted: Sequence[Wanted]) -> Plan[list[Settlement | DelayqError]]:
    """Acknowledge, extend or hand back messages; a result for each, in order. A repeated call gets the same results."""
    streams = yield from streams_of_topic(context, consumer.topic)
    policy, backs = None, [change.ms or 0 for *_, change in wanted if change.kind == "back"]
    if not all(0 <= ms <= context.limits.horizon for ms in backs):
        raise InvalidMessage("delayTime", f"must be ms from 0 to {context.limits.horizon}, as of any message")
    if backs:
        yield from learn_policies(context)
        policy = context.policies.policy(consumer.topic)
    changes, unknown, refused = changes_of_leases(streams, consumer.group, wanted, policy)
    answers = yield [command for _, command in changes]
    results: list[Settlement | DelayqError] = [refused.get(at, Settlement("lost")) for at in range(len(wanted))]
    exhausted: dict[int, tuple[str, Lease, str]] = {}
    for (numbers, _), answer in zip(changes, answers, strict=True):
        for at, result in results_of(numbers, answer):
            if isinstance(result, StoreError):
                results[at] = result
            elif result.result == "unknown":
                unknown.append(at)
            elif result.result == "exhausted":
                ((run,), _) = parse([wanted[at]])
                exhausted[at] = streams.of_place(run.place) or "", run.act.lease, result.reasons
            else:
                results[at] = Settlement(_DONE[wanted[at][2].kind] if result.result == "ok" else "lost", result.until)
    if exhausted:
        yield from _bury_handed_back(context, consumer, exhausted, results)
    if unknown:
        (queues,) = yield [commands.group_queues(context.keys, streams.record(consumer.group).field)]
        here = queues if isinstance(queues, StoreError) else Settlement("notFound" if queues is None else "lost")
        for at in unknown:
            results[at] = here
    return results


def changes_of_leases(
    streams: TopicStreams, group: str, wanted: Sequence[Wanted], policy: Policy | None = None
) -> tuple[list[tuple[list[int], Command[list[Settled]]]], list[int], dict[int, InvalidMessage]]:
    """The changes of leases as commands, each with the numbers of its leases. Hand-backs need the policy.

    Also return the numbers of leases of other places, and of those that no call has received, and the refused leases.
    """
    by_stream, unknown = dict[str, list[LeaseRun]](), list[int]()
    runs, refused = parse(wanted)
    for run in runs:
        stream = streams.of_place(run.place)
        if stream and run.was_given:
            by_stream.setdefault(stream, []).append(run)
        else:
            unknown += run.numbers
    most, pauses = (MOST_HAND_BACKS, ()) if policy is None else hand_back_rules(policy)
    found = []
    for stream, runs in by_stream.items():
        acts, numbers = [run.act for run in runs], [at for run in runs for at in run.numbers]
        keys = streams.keys.consumers(stream, group)
        found.append((numbers, commands.settle_received(keys, group, acts, most_hand_backs=most, pauses=pauses)))
    return found, unknown, refused


def results_of(numbers: list[int], answer: list[Settled] | StoreError) -> Iterable[tuple[int, Settled | StoreError]]:
    """The results by number of the lease; an error is the result of all."""
    return zip(numbers, [answer] * len(numbers) if isinstance(answer, StoreError) else answer, strict=True)


def _bury_handed_back(
    context: Context,
    consumer: Consumer,
    exhausted: Mapping[int, tuple[str, Lease, str]],
    results: list[Settlement | DelayqError],
) -> Plan[None]:
    """Make messages that were handed back too often dead letters, with all reasons."""
    entries = yield [commands.stream_entry(stream, lease.entries) for stream, lease, _ in exhausted.values()]
    given: dict[int, GivenUp] = {}
    for (at, (stream, lease, reasons)), fields in zip(exhausted.items(), entries, strict=True):
        results[at] = fields if isinstance(fields, StoreError) else Settlement("lost")  # it was trimmed, or follows
        if isinstance(fields, dict) and not why_foreign(fields):
            message = message_of(consumer.group, "", StreamEntry(lease, 0, 0, True, "", fields))
            given[at] = GivenUp(stream, lease, message, reasons)
    dead = yield from bury(context, list(given.values()), consumer.reserved)
    for at, result in zip(given, dead, strict=True):
        # After an error the lease stays, and so does the message.
        results[at] = result if isinstance(result, DelayqError) else Settlement("dead")
