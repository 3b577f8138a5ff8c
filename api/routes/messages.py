"""The operations on messages: get, cancel, reschedule, deliver now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from api.asgi import Answer, Request, encode
from api.routes import for_caller
from api.routes.batch_results import (
    TO_MANY,
    Result,
    answer_ids,
    answer_results,
    ask_each,
    check_each,
    result_of,
)
from api.routes.by import by_application, by_hand, tell
from api.routes.redacting import redacted
from api.service import Operations, Service
from api.wire import problems
from api.wire.problems import Problem
from api.wire.requests import CancelIn, DeliverIn, DeliverManyIn, PatchIn, call_of, decode, due_of
from delayq import Cancelled, InvalidMessage, Scheduled, StoreError
from delayq.answers.messages import ScheduledOut, StateOut, scheduled_out, state_out
from delayq.answers.results import EndedOut, ResultOut, ResultsOut
from delayq.client.changing.messages import REFUSALS, Rescheduled
from delayq.domain.message import check_id, check_key

OPERATIONS = Operations("messages")

_cancel = msgspec.json.Decoder(CancelIn)
_patch = msgspec.json.Decoder(PatchIn)
_deliver = msgspec.json.Decoder(DeliverIn)
_deliver_many = msgspec.json.Decoder(DeliverManyIn)

#: Each key is searched for in every queue.
MOST_KEYS: Final = 100
STATUS: Final = {
    "cancelled": 200, "inFlight": 202, "delivered": 409, "dead": 409, "discarded": 409, "notFound": 404,
}  # fmt: skip


def _unknown(id: str) -> Problem:
    detail = "No message has this id. Ids of ended messages are remembered only for a while."
    return Problem("not-found", detail, field="id", id=id)


@OPERATIONS.add(
    "GET",
    "/v1/messages/{id}",
    "getMessage",
    gives={200: StateOut},
    problems=(400, 404, 503),
    query={"explain": {"schema": {"type": "boolean", "default": False}}},
)
async def get(service: Service, request: Request) -> Answer:
    """Get a message

    With `explain=true`, the answer also explains why the message waits.
    """
    wanted = request.query("explain").get("explain", "false")
    if wanted not in ("true", "false"):
        raise InvalidMessage("explain", "must be 'true' or 'false'")
    id = check_id(request.path_params["id"])
    found = await for_caller.get(service, request.caller, id)
    if found is None:
        raise _unknown(id)
    answer = state_out(found, await for_caller.explain(service, request.caller, found) if wanted == "true" else None)
    await redacted(service, [answer.message])
    return Answer(200, encode(answer))


@OPERATIONS.add(
    "DELETE",
    "/v1/messages/{id}",
    "cancelMessage",
    gives={200: EndedOut, 202: EndedOut},
    problems=(400, 404, 409, 503),
)
async def cancel(service: Service, request: Request) -> Answer:
    """Cancel a message

    200 `cancelled`: the message is never delivered. 202 `inFlight`: the message is removed and not retried, but it may
    have been delivered or may still be. 409: the message was delivered, or is or was a dead letter. The same call gets
    the same answer for a while.
    """
    request.query()
    id = check_id(request.path_params["id"])
    by = by_application(request)
    (outcome,) = await ask_each(partial(for_caller.cancel, service, request.caller, by), [id])
    _count(service, outcome)
    if isinstance(outcome, (Problem, StoreError)):
        raise outcome
    result = outcome.result
    tell(service, by, "cancel")
    if result == "notFound":
        raise _unknown(id)
    if STATUS[result] == 409:
        raise Problem("conflict", f"The message {REFUSALS[result]}.", id=id, state=result)
    return Answer(STATUS[result], encode(EndedOut(id, result)))


@OPERATIONS.add(
    "POST",
    "/v1/messages:cancel",
    "cancelMessages",
    takes=CancelIn,
    example={"keys": ["order-42"]},
    gives={200: ResultsOut},
    problems=(400, 408, 413, 415, 503),
)
async def cancel_many(service: Service, request: Request) -> Answer:
    """Cancel messages

    The messages are given by ids or by business keys. The answer has a result for each id or key, in order; a key has
    one for each of its messages.
    """
    given = decode(_cancel, await request.json_text(service.settings.request_limit))
    by = by_application(request, given.reason)
    calls = [partial(one, service, request.caller, by) for one in (for_caller.cancel, for_caller.cancel_by_key)]

    try:
        return await _to_many(service, given, calls[0], calls[1], partial(_cancelled, service))
    finally:
        tell(service, by, "cancel")


async def _to_many(
    service: Service,
    given: CancelIn,
    ask: Callable[[Sequence[str]], Awaitable[Sequence[Any]]],
    by_key: Callable[[str], Awaitable[Sequence[Any]]],
    result: Result,
) -> Answer:
    """Return a result for each of the ids or business keys. Exactly one of both must be given."""
    if bool(given.ids) == bool(given.keys):
        raise InvalidMessage("ids", "exactly one of ids and keys must be given; an empty list counts as not given")
    if given.ids:
        return await answer_ids(given.ids, service.settings.batch_limit, ask, result)
    assert given.keys
    _, refused = check_each("keys", given.keys, MOST_KEYS, lambda key: check_key(key, service.limits))
    results: list[ResultOut] = []
    away: StoreError | None = None
    for key in given.keys:
        if key in refused:
            results.append(refused[key])
            continue
        messages: list[ResultOut] = []
        if away is None:  # otherwise each of the other keys would wait for its timeout
            messages, away = await _of_key(key, by_key, result)
        if away is None:
            results.append(ResultOut(status=200, key=key, messages=messages))
            continue
        problem = result(away, "").problem
        assert problem is not UNSET
        results.append(ResultOut(status=problem.status, key=key, messages=messages or UNSET, problem=problem))
    return answer_results(results)


async def _of_key(
    key: str, by_key: Callable[[str], Awaitable[Sequence[Any]]], result: Result
) -> tuple[list[ResultOut], StoreError | None]:
    """Return the outcomes of the messages with a key, and the error that hides the other outcomes."""
    try:
        outcomes = await by_key(key)
    except StoreError as error:
        return [], error
    away = next((outcome for outcome in outcomes if isinstance(outcome, StoreError)), None)
    results = [result(outcome, _id_of(outcome)) for outcome in outcomes if not isinstance(outcome, StoreError)]
    return results, away


def _id_of(outcome: Cancelled | Rescheduled | Problem) -> str:
    id = outcome.out.id if isinstance(outcome, Problem) else outcome.id
    return id or ""


def _cancelled(service: Service, outcome: Cancelled | Problem | StoreError, id: str) -> ResultOut:
    _count(service, outcome)
    return result_of(outcome.result if isinstance(outcome, Cancelled) else outcome, id, STATUS)


def _count(service: Service, outcome: Cancelled | Problem | StoreError) -> None:
    result = outcome.result if isinstance(outcome, Cancelled) else problems.problem_of(outcome).kind
    service.metrics.cancelled[result] += 1


@OPERATIONS.add(
    "PATCH",
    "/v1/messages/{id}",
    "rescheduleMessage",
    takes=PatchIn,
    example={"delayTime": "2h"},
    gives={200: ScheduledOut},
    problems=(400, 404, 408, 409, 413, 415, 503, 507),
)
async def reschedule(service: Service, request: Request) -> Answer:
    """Reschedule a message

    Changes the due time. Allowed only while cancelling the message would be certain.
    Otherwise the answer is 409 with the `state` of the message. A repeated `call` gets the first answer as long as
    the id is known, also with other fields.
    """
    id = check_id(request.path_params["id"])
    given = decode(_patch, await request.json_text(service.settings.request_limit))
    by, due = by_application(request, given.reason), due_of(given)
    outcome = await for_caller.reschedule(service, request.caller, by, id, due, call_of(given))
    if outcome.result == "notFound":
        raise _unknown(id)
    if outcome.due is None or outcome.queue is None:
        raise Problem("conflict", f"The message {outcome.refusal}.", id=id, state=outcome.result)
    tell(service, by, "reschedule")
    return Answer(200, encode(scheduled_out(Scheduled(outcome.id, outcome.queue, outcome.due))))


@OPERATIONS.add(
    "POST",
    "/v1/messages/{id}:deliverNow",
    "deliverMessageNow",
    takes=DeliverIn,
    example={"force": False},
    gives={200: ScheduledOut},
    problems=(400, 404, 408, 409, 413, 415, 503, 507),
)
async def deliver_now(service: Service, request: Request) -> Answer:
    """Deliver a message now

    A waiting message becomes due, a retry is made now, and a parked message passes the open circuit of its target. A
    due message stays due. The answer is 409 if the message may be in flight, has ended, is a dead letter, or is held.
    For a held message, `force` ignores pauses and limits, and earlier held messages of its ordering key.
    """
    id = check_id(request.path_params["id"])
    given = decode(_deliver, await request.json_text(service.settings.request_limit))
    by = by_hand(request, given.reason)
    (outcome,) = await for_caller.deliver_now(service, request.caller, by, given.force, call_of(given), [id])
    if isinstance(outcome, (Problem, StoreError)):
        raise outcome
    if outcome.result == "notFound":
        raise _unknown(id)
    if outcome.due is None or outcome.queue is None:
        raise Problem(
            "conflict",
            "The message may be in flight already."
            if outcome.result == "inFlight"
            else f"The message {outcome.refusal}.",
            id=id,
            state=outcome.result,
        )
    tell(service, by, "deliverNow")
    return Answer(200, encode(scheduled_out(Scheduled(outcome.id, outcome.queue, outcome.due))))


@OPERATIONS.add(
    "POST",
    "/v1/messages:deliverNow",
    "deliverMessagesNow",
    takes=DeliverManyIn,
    example={"keys": ["order-42"]},
    **TO_MANY,
)
async def deliver_now_many(service: Service, request: Request) -> Answer:
    """Deliver messages now

    The messages are given by ids or by business keys. The answer has a result for each id or key, in order; a key has
    one for each of its messages.
    """
    given = decode(_deliver_many, await request.json_text(service.settings.request_limit))
    by = by_hand(request, given.reason)
    calls = [
        partial(one, service, request.caller, by, given.force, call_of(given))
        for one in (for_caller.deliver_now, for_caller.deliver_now_by_key)
    ]

    try:
        return await _to_many(service, given, calls[0], calls[1], _delivered)
    finally:
        tell(service, by, "deliverNow")


def _delivered(outcome: Rescheduled | Problem | StoreError, id: str) -> ResultOut:
    statuses = {"scheduled": 200, "notFound": 404}
    return result_of(outcome.result if isinstance(outcome, Rescheduled) else outcome, id, statuses)
