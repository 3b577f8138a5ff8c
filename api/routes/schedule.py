"""The operations that schedule one message or many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire import problems
from api.wire.problems import RETRY_AFTER, Problem
from api.wire.requests import BatchIn, MessageIn, PartsIn, decode, message_of
from api.wire.responses import BatchOut, ItemOut
from delayq import Conflict, DelayqError, InvalidMessage, Message, Scheduled, StoreError, TooManyPending
from delayq.answers.messages import ScheduledOut, scheduled_out
from delayq.times import format_instant

__all__ = ["OPERATIONS"]

OPERATIONS = Operations("messages")

Outcome = Scheduled | DelayqError | Problem

_message = msgspec.json.Decoder(MessageIn)
_batch = msgspec.json.Decoder(BatchIn)
_parts = msgspec.json.Decoder(PartsIn)

EXAMPLE: Final = {"topic": "orders.unpaid", "body": {"order": 42}, "delayTime": "30m", "keys": ["order-42"]}


@OPERATIONS.add(
    "POST",
    "/v1/messages",
    "scheduleMessage",
    takes=MessageIn,
    example=EXAMPLE,
    gives={201: ScheduledOut, 200: ScheduledOut},
    problems=(400, 408, 409, 413, 415, 503, 507),
)
async def schedule(service: Service, request: Request) -> Answer:
    """Schedule a message

    201: the message is scheduled. 200: the same message was scheduled or delivered before (`state` shows which). 409:
    the id belongs to another content, or was cancelled. `again` schedules an id that was certainly cancelled. After
    503, repeat the call with the id in the problem.
    """
    raw = await request.json_text(service.settings.request_limit)
    caller = request.caller
    message = caller.takes(message_of(decode(_message, raw)))
    if caller.quota is not None and not await service.quotas.take(caller, 1):
        raise service.quotas.full(caller)
    if service.client.group.full:
        detail = "Too many messages wait for Redis, and this one was not accepted. Repeat later, or send batches."
        raise Problem("overloaded", detail)
    counts = service.metrics.scheduled
    try:
        scheduled = await service.client.schedule(message)
    except (InvalidMessage, Conflict, TooManyPending, StoreError) as error:
        problem = problems.problem_of(error)
        counts[problem.kind] += 1
        raise problem from None
    counts["created" if scheduled.created else "repeated"] += 1
    return Answer(201 if scheduled.created else 200, encode(scheduled_out(scheduled)))


@OPERATIONS.add(
    "POST",
    "/v1/messages:batch",
    "scheduleMessages",
    takes=BatchIn,
    example={"messages": [EXAMPLE]},
    gives={200: BatchOut},
    problems=(400, 408, 413, 415, 503, 507),
)
async def schedule_many(service: Service, request: Request) -> Answer:
    """Schedule many messages

    Each message gets its own result, in order, with the status of a single call. An invalid message never affects the
    others. The answer is 503 or 507 only if every message failed because of the store; the results have their ids.
    """
    given = _decode_batch(await request.json_text(service.settings.request_limit))
    most = service.settings.batch_limit
    if len(given) > most:
        raise InvalidMessage("messages", f"at most {most} messages are accepted in a batch; {len(given)} were given")
    caller = request.caller
    caller.count(len(given))
    refused: dict[int, Outcome] = {}
    messages: list[Message] = []
    for index, one in enumerate(given):
        try:
            message = caller.takes(message_of(one if isinstance(one, MessageIn) else decode(_message, one)))
            if caller.quota is not None:  # refused messages take no quota
                message.validate(service.limits, service.clock.now())
            messages.append(message)
        except (InvalidMessage, Problem) as error:
            refused[index] = error
    if caller.quota is not None:
        room = await service.quotas.take(caller, len(messages))
        good = [index for index in range(len(given)) if index not in refused]
        refused.update(dict.fromkeys(good[room:], service.quotas.full(caller)))
        del messages[room:]
    outcomes: list[Outcome] = []
    if messages:
        outcomes += await service.client.schedule_many(messages)
    for index, refusal in sorted(
        refused.items(), key=lambda one: one[0]
    ):  # ascending indexes, so that each result is inserted at its place
        outcomes.insert(index, refusal)
    return _answer_batch(service, outcomes)


def _decode_batch(raw: bytes) -> Sequence[MessageIn | msgspec.Raw]:
    try:
        return decode(_batch, raw).messages  # the usual case: all of them are well formed
    except Problem:
        return decode(_parts, raw).messages  # a message is malformed, and gets its own result


def _answer_batch(service: Service, outcomes: list[Outcome]) -> Answer:
    results: list[ItemOut] = []
    counts: Counter[str] = Counter()
    created = 0
    for outcome in outcomes:
        if isinstance(outcome, Scheduled):
            due = outcome.due
            due_time = None if due is None else format_instant(due)
            created += outcome.created
            status = 201 if outcome.created else 200
            window = UNSET if outcome.window is None else outcome.window
            results.append(ItemOut(status, outcome.id, outcome.queue, outcome.state, due_time, due, window))
        else:
            problem = problems.problem_of(outcome)
            counts[problem.kind] += 1
            results.append(ItemOut(problem.out.status, problem.out.id, problem=problem.out))
    repeated = len(outcomes) - created - counts.total()
    service.metrics.scheduled.update(counts, created=created, repeated=repeated)
    if outcomes and counts["unavailable"] + counts["full"] == len(outcomes):
        kind = "unavailable" if counts["unavailable"] else "full"
        raise Problem(kind, "No message could be scheduled. Repeat each with the id in its result.", results=results)
    if outcomes and counts["quota"] + counts["pending"] == len(outcomes):
        detail = "Redis has no room for any of these messages. Cancel some waiting messages, or repeat later."
        kind = "quota" if counts["quota"] else "pending"
        raise Problem(kind, detail, retry_after=RETRY_AFTER, results=results)
    return Answer(200, encode(BatchOut(results)))
