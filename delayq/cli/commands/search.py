"""search, count, forecast."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from delayq.cli.commands.messages import print_found
from delayq.cli.options import AsJson, BadUse, RedisUrl, connect, moment, option, properties_of
from delayq.client.search import check_filter, takes
from delayq.store import commands
from delayq.store.commands import Filter, Found
from delayq.text.answers import found_out
from delayq.text.output import say

__all__ = ["search"]

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
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Most to print.")] = 100,
    page_token: Annotated[
        str | None, option("--page-token", metavar="TOKEN", help="What the page before ended with.")
    ] = None,
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


def _filter(now: int, due_from: str | None, due_to: str | None, **given: Any) -> Filter:
    """What fits; raises BadUse and InvalidMessage."""
    begin, end = (
        moment(name, text, now, ahead=True) for name, text in (("--due-from", due_from), ("--due-to", due_to))
    )
    made = Filter(due_from=begin, due_to=end, **given)
    check_filter(made)
    return made
