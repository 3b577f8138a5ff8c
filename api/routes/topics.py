"""The operations on topics: pause, resume, list."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from api.asgi import Answer, Request, encode
from api.routes.by import by_hand, tell
from api.service import Operations, Service
from api.wire.requests import LIMIT, MOST, PauseIn, ResumeIn, decode, duration_of, instant, limit_of
from delayq import InvalidMessage
from delayq.answers.topics import (
    PausedOut,
    ResumedOut,
    TopicOut,
    TopicsOut,
    paused_out,
    resumed_out,
    topic_out,
    topics_out,
)
from delayq.domain.message import check_topic

OPERATIONS = Operations("topics")

_pause = msgspec.json.Decoder(PauseIn)
_resume = msgspec.json.Decoder(ResumeIn)

#: ms
WAIT: Final = 1_000


@OPERATIONS.add(
    "POST",
    "/v1/topics:pause",
    "pauseTopics",
    takes=PauseIn,
    example={"match": "orders.*", "reason": "payment API down", "until": "2027-12-01T12:00:00Z"},
    gives={200: PausedOut},
    problems=(400, 408, 409, 413, 415, 503),
    query={
        "wait": {
            "schema": {"type": "string", "default": "1s"},
            "description": "Maximum wait for messages in flight: ms, or text such as '5s', at most 60s.",
        }
    },
)
async def pause(service: Service, request: Request) -> Answer:
    """Pause topics

    After the answer, nothing of these topics is pulled until they are resumed. At most `inFlight` messages may still
    arrive; when it is 0, the state is `paused`. Scheduling, cancelling and rescheduling continue. If the pattern is
    already paused, a `reason` or `until` that you omit keeps its value, null removes it, and `since` stays. The call
    then returns the current state. 409 while a live worker is too old for pauses. After 503, the pause may be in force
    or not: repeat the call.
    """
    text = request.query("wait").get("wait")
    wait = WAIT if text is None else duration_of("wait", text)
    given = decode(_pause, await request.json_text(service.settings.request_limit))
    request.caller.need_on_all("admin", given.match)
    until = given.until if given.until is UNSET or given.until is None else instant("until", given.until)
    by = by_hand(request, None if given.reason is UNSET else given.reason)
    reason = UNSET if given.reason is UNSET and not by.reason else by.reason
    paused = await service.client.pause(given.match, reason=reason, until=until, wait=wait, by=by)
    tell(service, by, "pause", [given.match] * paused.changed)
    return Answer(200, encode(paused_out(paused)))


@OPERATIONS.add(
    "POST",
    "/v1/topics:resume",
    "resumeTopics",
    takes=ResumeIn,
    example={"match": "orders.*", "rate": 500},
    gives={200: ResumedOut},
    problems=(400, 408, 413, 415, 503),
)
async def resume(service: Service, request: Request) -> Answer:
    """Resume topics

    Ends the pause with exactly this pattern; another pause may still cover some of its topics. With `rate`, held
    messages and new ones are delivered at most at that rate until nothing is held. Without such a pause, the call
    changes the rate of an earlier resume, or ends it; if there is none, `changed` is false.
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
    "listTopics",
    gives={200: TopicsOut},
    problems=(400, 503),
    query={
        "match": {"schema": {"type": "string"}, "description": "Only topics that match this pattern, with * and ?."},
        "paused": {
            "schema": {"type": "string", "enum": ["yes", "no"]},
            "description": "Only topics that a pause covers, or only others.",
        },
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "The nextPageToken of the previous page."},
    },
)
async def topics(service: Service, request: Request) -> Answer:
    """List topics

    Topics with messages, with held messages, or that a pause or a policy names, by name; `total` is the number of
    matches. Counts are as of `asOf`. They are current if there are at most 10,000 messages in all and the key may read
    all topics; otherwise they come from a census. If `match` itself is paused, `arriving` lists the nodes whose
    messages may still arrive.
    """
    given = request.query("match", "paused", "limit", "pageToken")
    limit = limit_of(given.get("limit"))
    if given.get("paused", "yes") not in ("yes", "no"):
        raise InvalidMessage("paused", "must be 'yes' or 'no'")
    paused = given["paused"] == "yes" if "paused" in given else None
    match = given.get("match", "*")
    async with service.searching:
        found = await service.client.topics(match=match, paused=paused, live=request.caller.everything("read"))
    seen = [one for one in found if "read" in request.caller.on(one.topic)]
    tells = "match" in given and request.caller.has("read", match)
    arriving = await service.client.arriving(match) if tells else None
    return Answer(200, encode(topics_out(seen, limit, given.get("pageToken"), arriving)))


@OPERATIONS.add("GET", "/v1/topics/{topic}", "getTopic", gives={200: TopicOut}, problems=(400, 503))
async def topic(service: Service, request: Request) -> Answer:
    """Get a topic

    Its route, policy and pause, and the nodes whose messages may still arrive. The number of held messages, and its
    messages by state as of `asOf`.
    """
    request.query()
    name = check_topic(request.path_params["topic"])
    request.caller.need("read", name)
    async with service.searching:
        found = await service.client.topic(name, live=request.caller.everything("read"))
    said = found.limit or found.policy
    shared = found.bucket is not None and not found.bucket.is_of(name)  # other topics share the rate
    if shared and said is not None and not request.caller.has("read", said.match):
        found = msgspec.structs.replace(found, granted_last_second=None)
    return Answer(200, encode(topic_out(found)))
