"""Plans that cancel messages, reschedule them and deliver them now.

A caller with rights on some topics reads each message first (`look`) and passes its topic. A script changes the message
only if its topic is still the same. So the caller learns nothing about other messages and changes none of them, even if
an id is used again in between. Without topics, every message may be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import msgspec

from delayq.base.errors import InvalidMessage, StoreError
from delayq.base.times import Duration, Instant
from delayq.client.audit import Action, By, changed_by, entry_of, name_of
from delayq.client.looking.explain import held_by
from delayq.client.looking.messages import look, look_in_steps, mark_held, topic_of
from delayq.client.plan import Context, Plan, by_asked_id
from delayq.domain.message import Limits, Message, State, check_id, level_delay
from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import MOVED, Command, Found, Retention
from delayq.store.connect.exchange import all_good
from delayq.store.keys import QueueKeys

T = TypeVar("T")

#: The topic of each id when the message was read; '' for an id that has ended.
Topics = Mapping[str, str]


#: The reason why a message was not changed, by the result, as the predicate of a sentence.
REFUSALS: Final = {
    State.IN_FLIGHT: "is due or was in flight before, so its due time can no longer be changed",
    State.PARKED: "is due and waits for its target, so its due time can no longer be changed",
    State.HELD: "is held",
    State.DELIVERED: "has been delivered",
    State.CANCELLED: "was cancelled",
    State.REMOVED_IN_FLIGHT: "was cancelled when it may have been delivered",
    State.DISCARDED: "was deleted as a dead letter",
    State.DEAD: "is a dead letter; redrive or discard it",
}


class Cancelled(msgspec.Struct, frozen=True):
    """The result of a cancel: 'cancelled', 'inFlight', 'delivered', 'dead', 'discarded' or 'notFound'."""

    id: str
    result: str


class Rescheduled(msgspec.Struct, frozen=True):
    """The result of a new due time: 'scheduled' with that time (Unix ms) and the queue, or the state that prevented it."""

    id: str
    result: str
    due: int | None = None
    queue: int | None = None
    reason: str | None = None  # the pause or limit that holds it

    @property
    def refusal(self) -> str:
        """Return why the due time was not changed, as the predicate of a sentence."""
        return REFUSALS.get(self.result, self.result) if self.reason is None else f"is held: {self.reason}"


def cancel(
    context: Context, ids: Sequence[str], topics: Topics | None = None, by: By | None = None
) -> Plan[list[Cancelled | StoreError]]:
    """Cancel messages by id and return the results in order. The audit names `by`, if it is given."""
    ask = asks_by_id(context, partial(commands.cancel, by=name_of(by)), "cancel", topics, by)
    for id in ids:
        check_id(id)
    results = yield from by_asked_id(context, ids, ask, is_elsewhere, lambda answer: answer == "notFound")
    return [result if isinstance(result := results[id], StoreError) else Cancelled(id, result) for id in ids]


class _Change(Protocol[T]):
    """A command that changes messages by id."""

    def __call__(
        self,
        keys: QueueKeys,
        ids: list[str],
        *,
        topics: list[str] | None,
        entry: str,
        changed: list[str] | None,
        retention: Retention,
    ) -> Command[T]: ...


def asks_by_id(
    context: Context, change: _Change[T], action: Action, topics: Topics | None, by: By | None
) -> Callable[[QueueKeys, list[str], list[str]], Command[T]]:
    """Return what makes the commands of a change for `by_asked_id`, with the entry of the audit that names `by`."""
    entry = entry_of(by, action, context.retention)

    def ask(keys: QueueKeys, chunk: list[str], given: list[str]) -> Command[T]:
        seen = _seen_topics(topics, given)
        return change(keys, chunk, topics=seen, entry=entry, changed=changed_by(by), retention=context.retention)

    return ask


def is_elsewhere(answer: str) -> bool:
    """Whether the queue is closed, so that the next layout has to be asked."""
    return answer == MOVED


def _seen_topics(topics: Topics | None, ids: Sequence[str]) -> list[str] | None:
    """The topics that the caller saw, by the order of the ids; None if any topic may be changed."""
    return None if topics is None else [topics[id] for id in ids]


def spec_of(
    limits: Limits, now: int, delay_time: Duration | None, expect_date: Instant | None, delay_level: int | None
) -> str:
    """The new due time as scripts read it; raises InvalidMessage."""
    asked = Message(topic="t", delay_time=delay_time, expect_date=expect_date, delay_level=delay_level)
    asked.validate(limits, now)
    if asked.expect_date is not None:
        return f"a{asked.expect_date}"
    delay = asked.delay_time
    return f"r{delay if delay is not None else level_delay(limits.delay_levels, delay_level)}"


def reschedule(
    context: Context, id: str, spec: str, topic: str | None = None, by: By | None = None, call: str = ""
) -> Plan[Rescheduled]:
    """Give a message another due time; with `topic`, only if the message has this topic.

    Here and elsewhere, a repeated `call` gets the first answer as long as the id is known. Without it, no call is remembered.
    """
    entry = entry_of(by, "reschedule", context.retention)
    check_id(id)

    def ask(keys: QueueKeys, chunk: list[str], _given: list[str]) -> Command[list[Rescheduled]]:
        command = commands.reschedule(
            keys,
            chunk[0],
            spec,
            topic=topic,
            call=call,
            entry=entry,
            changed=changed_by(by),
            retention=context.retention,
        )

        def read(reply: Any) -> list[Rescheduled]:
            result, due = command.read(reply)
            return [Rescheduled(chunk[0], result, due, keys.number)]

        return Command(command.script, command.keys, command.args, read)

    answers = yield from by_asked_id(
        context, [id], ask, lambda answer: answer.result == MOVED, lambda answer: answer.result == "notFound"
    )
    rescheduled: Rescheduled = _one(list(answers.values()))
    if rescheduled.result == "invalid":
        raise InvalidMessage("delayTime", "is too far in the future")
    if rescheduled.result != State.PARKED:
        return rescheduled
    try:
        found = yield from mark_held(context.keys, all_good(list((yield from look(context, [id])).values())))
    except StoreError:  # the script has answered: an error now must not hide its result
        return rescheduled
    if found[0] is None or found[0].state != State.HELD:
        return rescheduled
    held = msgspec.structs.replace(rescheduled, result=State.HELD)
    explained: list[Rescheduled] = yield from _with_what_holds(context, [held], found)
    return explained[0]


def _one(answers: list[Any]) -> Any:
    (answer,) = all_good(answers)
    return answer


def deliver_now(
    context: Context,
    ids: Sequence[str],
    topics: Topics | None = None,
    *,
    force: bool = False,
    by: By | None = None,
    call: str = "",
) -> Plan[list[Rescheduled | StoreError]]:
    """Deliver messages now and return the results in order; with `force` also held ones, in spite of pauses and limits.

    The result is 'scheduled' also for a message that is due already, and 'inFlight' for one that may be on its way.
    """
    entry = entry_of(by, "deliverNow", context.retention)
    for id in ids:
        check_id(id)
    found = yield from look_in_steps(context, ids)

    def ask(keys: QueueKeys, chunk: list[str], given: list[str]) -> Command[list[Rescheduled]]:
        held = sorted({topic for id in given if (topic := topic_of(found[id])) is not None})
        command = commands.deliver_now(
            keys,
            chunk,
            force=force,
            held=held,
            topics=_seen_topics(topics, given),
            call=call,
            entry=entry,
            changed=changed_by(by),
            retention=context.retention,
        )

        def read(reply: Any) -> list[Rescheduled]:
            results = zip(chunk, command.read(reply), strict=True)
            return [Rescheduled(id, result, due, keys.number) for id, (result, due) in results]

        return Command(command.script, command.keys, command.args, read)

    results = yield from by_asked_id(
        context, ids, ask, lambda answer: answer.result == MOVED, lambda answer: answer.result == "notFound"
    )
    return (yield from _with_what_holds(context, [results[id] for id in ids], [found[id] for id in ids]))


def _with_what_holds(
    context: Context, results: list[Any], found: Sequence[Found | StoreError | None]
) -> Plan[list[Any]]:
    """Add to each held message what holds it; `found` has the messages as they were read before."""
    held = [place for place, one in enumerate(results) if isinstance(one, Rescheduled) and one.result == State.HELD]
    if held:
        (stand,) = yield [commands.policies(context.keys)]
        if isinstance(stand, StoreError):  # the others are delivered: an error now must not hide that
            return results
        policies = Policies.read(stand)
        for place in held:
            pause = policies.pause(topic_of(found[place]) or "")
            results[place] = msgspec.structs.replace(results[place], reason=held_by(pause))
    return results
