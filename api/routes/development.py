"""The operation for tests of programs that use delayq: move the time of a development server."""

from __future__ import annotations

import msgspec

from api.asgi import Answer, Request, encode
from api.service import Operations, Service
from api.wire.requests import AdvanceIn, decode, duration
from delayq.answers.development import AdvancedOut, advanced_out

OPERATIONS = Operations("development")

_advance = msgspec.json.Decoder(AdvanceIn)


@OPERATIONS.add(
    "POST",
    "/v1/dev:advance",
    "advanceTime",
    takes=AdvanceIn,
    example={"time": "30m"},
    gives={200: AdvancedOut},
    problems=(400, 408, 409, 413, 415, 503),
)
async def advance(service: Service, request: Request) -> Answer:
    """Move the time of a development server

    Time moves forward by `time`, from one due time to the next. The answer comes after every message that fell due has
    been delivered. Only the server of `./dev up --dev` accepts this. Every other server does nothing and answers 409
    with the type `urn:delayq:problem:not-development`. If messages are still due after a minute, the answer is 409 with
    the type `urn:delayq:problem:still-due`.
    """
    request.query()
    given = decode(_advance, await request.json_text(service.settings.request_limit))
    request.caller.need_everywhere("admin")
    try:
        return Answer(200, encode(advanced_out(await service.client.advance(duration("time", given.time) or 0))))
    finally:
        service.receivers.changed()  # leases and pauses have ended, also if messages are still due
