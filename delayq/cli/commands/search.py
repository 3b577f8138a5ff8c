"""search, count, forecast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from delayq.cli.commands.messages import print_found
from delayq.cli.options import (
    AsJson,
    BadUse,
    Limit,
    PageToken,
    RedisUrl,
    connect,
    duration,
    moment,
    option,
    properties_of,
)
from delayq.client.search import check_filter, takes
from delayq.errors import InvalidMessage
from delayq.store import commands
from delayq.store.commands import Filter, Found
from delayq.text.answers import count_out, forecast_out, found_out
from delayq.text.output import Output, say

__all__ = ["count", "forecast", "search"]

BAR = 40
DAY = 86_400_000  # ms that a forecast spans unless it is told

Topic = Annotated[str, option("--topic", metavar="PATTERN", help="Of these topics only: * and ? as in routes.")]
Tags = Annotated[str, option("--tags", metavar="TAG", help="With this tag only.")]
States = Annotated[list[str] | None, option("--state", metavar="STATE", help="In this state; more than once: in any.")]
DueFrom = Annotated[
    str | None,
    option("--due-from", metavar="TIME", help="Due from then on: a date, Unix ms, or how far from now ('2h')."),
]
DueTo = Annotated[str | None, option("--due-to", metavar="TIME", help="Due before then.")]


def search(
    topic: Topic = "",
    tags: Tags = "",
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    property: Annotated[str | None, option("--property", metavar="NAME=VALUE", help="With this property only.")] = None,
    id_prefix: Annotated[str, option("--id-prefix", metavar="TEXT", help="Whose id begins so.")] = "",
    key: Annotated[str | None, option("--key", metavar="KEY", help="That carry this business key.")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print the messages that fit all of what is given.

    By due, dead letters by when they died; exit 1 if there are none. It looks at every message until it has found as many.
    """
    if key is not None and page_token is not None:
        raise BadUse("--page-token: with --key all are printed at once")
    found: list[Found] = []
    looked, token = 0, page_token
    with connect(redis_url) as client:
        wanted = _filter(
            client.store.run(commands.redis_now()),
            due_from,
            due_to,
            topic=topic,
            tags=tags,
            states=tuple(state or ()),
            property=next(iter(properties_of([property] if property else []).items()), None),
            prefix=id_prefix,
        )
        if key is not None:
            found = [one for one in client.find(key) if takes(wanted, one)]
            looked = len(found)
        while key is None:
            page = client.search(wanted, limit - len(found), token)
            found += page.messages
            looked, token = looked + page.looked, page.next_token
            if token is None or len(found) == limit:
                break
    code = print_found(found_out(found, looked, token), json, "there are no such messages.")
    if token is not None and not json:
        say(f"there may be more: --page-token {token}")
    return code


def count(
    topic: Topic = "",
    tags: Tags = "",
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print how many messages there are.

    Exactly, or as of the last census of each queue; exit 1 if nobody has counted them yet.
    """
    with connect(redis_url) as client:
        now = client.store.run(commands.redis_now())
        answer = count_out(
            client.count(_filter(now, due_from, due_to, topic=topic, tags=tags, states=tuple(state or ())))
        )
    if json:
        Output().json(answer)
    elif answer.count is not None:
        Output().line(answer.count, *(() if answer.exact else (f"as of {answer.as_of}",)))
    return _told(answer.count)


def forecast(
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="From then on: a date, Unix ms, or how far from now.")
    ] = "0s",
    end: Annotated[str | None, option("--to", metavar="TIME", help="Until then; a day without.")] = None,
    step: Annotated[str, typer.Option("--step", metavar="DURATION", help="How long each bucket is.")] = "15m",
    topic: Topic = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print how many messages fall due when.

    Those that wait in queues. Exactly, or with --topic as of the last census of each queue; exit 1 if there is none yet.
    """
    with connect(redis_url) as client:
        now = client.store.run(commands.redis_now())
        first, last = moment("--from", begin, now, ahead=True), moment("--to", end, now, ahead=True)
        first = first or 0
        last = first + DAY if last is None else last
        wanted = _filter(now, None, None, topic=topic)
        answer = forecast_out(client.forecast(first, last, duration("--step", step) or 0, wanted))
    if json:
        Output().json(answer)
    elif answer.buckets is not None:
        most = max(one.messages for one in answer.buckets) or 1
        rows = ((one.begin, one.messages, "█" * (BAR * one.messages // most)) for one in answer.buckets)
        output = Output()
        output.table(("due from", "messages", ""), rows if output.terminal else (row[:2] for row in rows))
        if not answer.exact:
            say(f"this is as of {answer.as_of}.")
    return _told(answer.buckets)


def _told(counted: object) -> int:
    if counted is not None:
        return 0
    say("no census was taken yet of some queue; its worker takes one a while after it has begun.")
    return 1


def _filter(now: int, due_from: str | None, due_to: str | None, **given: Any) -> Filter:
    """What fits; raises BadUse and InvalidMessage."""
    begin, end = (
        moment(name, text, now, ahead=True) for name, text in (("--due-from", due_from), ("--due-to", due_to))
    )
    made = Filter(due_from=begin, due_to=end, **given)
    try:
        check_filter(made)
    except InvalidMessage as error:
        if error.field == "topic":  # elsewhere that is an argument
            raise BadUse(f"--topic: {error.reason}") from None
        raise
    return made
