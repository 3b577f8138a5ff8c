"""Plans that hand back messages of any target: each is scheduled again under the next id of the same message.

The id comes from the message, the count of its hand-backs, and the topic to which it goes. So a repeated hand-back, and one
of a message that arrived twice, is the same call, also with another reason. Hand-backs to different topics never meet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from delayq.base.errors import Conflict, DelayqError, InvalidMessage, StoreError
from delayq.client.consuming.giving_up import Letter, give_up, text_or_bytes
from delayq.client.consuming.leases import reason_line
from delayq.client.consuming.settling import Settlement, hand_back_rules
from delayq.client.handshake import learn_policies, learn_routes
from delayq.client.looking.messages import look_by_complete_id, mark_held
from delayq.client.plan import Context, Plan
from delayq.client.scheduling.encoding import Encoded, complete_id, encode_all
from delayq.client.scheduling.schedule import Scheduled, schedule_encoded
from delayq.domain.codec import CorruptRecord, json_of
from delayq.domain.message import (
    HAND_BACKS_PROPERTY,
    ORIGIN_PROPERTY,
    REASONS_PROPERTY,
    Message,
    State,
    check_id,
    check_topic,
)
from delayq.domain.policies import Policy
from delayq.received import Received
from delayq.store.commands import Found
from delayq.store.connect.exchange import all_good
from delayq.store.keys import LONGEST_ID, Layout, shortened

#: The most hand-backs that a caller may report.
MOST_REPORTED: Final = 1_000_000
#: Bytes of the reasons that a message carries, as JSON without other characters than ASCII: webhooks carry them so in a header.
MOST_REASONS: Final = 4_096
#: How the schedule script remembers the due time that a hand-back is answered with.
_KIND: Final = "H"
_NUMBERED: Final = re.compile(r"\.b\d+\Z")


class HandBack(msgspec.Struct, frozen=True, kw_only=True):
    """A delivered message, and how it is handed back.

    `message` has the id with which it was delivered, and no due time. `hand_backs` counts the hand-backs before this one.
    `delay` (ms) overrides the back-off of the policy.
    """

    message: Message
    hand_backs: int
    reason: str = ""
    delay: int | None = None


class HandedBack(msgspec.Struct, frozen=True, kw_only=True):
    """The message that is delivered next: its id, its state, its due time (Unix ms), and its hand-backs.

    `created` is False if an earlier call handed the message back, and of a dead letter.
    """

    id: str
    state: str
    hand_backs: int
    due: int | None = None
    created: bool = True


def hand_back_of(received: Received, reason: str, delay: int | None) -> HandBack:
    """The hand-back of a message that a reader of `delayq.received` or `delayq.webhooks` returned."""
    body: Any = text_or_bytes(received.body)
    if is_json(received.content_type) and _can_be_scheduled(received.body):
        body = msgspec.Raw(received.body)
    elif _media_type(received.content_type) == "application/octet-stream":
        body = received.body
    message = Message(
        id=received.id,
        topic=received.topic,
        body=body,
        tags=received.tags,
        keys=received.keys,
        ordering_key=received.ordering_key,
        properties=received.properties,
    )
    return HandBack(message=message, hand_backs=received.hand_backs, reason=reason, delay=delay)


def is_json(content_type: str) -> bool:
    """Whether this is the content type of JSON, with or without a charset."""
    return _media_type(content_type) == "application/json"


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _can_be_scheduled(body: bytes) -> bool:
    """Whether a body is JSON that can be scheduled. Any other one is handed back as text or bytes."""
    try:
        json_of(msgspec.Raw(body))
    except InvalidMessage:
        return False
    return True


def settlement_of(handed: HandedBack) -> Settlement:
    """The same result as of a leased message."""
    if handed.state in (State.DEAD, State.CANCELLED, State.REMOVED_IN_FLIGHT, State.DISCARDED):
        return Settlement(handed.state)
    return Settlement("handedBack", handed.due)


class _Next(msgspec.Struct, frozen=True):
    """The message after a hand-back. It becomes a dead letter if it was handed back too often.

    `before` is the id with which it was delivered: a caller repeats the hand-back under it.
    """

    before: str
    message: Message
    count: int
    is_dead: bool


def hand_back(context: Context, given: Sequence[HandBack], now: int) -> Plan[list[HandedBack | DelayqError]]:
    """Schedule each message again, later each time, or make it a dead letter; a result for each, in order.

    A repeated call gets the same results. `now` is Unix ms.
    """
    yield from learn_policies(context)
    if context.routes.outdated:
        yield from learn_routes(context.keys, context.routes)
    results: list[Any] = [None] * len(given)
    wanted: dict[int, _Next] = {}
    for at, one in enumerate(given):
        try:
            wanted[at] = _next_of(one, context.policies.policy(one.message.topic), now)
        except InvalidMessage as error:
            results[at] = error
    yield from _schedule(context, {at: one for at, one in wanted.items() if not one.is_dead}, now, results)
    yield from _bury(context, {at: one for at, one in wanted.items() if one.is_dead}, now, results)
    for at, following in wanted.items():
        if isinstance(results[at], Conflict):
            results[at] = yield from _handed_back_before(context, following, results[at])
    return results


def _next_of(given: HandBack, policy: Policy, now: int) -> _Next:
    if type(given.hand_backs) is not int or not 0 <= given.hand_backs < MOST_REPORTED:
        raise InvalidMessage(
            "handBacks", f"must be a number from 0 to {MOST_REPORTED - 1}: the hand-backs before this one"
        )
    message, count = given.message, given.hand_backs + 1
    if message.id is None:
        raise InvalidMessage("id", "is missing; give the id with which the message was delivered")
    origin = message.properties.get(ORIGIN_PROPERTY) or message.id
    reasons = [message.properties.get(REASONS_PROPERTY, ""), reason_line(given.reason)]
    properties = {
        **message.properties,
        HAND_BACKS_PROPERTY: str(count),
        ORIGIN_PROPERTY: origin,
        REASONS_PROPERTY: _shortened("; ".join(filter(None, reasons))),
    }
    most, waits = hand_back_rules(policy)
    delay = waits[min(count, len(waits)) - 1] if given.delay is None else given.delay
    is_dead = count > most
    id = complete_id(_next_id(check_id(origin), count, check_topic(message.topic)), message.ordering_key)
    due: dict[str, Any] = {"expect_date": now} if is_dead else {"delay_time": delay}
    return _Next(message.id, msgspec.structs.replace(message, id=id, properties=properties, **due), count, is_dead)


def _next_id(origin: str, count: int, topic: str) -> str:
    """The id after so many hand-backs to a topic. A suffix that chooses the queue stays at the end."""
    suffix = origin[-5:] if Layout.has_suffix(origin) and not _NUMBERED.search(origin) else ""
    own = origin.removesuffix(suffix) if suffix else origin
    mark = f".b{count}-{blake2b(topic.encode(), digest_size=4).hexdigest()}"
    room = LONGEST_ID - len(mark) - 5  # five for the suffix of an ordering key
    return f"{shortened(own, room)}{mark}{suffix}"


def _shortened(reasons: str) -> str:
    """The reasons without the oldest ones if they are too long for a header."""
    while len(json.dumps(reasons)) > MOST_REASONS:
        reasons = "…; " + (reasons.removeprefix("…; ").partition("; ")[2] or reasons[-200:])
    return reasons


def _schedule(context: Context, wanted: dict[int, _Next], now: int, results: list[Any]) -> Plan[None]:
    if not wanted:
        return
    encoded = encode_all([one.message for one in wanted.values()], context.limits, context.routes, now)
    backs = (msgspec.structs.replace(one, kind=_KIND) if isinstance(one, Encoded) else one for one in encoded)
    outcomes = yield from schedule_encoded(context, backs)
    for (at, one), outcome in zip(wanted.items(), outcomes, strict=True):
        if isinstance(outcome, Scheduled) and not outcome.created and outcome.due is None:
            results[at] = Conflict(outcome.id, outcome.state)  # it has ended: its first answer is looked up
        elif isinstance(outcome, Scheduled):
            results[at] = HandedBack(
                id=outcome.id, state=outcome.state, hand_backs=one.count, due=outcome.due, created=outcome.created
            )
        else:
            results[at] = outcome.about(one.before) if isinstance(outcome, StoreError) else outcome


def _bury(context: Context, wanted: dict[int, _Next], now: int, results: list[Any]) -> Plan[None]:
    letters: dict[int, Letter] = {}
    for at, one in wanted.items():
        try:
            one.message.validate(context.limits, now)
            reasons = one.message.properties[REASONS_PROPERTY]
            letters[at] = Letter(one.message, one.count, reasons, ORIGIN_PROPERTY)
        except InvalidMessage as error:
            results[at] = error
    if not letters:
        return
    known = yield from look_by_complete_id(context, [letter.message.id or "" for letter in letters.values()])
    for at, letter in list(letters.items()):
        before = known[letter.message.id or ""]
        if isinstance(before, Found) and before.state == State.DISCARDED and before.topic == letter.message.topic:
            results[at] = HandedBack(id=before.id, state=before.state, hand_backs=letter.count, created=False)
            del letters[at]  # somebody has decided about it
    found = yield from give_up(context, list(letters.values()))
    for at, result in zip(letters, found, strict=True):
        one = wanted[at]
        id = one.message.id or ""
        if result == "dead":
            results[at] = HandedBack(id=id, state=State.DEAD, hand_backs=one.count, created=False)
        elif isinstance(result, StoreError):
            results[at] = result.about(one.before)
        else:
            results[at] = result if isinstance(result, InvalidMessage) else Conflict(id, "")


def _handed_back_before(context: Context, one: _Next, conflict: Conflict) -> Plan[HandedBack | DelayqError]:
    """The message of an earlier hand-back with another reason or delay; the conflict if it is another message."""
    id = one.message.id or ""
    try:
        (found,) = yield from mark_held(context.keys, all_good([(yield from look_by_complete_id(context, [id]))[id]]))
    except StoreError as error:
        return error.about(one.before)
    if found is None or not _is_next(found, one.message):
        return conflict
    due = found.due if found.record is not None else found.first_due
    return HandedBack(id=found.id, state=found.state, hand_backs=one.count, due=due, created=False)


def _is_next(found: Found, message: Message) -> bool:
    """Whether a message comes from an earlier hand-back of the same message to the same topic."""
    if found.record is None:
        return found.first_due is not None and found.topic in (None, message.topic)
    try:
        origin = found.record.properties.get(ORIGIN_PROPERTY)
    except CorruptRecord:
        return False
    return found.record.topic == message.topic and origin == message.properties[ORIGIN_PROPERTY]
