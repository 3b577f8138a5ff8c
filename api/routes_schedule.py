"""Schedule: one message, or many."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq import DelayqError, InvalidMessage, Message, Scheduled, StoreError

from . import problems
from .answers import BatchOut, ItemOut, ScheduledOut
from .decoding import decode
from .http import Request
from .problems import Answer, Problem
from .schemas import BatchIn, MessageIn, message_of
from .service import Operations, Service, encode
from .views import scheduled_out

__all__ = ["OPERATIONS"]

OPERATIONS = Operations()

_message = msgspec.json.Decoder(MessageIn)
_batch = msgspec.json.Decoder(BatchIn)

EXAMPLE: Final = {"topic": "orders.unpaid", "body": {"order": 42}, "delayTime": "30m", "keys": ["order-42"]}


@OPERATIONS.add(
    "POST", "/v1/messages", takes=MessageIn, example=EXAMPLE, gives={201: ScheduledOut, 200: ScheduledOut},
    problems=(400, 408, 409, 413, 415, 503, 507),
)  # fmt: skip
async def schedule(service: Service, request: Request) -> Answer:
    """Schedule a message

    201 when it was scheduled; 200 when this very message was before, or has been delivered (`state` says which);
    409 when the id belongs to other content, or was cancelled. After 503 repeat with the id in the problem.
    """
    raw = await request.json(service.settings.request_limit)
    outcome = await service.group.schedule(message_of(decode(_message, raw)), len(raw))
    service.metrics.scheduled[_result(outcome)] += 1
    if isinstance(outcome, Scheduled):
        return Answer(201 if outcome.created else 200, encode(scheduled_out(outcome)))
    raise outcome


def _result(outcome: Scheduled | DelayqError | Problem) -> str:
    if isinstance(outcome, Scheduled):
        return "created" if outcome.created else "repeated"
    return problems.problem_of(outcome).kind


@OPERATIONS.add(
    "POST", "/v1/messages:batch", takes=BatchIn, example={"messages": [EXAMPLE]}, gives={200: BatchOut},
    problems=(400, 408, 413, 415, 503, 507),
)  # fmt: skip
async def schedule_batch(service: Service, request: Request) -> Answer:
    """Schedule many messages

    Each gets its own result, in order, with the status it would have got by itself: a bad one never stops the
    others. 503 and 507 only when every one of them failed for the store; their ids are in the results.
    """
    raws = decode(_batch, await request.json(service.settings.request_limit)).messages
    most = service.settings.batch_limit
    if len(raws) > most:
        raise InvalidMessage("messages", f"at most {most} in a batch; {len(raws)} were given")
    outcomes: list[Scheduled | DelayqError | Problem | None] = []
    messages: list[Message] = []
    for raw in raws:
        try:
            messages.append(message_of(decode(_message, raw)))
        except (InvalidMessage, Problem) as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    if messages:
        answered = iter(await service.client.schedule_many(messages))
        outcomes = [next(answered) if outcome is None else outcome for outcome in outcomes]
    return _answer_batch(service, outcomes)


def _answer_batch(service: Service, outcomes: list[Any]) -> Answer:
    results: list[ItemOut] = []
    created = away = full = 0
    for outcome in outcomes:
        if isinstance(outcome, Scheduled):
            created += outcome.created
            one = scheduled_out(outcome)
            status = 201 if outcome.created else 200
            results.append(ItemOut(status, one.id, one.queue, one.state, one.due_time, one.due_ms))
        else:
            problem = problems.problem_of(outcome)
            away += isinstance(outcome, StoreError) and problem.out.status == 503
            full += isinstance(outcome, StoreError) and problem.out.status == 507
            results.append(ItemOut(problem.out.status, id=problem.out.id, problem=problem.out))
    for outcome in outcomes:
        service.metrics.scheduled[_result(outcome)] += 1
    if outcomes and away + full == len(outcomes):
        kind = "unavailable" if away else "full"
        raise Problem(kind, "No message could be scheduled; repeat each with the id in its result.", results=results)
    return Answer(200, encode(BatchOut(results)))
