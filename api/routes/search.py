"""The operations that search, count and forecast messages."""

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

OPERATIONS = Operations("messages")

#: The default span of a forecast, in ms.
DAY: Final = 86_400_000
_WHEN: Final = "RFC 3339 with its zone, or Unix ms"
_TOPIC: Final[dict[str, Any]] = {
    "topic": {"schema": {"type": "string", "maxLength": 255}, "description": "A topic, or a pattern with * and ?."}
}
_DUES: Final[dict[str, Any]] = {
    "dueFrom": {"schema": {"type": "string"}, "description": f"Earliest due time: {_WHEN}."},
    "dueTo": {"schema": {"type": "string"}, "description": f"Latest due time, exclusive: {_WHEN}."},
}
_FILTER: Final[dict[str, Any]] = _TOPIC | {
    "tags": {"schema": {"type": "string"}, "description": "RocketMQ's tag"},
    "state": {
        "schema": {"type": "string"},
        "description": f"States, separated by commas: {', '.join(SEARCHED_STATES)}; with `key` also "
        f"{', '.join(ENDED_STATES)}, as long as the id is remembered.",
    },
    **_DUES,
    "property": {
        "schema": {"type": "string"},
        "description": "A property's name, a colon, and its value; in the name, write %3A for a colon and %25 for %.",
    },
    "idPrefix": {"schema": {"type": "string"}, "description": "The prefix of the id."},
    "key": {
        "schema": {"type": "string"} | KEY,
        "description": "A business key; pages then go on by id, each sorted by due time.",
    },
}


def _filter_of(given: dict[str, str]) -> Filter:
    """Return the filter. Raises InvalidMessage."""
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
        raise InvalidMessage(name, "is empty; omit it to match all")
    return given.get(name, "")


def _property(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if not name or not colon:
        raise InvalidMessage("property", "must be name:value")
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
            "description": "The only order: by due time, earliest first.",
        },
        "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT}},
        "pageToken": {"schema": {"type": "string"}, "description": "The nextPageToken of the previous page."},
    },
)
async def search(service: Service, request: Request) -> Answer:
    """Search messages

    Messages that match all filters and have not ended, by due time; dead letters by their death. A page reads 20,000
    messages, 1 MB or 200 ms, so it may have fewer than `limit`; the last page has no token. An empty page reads on for
    up to a second; only then it has a token. A token is valid for the same filter, with any times. With `key`, pages go
    on by id, each is sorted by due time, and the default of `limit` is 1,000.
    """
    given = request.query(*_FILTER, "order", "limit", "pageToken")
    wanted = _filter_of(given)
    limit = limit_of(given.get("limit"), LIMIT if wanted.key is None else MOST)
    if given.get("order", "due") != "due":
        raise InvalidMessage("order", "must be 'due', the only order; omit it")
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

    The count is exact without `topic`, unless states share a sorted set. It is exact for a topic, or its `tags`, that a
    policy indexes. It is exact for at most 10,000 messages in all, if the key may read all topics. Otherwise it comes
    from the last census of each queue, which its worker takes. The census spreads due times evenly within each of its
    ranges. The count is null if the census does not cover it.
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
        "dueFrom": {"schema": {"type": "string"}, "description": f"Default: now. {_WHEN}."},
        "dueTo": {"schema": {"type": "string"}, "description": f"Default: a day after dueFrom. {_WHEN}."},
        "step": {
            "schema": {"type": "string", "default": "15m"},
            "description": f"ms, or '1h30m'; at most {MOST_BUCKETS} buckets.",
        },
    },
)
async def forecast(service: Service, request: Request) -> Answer:
    """Forecast due messages

    Counts messages that wait in queues by the time of their next attempt. Exact without `topic`, or if there are at
    most 10,000 messages in all and the key may read all topics. Otherwise from the last census of each queue, without
    messages that were due then.
    """
    given = request.query("dueFrom", "dueTo", "step", "topic")
    wanted = _filter_of({"topic": given["topic"]} if "topic" in given else {})
    begin = instant_of("dueFrom", given.get("dueFrom"))
    begin = service.clock.now() if begin is None else begin
    end = instant_of("dueTo", given.get("dueTo"))
    step = duration_of("step", given.get("step", "15m"))
    found = await for_caller.forecast(service, request.caller, begin, begin + DAY if end is None else end, step, wanted)
    return Answer(200, encode(forecast_out(found)))
