"""The operation that hands back messages which any target delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from api.asgi import Answer, Request, encode
from api.routes.schedule import admit, with_refusals
from api.service import Operations, Service
from api.wire import problems
from api.wire.handing_back import DeliveredIn, DeliveredManyIn
from api.wire.problems import Problem
from api.wire.requests import body_of, decode, decode_each
from delayq import DelayqError, Message
from delayq.answers.consuming import HandedBackManyOut, HandedBackOut
from delayq.answers.times import instant
from delayq.client.consuming import handing_back
from delayq.client.consuming.handing_back import HandBack, HandedBack, is_json
from delayq.domain.message import State, given_duration

OPERATIONS = Operations("consumers")

_one = msgspec.json.Decoder(DeliveredIn)
_many = msgspec.json.Decoder(DeliveredManyIn)
_EXAMPLE: Final = {
    "id": "unpaid-42", "topic": "orders.unpaid", "body": {"order": 42}, "handBacks": 0, "reason": "stock API 503",
}  # fmt: skip


@OPERATIONS.add(
    "POST",
    "/v1/messages:handBack",
    "handBackDelivered",
    takes=DeliveredManyIn,
    example={"messages": [_EXAMPLE]},
    gives={200: HandedBackManyOut},
    problems=(400, 408, 413, 415, 503, 507),
)
async def hand_back(service: Service, request: Request) -> Answer:
    """Hand delivered messages back

    For consumers of Kafka, RocketMQ, RabbitMQ and webhooks. Each message is delivered to its topic again: after
    `delayTime`, else the `backoff` of the policy, else from 10 s to 2 h. After 16 hand-backs (`maxHandBacks`) it becomes a dead
    letter with all reasons. Repeating the call is safe: a message is handed back once for each first id, `handBacks`
    and `topic`. Only a key with the same `ids` may hand back the messages of a key with `ids`.
    """
    request.query()
    caller = request.caller
    given = decode_each(
        await request.json_text(service.settings.request_limit), lambda raw: decode(_many, raw).messages
    )

    def read(one: DeliveredIn | msgspec.Raw) -> HandBack:
        made = _hand_back_of(one if isinstance(one, DeliveredIn) else decode(_one, one))
        return msgspec.structs.replace(made, message=caller.hands_back(made.message))

    wanted, refused = await admit(service, caller, given, read, _as_scheduled)
    now = service.clock.now()
    done = await service.client.run(lambda context: handing_back.hand_back(context, wanted, now)) if wanted else []
    return _answer(service, with_refusals(done, refused))


def _hand_back_of(given: DeliveredIn) -> HandBack:
    body = body_of(given.body, given.body_base64)
    if isinstance(body, str) and is_json(given.content_type or ""):
        body = msgspec.Raw(body.encode())
    message = Message(
        id=given.id,
        topic=given.topic,
        body=body,
        tags=given.tags or "",
        keys=given.keys or (),
        properties=given.properties or {},
        ordering_key=given.ordering_key or "",
    )
    delay = given_duration("delayTime", given.delay_time)
    return HandBack(message=message, hand_backs=given.hand_backs, reason=given.reason or "", delay=delay)


def _as_scheduled(given: HandBack) -> Message:
    return msgspec.structs.replace(given.message, delay_time=given.delay or 0)


def _answer(service: Service, outcomes: Sequence[HandedBack | DelayqError | Problem]) -> Answer:
    results: list[HandedBackOut] = []
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        if isinstance(outcome, HandedBack):
            if outcome.state != State.DEAD:
                counts["created" if outcome.created else "repeated"] += 1
            due = outcome.due
            status = 201 if outcome.created else 200
            results.append(HandedBackOut(status, outcome.id, outcome.state, outcome.hand_backs, instant(due), due))
        else:
            problem = problems.problem_of(outcome)
            counts[problem.kind] += 1
            results.append(HandedBackOut(problem.out.status, problem.out.id, problem=problem.out))
    service.metrics.scheduled.update(counts)
    if outcomes and counts["unavailable"] + counts["full"] == len(outcomes):
        kind = "unavailable" if counts["unavailable"] else "full"
        raise Problem(kind, "No message could be handed back. Repeat the same request, which is safe.", results=results)
    return Answer(200, encode(HandedBackManyOut(results)))
