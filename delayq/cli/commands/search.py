"""search, count, forecast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from delayq.answers.messages import count_out, forecast_out, found_out
from delayq.cli.commands.messages import print_found, searched
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
from delayq.client.looking.search import check_filter
from delayq.local_time import in_sentence, shown
from delayq.store.commands import Filter
from delayq.terminal import Output, say
from delayq.times import format_instant

__all__ = ["count", "forecast", "search"]

DAY = 86_400_000  # ms that a forecast spans unless it is told

Topic = Annotated[str | None, option("--topic", metavar="PATTERN", help="Of these topics only: * and ? as in routes.")]
Tags = Annotated[str | None, option("--tags", metavar="TAG", help="With this tag only.")]
States = Annotated[list[str] | None, option("--state", metavar="STATE", help="In this state; more than once: in any.")]
DueFrom = Annotated[
    str | None,
    option("--due-from", metavar="TIME", help="Due from then on: 15:30, 'tomorrow 09:00', a date, Unix ms, or '+2h'."),
]
DueTo = Annotated[str | None, option("--due-to", metavar="TIME", help="Due before then.")]


def search(
    topic: Topic = None,
    tags: Tags = None,
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    property: Annotated[str | None, option("--property", metavar="NAME=VALUE", help="With this property only.")] = None,
    id_prefix: Annotated[str | None, option("--id-prefix", metavar="TEXT", help="Whose id begins so.")] = None,
    key: Annotated[str | None, option("--key", metavar="KEY", help="That carry this business key.")] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print the messages that fit all of what is given.

    By due, dead letters by when they died; exit 1 if there are none. It looks at every message until it has found as many, or
    at those with the business key that is given: then pages go on by id.
    """
    with connect(redis_url) as client:
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
    code = print_found(found_out(found, looked, token), json, "there are no such messages.")
    if token is not None and not json:
        say(f"there may be more: --page-token {token}")
    return code


def count(
    topic: Topic = None,
    tags: Tags = None,
    state: States = None,
    due_from: DueFrom = None,
    due_to: DueTo = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print how many messages there are.

    Exact for up to 10,000 messages in all, else as of the last census of each queue; exit 1 if it has no such count.
    """
    with connect(redis_url) as client:
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
        typer.Option(
            "--due-from", metavar="TIME", help="From then on: 15:30, 'tomorrow 09:00', a date, Unix ms, or '+2h'."
        ),
    ] = "0s",
    due_to: Annotated[str | None, option("--due-to", metavar="TIME", help="Until then; a day without.")] = None,
    step: Annotated[str, typer.Option("--step", metavar="DURATION", help="How long each bucket is.")] = "15m",
    topic: Topic = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print how many messages fall due when.

    Those that wait in queues. Exact, but with --topic and more than 10,000 in all as of the last census of each queue; exit 1 if
    it has no such count.
    """
    with connect(redis_url) as client:
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
    """Why there is no count: no census was taken, or that of `as_of` has none."""
    if as_of is None:
        return "no census was taken yet of some queue; its worker takes one a while after it has begun."
    at = format_instant(as_of) if isinstance(as_of, int) else as_of
    return f"the census of {in_sentence(at)} has no such count: it counts fewer topics, or the due times are before it."


def _filter(now: int, due_from: str | None, due_to: str | None, **given: Any) -> Filter:
    """What fits; raises BadUse and InvalidMessage."""
    begin, end = (
        moment(name, text, now, ahead=True) for name, text in (("--due-from", due_from), ("--due-to", due_to))
    )
    for name in ("topic", "tags", "id_prefix"):
        if given.get(name) == "":
            raise BadUse(f"--{name.replace('_', '-')}: is empty; leave it out for any")
    if begin is not None and end is not None and end <= begin:
        raise BadUse("--due-to: is not later than --due-from")
    made = Filter(due_from=begin, due_to=end, **{name: one for name, one in given.items() if one is not None})
    check_filter(made)
    return made
