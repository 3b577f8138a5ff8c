"""The commands search, count and forecast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from delayq.answers.messages import count_out, forecast_out, found_out
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.base.times import format_instant
from delayq.cli.commands.messages import print_found, searched
from delayq.cli.options import (
    ApiUrl,
    AsJson,
    BadUse,
    Limit,
    PageToken,
    RedisUrl,
    connect_any,
    duration,
    moment,
    option,
    properties_of,
)
from delayq.client.looking.search import check_filter
from delayq.store.commands import Filter

DAY = 86_400_000  # The default span of a forecast, in ms.

Topic = Annotated[str | None, option("--topic", metavar="PATTERN", help="Only these topics: a pattern with * and ?.")]
Tags = Annotated[str | None, option("--tags", metavar="TAG", help="Only this tag.")]
States = Annotated[
    list[str] | None, option("--state", metavar="STATE", help="Only this state; repeatable: any of them.")
]
DueFrom = Annotated[
    str | None,
    option("--due-from", metavar="TIME", help="Earliest due time: 15:30, a date, Unix ms, +2h."),
]
DueTo = Annotated[str | None, option("--due-to", metavar="TIME", help="Latest due time, exclusive.")]


def search(
    topic: Topic = None,
    tags: Tags = None,
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    property: Annotated[str | None, option("--property", metavar="NAME=VALUE", help="Only this property.")] = None,
    id_prefix: Annotated[str | None, option("--id-prefix", metavar="TEXT", help="Only ids with this prefix.")] = None,
    key: Annotated[str | None, option("--key", metavar="KEY", help="Only messages with this business key.")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the messages that match all filters.

    Sorted by due time, dead letters by their death. Exit 1 if there are none. The search reads every message until it
    has found enough. With --key, it reads only messages with that key and sorts pages by id.
    """
    with connect_any(redis_url, api) as client:
        wanted = _filter(
            client.redis_now(),
            due_from,
            due_to,
            topic=topic,
            tags=tags,
            states=tuple(state or ()),
            property=next(iter(properties_of([] if property is None else [property]).items()), None),
            id_prefix=id_prefix,
            key=key,
        )
        found, looked, token = searched(client, wanted, limit, page_token)
    code = print_found(found_out(found, looked, token), json, "no message matches.")
    if token is not None and not json:
        say(f"more may follow: --page-token {token}")
    return code


def count(
    topic: Topic = None,
    tags: Tags = None,
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print the number of messages.

    Exact for at most 10,000 messages in all, otherwise from the last census of each queue. Exit 1 if the census has no
    such count.
    """
    with connect_any(redis_url, api) as client:
        now = client.redis_now()
        answer = count_out(
            client.count(_filter(now, due_from, due_to, topic=topic, tags=tags, states=tuple(state or ())))
        )
    if json:
        Output().json(answer)
    elif answer.count is not None:
        counted = () if answer.exact else (in_sentence(f"as of {answer.as_of}"),)
        Output().row(("messages", *(("counted",) if counted else ())), (answer.count, *counted))
    return _told(answer.count, answer.as_of)


def forecast(
    due_from: Annotated[
        str,
        typer.Option("--due-from", metavar="TIME", help="Begin: 15:30, a date, Unix ms, +2h."),
    ] = "0s",
    due_to: Annotated[str | None, option("--due-to", metavar="TIME", help="End; default: one day later.")] = None,
    step: Annotated[str, typer.Option("--step", metavar="DURATION", help="Length of each bucket.")] = "15m",
    topic: Topic = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print how many messages fall due in each bucket of time.

    Counts messages that wait in queues. Exact, except with --topic and more than 10,000 messages: then from the last
    census of each queue. Exit 1 if the census has no such count.
    """
    with connect_any(redis_url, api) as client:
        now = client.redis_now()
        first = moment("--due-from", due_from, now, ahead=True) or 0
        last = moment("--due-to", due_to, now, ahead=True)
        last = first + DAY if last is None else last
        wanted = _filter(now, None, None, topic=topic)
        answer = forecast_out(client.forecast(first, last, duration("--step", step) or 0, wanted))
    if json:
        Output().json(answer)
    elif answer.buckets is not None:
        counted = () if answer.exact else (in_sentence(f"as of {answer.as_of}"),)
        rows = [(shown(one.due_from), one.messages, *counted) for one in answer.buckets]
        Output().bars(("due from", "messages", *(("counted",) if counted else ())), rows)
    return _told(answer.buckets, answer.as_of)


def _told(counted: object, as_of: str | None) -> int:
    if counted is not None:
        return 0
    say(no_count(as_of))
    return 1


def no_count(as_of: int | str | None) -> str:
    """Explain why there is no count: no census yet, or the census of `as_of` does not cover it."""
    if as_of is None:
        return "some queue has no census yet; its worker takes one soon after its start."
    at = format_instant(as_of) if isinstance(as_of, int) else as_of
    return f"the census of {in_sentence(at)} has no such count: it covers fewer topics, or the due times are earlier."


def _filter(now: int, due_from: str | None, due_to: str | None, **given: Any) -> Filter:
    """Return the filter. Raises BadUse and InvalidMessage."""
    begin, end = (
        moment(name, text, now, ahead=True) for name, text in (("--due-from", due_from), ("--due-to", due_to))
    )
    for name in ("topic", "tags", "id_prefix"):
        if given.get(name) == "":
            raise BadUse(f"--{name.replace('_', '-')}: is empty; omit it to match all")
    if begin is not None and end is not None and end <= begin:
        raise BadUse("--due-to: must be later than --due-from")
    made = Filter(due_from=begin, due_to=end, **{name: one for name, one in given.items() if one is not None})
    check_filter(made)
    return made
