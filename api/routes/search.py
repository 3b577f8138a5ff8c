"""Messages by what they are, and how many of them there are."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from api.asgi import Answer, Request, encode
from api.routes import for_caller
from api.routes.redacting import redacted
from api.service import Operations, Service
from api.wire.requests import KEY, LIMIT, MOST, duration_of, instant_of, limit_of
from delayq import InvalidMessage
from delayq.answers.messages import CountOut, ForecastOut, FoundOut, count_out, forecast_out, found_out
from delayq.client.looking.counting import MOST_BUCKETS
from delayq.client.looking.search import ENDED_STATES, SEARCHED_STATES, check_filter
from delayq.store.commands import Filter

__all__ = ["OPERATIONS"]

OPERATIONS = Operations("messages")

#: ms that a forecast spans unless it is told.
DAY: Final = 86_400_000
_WHEN: Final = "RFC 3339 with its zone, or Unix ms"
_TOPIC: Final[dict[str, Any]] = {
    "topic": {"schema": {"type": "string", "maxLength": 255}, "description": "a topic, or a pattern with * and ?"}
}
_DUES: Final[dict[str, Any]] = {
    "dueFrom": {"schema": {"type": "string"}, "description": f"due from then on: {_WHEN}"},
    "dueTo": {"schema": {"type": "string"}, "description": f"due before: {_WHEN}"},
}
_FILTER: Final[dict[str, Any]] = _TOPIC | {
    "tags": {"schema": {"type": "string"}, "description": "RocketMQ's tag"},
    "state": {
        "schema": {"type": "string"},
        "description": f"one or more, a comma between: {', '.join(SEARCHED_STATES)}; with `key` also "
        f"{', '.join(ENDED_STATES)}, for as long as the id is remembered",
    },
    **_DUES,
    "property": {
        "schema": {"type": "string"},
        "description": "a property's name, a colon, its value; in the name %3A stands for a colon, %25 for %",
    },
    "idPrefix": {"schema": {"type": "string"}, "description": "how the id begins"},
    "key": {
        "schema": {"type": "string"} | KEY,
        "description": "a business key; pages go on by id then, each sorted by due",
    },
}


def _filter_of(given: dict[str, str]) -> Filter:
    """What fits; raises InvalidMessage."""
    wanted = Filter(
        topic=_one(given, "topic"),
        tags=_one(given, "tags"),
        states=tuple(one.strip() for one in given["state"].split(",")) if "state" in given else (),
        property=_property(given.get("property")),
        id_prefix=_one(given, "idPrefix"),
        due_from=instant_of("dueFrom", given.get("dueFrom")),
        due_to=instant_of("dueTo", given.get("dueTo")),
        key=given.get("key"),
    )
    check_filter(wanted)
    return wanted


def _one(given: dict[str, str], name: str) -> str:
    if given.get(name) == "":
        raise InvalidMessage(name, "is empty; leave it out for any")
    return given.get(name, "")


def _property(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise InvalidMessage("property", "write it as name:value")
    return unquote(name), value


@OPERATIONS.add(
    "GET",
    "/v1/messages",
    "searchMessages",
    gives={200: FoundOut},
    problems=(400, 503),
    query=_FILTER
    | {
        "order": {
            "schema": {"type": "string", "enum": ["due"]},
            "description": "by due, the earliest first: the only order",
        },
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "the nextPageToken of the page before"},
    },
)
async def search(service: Service, request: Request) -> Answer:
    """Search messages, or find them by a business key

    Those that fit all that is given and have not ended, by due; dead letters by when they died. A page looks at 20,000 messages,
    tells 1 MB or takes 200 ms, whichever is first: it may have fewer than `limit` and not be the last, which has no token. As
    long as it has none it goes on, for a second at most: only then is a page empty and has a token. A token is for the same
    filter; its times may be others. With `key` pages go on by id, each is sorted by due, and `limit` is 1,000 unless it is told.
    """
    given = request.query(*_FILTER, "order", "limit", "pageToken")
    wanted = _filter_of(given)
    limit = limit_of(given.get("limit"), LIMIT if wanted.key is None else MOST)
    if given.get("order", "due") != "due":
        raise InvalidMessage("order", "is 'due', the only order that there is; leave it out")
    page = await for_caller.search(service, request.caller, wanted, limit, given.get("pageToken"))
    answer = found_out(page.messages, page.looked, page.next_token)
    await redacted(service, (one.message for one in answer.messages))
    return Answer(200, encode(answer))


_COUNTED: Final[dict[str, Any]] = {name: _FILTER[name] for name in ("topic", "tags", "state", "dueFrom", "dueTo")}


@OPERATIONS.add(
    "GET", "/v1/messages:count", "countMessages", gives={200: CountOut}, problems=(400, 503), query=_COUNTED
)
async def count(service: Service, request: Request) -> Answer:
    """Count messages

    Exactly, where sorted sets tell: without `topic`, and with states that stand in the same ones; and of one topic, or its
    `tags`, where its policy has them indexed. Exactly, too, if there are 10,000 messages or fewer in all and the key may read all
    topics. Otherwise the count is as of the last census of each queue, which its worker takes; due times within one range of
    the census are spread evenly. It is null if the census has no such count.
    """
    wanted = _filter_of(request.query(*_COUNTED))
    return Answer(200, encode(count_out(await for_caller.count(service, request.caller, wanted))))


@OPERATIONS.add(
    "GET",
    "/v1/forecast",
    "forecastMessages",
    gives={200: ForecastOut},
    problems=(400, 503),
    query=_TOPIC
    | {
        "dueFrom": {"schema": {"type": "string"}, "description": f"now, or {_WHEN}"},
        "dueTo": {"schema": {"type": "string"}, "description": f"a day behind dueFrom, or {_WHEN}"},
        "step": {
            "schema": {"type": "string", "default": "15m"},
            "description": f"ms, or '1h30m'; {MOST_BUCKETS} at most",
        },
    },
)
async def forecast(service: Service, request: Request) -> Answer:
    """Look at how many messages fall due when

    Those that wait in queues, by when they are tried next. Exact without `topic`, and with it if there are 10,000 messages or
    fewer in all and the key may read all topics. Else as of the last census of each queue, without what was due already then.
    """
    given = request.query("dueFrom", "dueTo", "step", "topic")
    wanted = _filter_of({"topic": given["topic"]} if "topic" in given else {})
    begin = instant_of("dueFrom", given.get("dueFrom"))
    begin = service.clock.now() if begin is None else begin
    end = instant_of("dueTo", given.get("dueTo"))
    step = duration_of("step", given.get("step", "15m"))
    found = await for_caller.forecast(service, request.caller, begin, begin + DAY if end is None else end, step, wanted)
    return Answer(200, encode(forecast_out(found)))
