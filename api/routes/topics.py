"""Topics: pause and resume them, and see how they are."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from api.asgi import Answer, Request, encode
from api.routes.by import by_hand, tell
from api.service import Operations, Service
from api.wire.requests import PauseIn, ResumeIn, decode, duration, instant
from delayq import InvalidMessage
from delayq.message import check_topic
from delayq.patterns import check_pattern, compiled
from delayq.text.topics import PausedOut, ResumedOut, TopicOut, TopicsOut, paused_out, resumed_out, topic_out

__all__ = ["OPERATIONS"]

OPERATIONS = Operations()

_pause = msgspec.json.Decoder(PauseIn)
_resume = msgspec.json.Decoder(ResumeIn)

LIMIT: Final = 100
MOST: Final = 1_000
#: ms
WAIT: Final = 1_000
LONGEST_WAIT: Final = 60_000


@OPERATIONS.add(
    "POST",
    "/v1/topics:pause",
    takes=PauseIn,
    example={"match": "orders.*", "reason": "payment API down", "until": "2027-12-01T12:00:00Z"},
    gives={200: PausedOut},
    problems=(400, 408, 409, 413, 415, 503),
    query={
        "wait": {
            "schema": {"type": "string", "default": "1s"},
            "description": "how long to wait until nothing may arrive: ms, or text such as '5s', at most 60s",
        }
    },
)
async def pause(service: Service, request: Request) -> Answer:
    """Pause topics

    After the answer nothing of them is handed out until they are resumed; at most `inFlight` messages arrive yet, and once
    that is 0 the state is `paused`. The same again tells how it stands. Scheduling, cancelling and moving go on. 409 while a
    worker lives that is too old for it. After a 503 it may hold or not: repeat it.
    """
    wait = _wait(request.query("wait").get("wait"))
    given = decode(_pause, await request.json_text(service.settings.request_limit))
    request.caller.need_on_all("admin", given.match)
    until = None if given.until is None else instant("until", given.until)
    by = by_hand(request, given.reason)
    paused = await service.client.pause(given.match, reason=by.reason, until=until, wait=wait, by=by)
    tell(service, by, "pause", [given.match] * paused.changed)
    return Answer(200, encode(paused_out(paused)))


def _wait(text: str | None) -> int:
    if text is None:
        return WAIT
    ms = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else duration("wait", text)
    if ms is None or ms > LONGEST_WAIT:
        raise InvalidMessage("wait", f"is at most {LONGEST_WAIT} ms")
    return ms


@OPERATIONS.add(
    "POST",
    "/v1/topics:resume",
    takes=ResumeIn,
    example={"match": "orders.*", "rate": 500},
    gives={200: ResumedOut},
    problems=(400, 408, 413, 415, 503),
)
async def resume(service: Service, request: Request) -> Answer:
    """Resume topics

    By the very pattern by which they were paused; another pause may cover some of them all the same. With `rate` what was
    held, and what comes beside it, goes out at most so fast until nothing is held any more.
    """
    request.query()
    given = decode(_resume, await request.json_text(service.settings.request_limit))
    request.caller.need_on_all("admin", given.match)
    by = by_hand(request, given.reason)
    resumed = await service.client.resume(given.match, rate=given.rate, by=by)
    tell(service, by, "resume", [given.match] * resumed.changed)
    return Answer(200, encode(resumed_out(resumed)))


@OPERATIONS.add(
    "GET",
    "/v1/topics",
    gives={200: TopicsOut},
    problems=(400, 503),
    query={
        "match": {"schema": {"type": "string"}, "description": "those that this pattern covers, with * and ?"},
        "paused": {"schema": {"type": "string", "enum": ["yes", "no"]}, "description": "whether a pause covers them"},
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "the nextPageToken of the page before"},
    },
)
async def topics(service: Service, request: Request) -> Answer:
    """Look at topics

    Those that have messages by the census, of which something is held, or that a pause or a policy names, by name; `total` is how
    many fit.
    """
    given = request.query("match", "paused", "limit", "pageToken")
    limit = given.get("limit", str(LIMIT))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 9 and 1 <= int(limit) <= MOST):
        raise InvalidMessage("limit", f"is a whole number from 1 to {MOST}")
    if given.get("paused", "yes") not in ("yes", "no"):
        raise InvalidMessage("paused", "is 'yes' or 'no'")
    match = compiled(check_pattern(given.get("match", "*"))).match
    behind = check_topic(given["pageToken"], "pageToken") if "pageToken" in given else ""
    found = [
        one
        for one in await service.client.topics()
        if match(one.topic)
        and ("paused" not in given or (one.pause is not None) is (given["paused"] == "yes"))
        and "read" in request.caller.on(one.topic)
    ]
    begin = bisect_right(found, behind, key=lambda one: one.topic)
    page = found[begin : begin + int(limit)]
    token = page[-1].topic if len(found) > begin + len(page) else None
    return Answer(200, encode(TopicsOut([topic_out(one) for one in page], token, len(found))))


@OPERATIONS.add("GET", "/v1/topics/{topic}", gives={200: TopicOut}, problems=(400, 503))
async def topic(service: Service, request: Request) -> Answer:
    """Look at a topic

    Its route, its policy, whether it is paused and from which nodes messages may arrive yet, and how much is held.
    """
    request.query()
    name = check_topic(request.path_params["topic"])
    request.caller.need("read", name)
    return Answer(200, encode(topic_out(await service.client.topic(name))))
