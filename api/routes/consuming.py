"""The operations of consumers: receive, acknowledge, extend, hand back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from api.asgi import Answer, Request, encode
from api.auth.caller import Caller
from api.service import Operations, Service
from api.wire import problems
from api.wire.consuming import (
    ExtendIn,
    HandBackIn,
    LeasesIn,
    ReceiveIn,
)
from api.wire.problems import Problem
from api.wire.requests import decode
from delayq import DelayqError, InvalidMessage, StoreFull
from delayq.answers.consuming import LeaseOut, LeasesOut, ReceivedOut, received_out
from delayq.base.times import format_instant
from delayq.client.consuming import receiving
from delayq.client.consuming.entries import Leased
from delayq.client.consuming.groups import given_consumer
from delayq.client.consuming.leases import ACK, LEASE, LeaseChange, Wanted, extension
from delayq.client.consuming.settling import Settlement, settle
from delayq.client.consuming.streams import streams_of_topic, topics_beside
from delayq.domain.message import given_duration, given_wait

OPERATIONS = Operations("consumers")

_receive = msgspec.json.Decoder(ReceiveIn)
_ack = msgspec.json.Decoder(LeasesIn)
_extend = msgspec.json.Decoder(ExtendIn)
_hand_back = msgspec.json.Decoder(HandBackIn)

_STATUS: Final = {"lost": 409, "notFound": 404}
#: The longest wait for a message (ms).
LONGEST_WAIT: Final = 30_000
_PROBLEMS: Final = (400, 403, 408, 409, 413, 415, 503)
_LEASES: Final = {"gives": {200: LeasesOut}, "problems": _PROBLEMS}
_EXAMPLE: Final = {"group": "mail", "messages": [{"id": "unpaid-42", "lease": ".1801384200000-0.0HxLQ2..."}]}


@OPERATIONS.add(
    "POST",
    "/v1/topics/{topic}:receive",
    "receiveMessages",
    takes=ReceiveIn,
    example={"group": "mail", "wait": "20s"},
    gives={200: ReceivedOut},
    problems=_PROBLEMS,
)
async def receive(service: Service, request: Request) -> Answer:
    """Receive messages

    Leases messages of a topic to this call; its route has to be a stream of delayq's own Redis. Acknowledge each message
    before its lease ends, or the group receives it again. After 16 leases that ended (`maxDeliveries`) it becomes a dead letter.
    """
    request.query()
    given = decode(_receive, await request.json_text(service.settings.request_limit))
    topic = request.path_params["topic"]
    start = "beginning" if given.start is None else given.start
    consumer = given_consumer(topic, given.group, start, given.tags or ())
    key = "" if request.caller.key is None else request.caller.key.name
    consumer = msgspec.structs.replace(consumer, reserved=request.caller.reserved, key=key)
    await _need(service, request.caller, topic)
    wait = given_wait(given.wait)
    if wait > LONGEST_WAIT:
        raise InvalidMessage("wait", "is at most 30s; receive again")
    life = LEASE if given.lease is None else given_duration("lease", given.lease) or 0
    receiving.check_receive(given.max, life, given.call)
    if len(given.ack or ()) > service.settings.batch_limit:
        raise InvalidMessage("ack", f"at most {service.settings.batch_limit} are accepted in one request")
    lost: list[str] = []
    is_new = False  # whether this call has received nothing before

    async def look(acks: Sequence[str] = ()) -> list[Leased]:
        await _need(service, service.door.renewed(request.caller), topic)  # it may have waited
        nonlocal is_new
        page = await service.client.run(
            lambda context: receiving.receive(context, consumer, given.max, life, given.call, acks, is_new=is_new)
        )
        is_new = True
        again = None if page.next is None else page.next - page.now
        service.receivers.received(place, page.now, again, is_full=len(page.messages) == given.max)
        lost.extend(page.lost)
        return page.messages

    end = service.clock.monotonic() + wait
    place = (await _streams(service, topic), given.group, consumer.tags)
    messages: list[Leased] = []
    call = given.call  # which may be a repeat: nobody has looked yet
    if not wait:
        messages = await look(given.ack or ())
        call = None
    elif given.ack or not service.receivers.has_others(place):
        with service.receivers.look(place):
            messages = await look(given.ack or ())
        call = None
    while not messages and ((left := end - service.clock.monotonic()) > 0 or call is not None):
        if not await service.receivers.wait(place, left / 1000, call):
            break
        if await request.is_disconnected():
            service.receivers.pass_on(place)
            break
        call = None
        with service.receivers.look(place):
            messages = await look()
    return Answer(200, encode(ReceivedOut([received_out(one) for one in messages], lost or UNSET)))


@OPERATIONS.add("POST", "/v1/topics/{topic}:ack", "ackMessages", takes=LeasesIn, example=_EXAMPLE, **_LEASES)
async def ack(service: Service, request: Request) -> Answer:
    """Acknowledge messages

    The group does not receive them again. Acknowledging a message again is 200. 409 `lost`: its lease has ended, and another
    consumer may have the message.
    """
    given = decode(_ack, await request.json_text(service.settings.request_limit))
    changes = [(one.lease, one.id, ACK) for one in given.messages]
    return await _settle(service, request, given.group, changes)


@OPERATIONS.add("POST", "/v1/topics/{topic}:extend", "extendLeases", takes=ExtendIn, example=_EXAMPLE, **_LEASES)
async def extend(service: Service, request: Request) -> Answer:
    """Extend leases

    The leases end so long from now. With a `lease` of 0 the messages were not handled: other consumers receive them now, and
    this delivery does not count. 409 `lost`: the lease has ended, and another consumer may have the message.
    """
    given = decode(_extend, await request.json_text(service.settings.request_limit))
    life = LEASE if given.lease is None else given_duration("lease", given.lease) or 0
    change = extension(life)
    changes = [(one.lease, one.id, change) for one in given.messages]
    return await _settle(service, request, given.group, changes)


@OPERATIONS.add(
    "POST", "/v1/topics/{topic}:handBack", "handBackMessages", takes=HandBackIn, example=_EXAMPLE, **_LEASES
)
async def hand_back(service: Service, request: Request) -> Answer:
    """Hand messages back

    The group receives each of them again later: after `delayTime`, else the `backoff` of the policy, else from 10 s to 2 h.
    After 16 hand-backs (`maxHandBacks`) it becomes a dead letter with all reasons. Other groups see nothing of it. Repeating the
    call is safe.
    """
    given = decode(_hand_back, await request.json_text(service.settings.request_limit))
    changes = [
        (one.lease, one.id, LeaseChange("back", given_duration("delayTime", one.delay_time), one.reason or ""))
        for one in given.messages
    ]
    return await _settle(service, request, given.group, changes)


async def _need(service: Service, caller: Caller, topic: str) -> None:
    """Raise Problem unless the caller may receive all topics in the streams of a topic."""
    caller.need("receive", topic)
    if not caller.everything("receive"):
        beside = await service.client.run(lambda context: topics_beside(context, topic))
        caller.need_in_stream("receive", topic, beside)


async def _streams(service: Service, topic: str) -> tuple[str, ...]:
    streams = await service.client.run(lambda context: streams_of_topic(context, topic))
    return tuple(streams.by_place.values())


async def _settle(service: Service, request: Request, group: str, changes: Sequence[Wanted]) -> Answer:
    request.query()
    topic = request.path_params["topic"]
    consumer = given_consumer(topic, group, "beginning", ())
    consumer = msgspec.structs.replace(consumer, reserved=request.caller.reserved)
    await _need(service, request.caller, topic)
    if len(changes) > service.settings.batch_limit:
        raise InvalidMessage("messages", f"at most {service.settings.batch_limit} are accepted in one request")
    settled = await service.client.run(lambda context: settle(context, consumer, changes))
    # A lease ends at once, or at another time than before. Or the next message of an ordering key may be received now.
    if any(change.kind != "ack" for *_, change in changes) or service.receivers.waits_for_key(group):
        service.receivers.changed(await _streams(service, topic), group)
    results = [_result(id or "", one) for (_, id, _), one in zip(changes, settled, strict=True)]
    if results and all(one.status in (503, 507) for one in results):
        raise Problem("unavailable", "Nothing could be done. Repeat the same request, which is safe.", results=results)
    if results and all(one.status == 400 for one in results):
        raise Problem("invalid", str(settled[0]), field="id", results=results)
    return Answer(200, encode(LeasesOut(results)))


def _result(id: str, found: Settlement | DelayqError) -> LeaseOut:
    if isinstance(found, DelayqError):
        if isinstance(found, StoreFull):
            detail = "Redis has no memory left for a dead letter. The lease and the reason are kept. Repeat later."
            problem = Problem("unavailable", detail, id=id).out
        else:
            problem = problems.problem_of(found).out
        return LeaseOut(id, problem.status, problem=problem)
    until = UNSET if found.until is None else format_instant(found.until)
    return LeaseOut(id, _STATUS.get(found.result, 200), found.result, until)
