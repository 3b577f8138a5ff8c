"""Topics: pause and resume them, and see how they are."""

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
from delayq.message import check_topic

__all__ = ["OPERATIONS"]

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
            "description": "how long to wait until nothing may arrive: ms, or text such as '5s', at most 60s",
        }
    },
)
async def pause(service: Service, request: Request) -> Answer:
    """Pause topics

    After the answer nothing of them is handed out until they are resumed; at most `inFlight` messages arrive yet, and once
    that is 0 the state is `paused`. The same again tells how it stands: of a pause that has this very pattern a `reason` or an
    `until` that is left out stays as it is, null takes it away, and `since` is when it began. Scheduling, cancelling and
    moving go on. 409 while a worker lives that is too old for it. After a 503 it may hold or not: repeat it.
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

    By the very pattern by which they were paused; another pause may cover some of them all the same. With `rate` what was
    held, and what comes beside it, goes out at most so fast until nothing is held any more. Where nothing is paused by it the
    limit that an earlier resume has left gets another `rate`, or ends; where there is none either `changed` is false.
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
        "match": {"schema": {"type": "string"}, "description": "those that this pattern covers, with * and ?"},
        "paused": {"schema": {"type": "string", "enum": ["yes", "no"]}, "description": "whether a pause covers them"},
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "the nextPageToken of the page before"},
    },
)
async def topics(service: Service, request: Request) -> Answer:
    """Look at topics

    Those that have messages, of which something is held, or that a pause or a policy names, by name; `total` is how many fit.
    Messages are counted at `asOf`: now if there are 10,000 or fewer in all and the key may read all topics, else by a census.
    With a `match` that is paused by this very pattern, `arriving` has the nodes from which messages may come yet.
    """
    given = request.query("match", "paused", "limit", "pageToken")
    limit = limit_of(given.get("limit"))
    if given.get("paused", "yes") not in ("yes", "no"):
        raise InvalidMessage("paused", "is 'yes' or 'no'")
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
    """Look at a topic

    Its route, its policy, whether it is paused and from which nodes messages may arrive yet, how much is held, and its messages
    by their states as they were at `asOf`.
    """
    request.query()
    name = check_topic(request.path_params["topic"])
    request.caller.need("read", name)
    async with service.searching:
        found = await service.client.topic(name, live=request.caller.everything("read"))
    said = found.limit or found.policy
    shared = found.bucket is not None and not found.bucket.is_of(name)  # other topics spend from it, too
    if shared and said is not None and not request.caller.has("read", said.match):
        found = msgspec.structs.replace(found, granted_last_second=None)
    return Answer(200, encode(topic_out(found)))
