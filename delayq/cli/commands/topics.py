"""The commands pause, resume and topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec import UNSET, UnsetType

from delayq.answers.topics import LimitOut, PauseOut, TopicOut, paused_out, resumed_out, topic_out, topics_out
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.base.times import format_instant
from delayq.cli.commands.search import no_count
from delayq.cli.options import (
    ApiUrl,
    AsJson,
    BadUse,
    Limit,
    PageToken,
    Reason,
    RedisUrl,
    by_me,
    connect_any,
    duration,
    moment,
    option,
)
from delayq.domain.patterns import is_pattern
from delayq.store.commands import Filter

Match = Annotated[str, typer.Argument(metavar="MATCH", help="Pattern of topics, with * and ?.", show_default=False)]


def pause(
    match: Match,
    reason: Annotated[str | None, option("--reason", metavar="TEXT", help="Reason, shown with the pause.")] = None,
    until: Annotated[
        str | None,
        option(
            "--until",
            metavar="TIME",
            help="End: 15:30, a date, Unix ms, +2h, or never.",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="Time to wait for messages in flight, at most 60s.")
    ] = "1s",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Pause the topics that match a pattern: deliver nothing.

    Exit 1 while messages in flight may still arrive; repeat the command with MATCH alone to check again. If the pattern
    is already paused, options that you omit keep their values.
    """
    longest = duration("--wait", wait) or 0
    why: str | UnsetType = UNSET if reason is None else reason
    end: int | UnsetType | None = UNSET
    with connect_any(redis_url, api) as client:
        if until is not None:
            now = client.redis_now()
            end = None if until == "never" else moment("--until", until, now, ahead=True)
        answer = paused_out(client.pause(match, reason=why, until=end, wait=longest, by=by_me(reason or "")))
    told = "unknown yet" if answer.in_flight is None else answer.in_flight
    pairs = [("state", answer.state), ("in flight", told), ("since", shown(answer.since)), ("version", answer.version)]
    Output().answer(json, answer, pairs)
    return 0 if answer.state == "paused" else 1


def resume(
    match: Match,
    rate: Annotated[
        float | None,
        option("--rate", metavar="N", help="Maximum messages/s until nothing is held."),
    ] = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """End the pause with exactly this pattern.

    Without such a pause, --rate changes the limit of an earlier resume, and no --rate ends it. A slower policy still
    applies. Exit 1 if nothing was changed.
    """
    with connect_any(redis_url, api) as client:
        answer = resumed_out(client.resume(match, rate=rate, by=by_me(reason)))
    changed = "yes" if answer.changed else "no"
    Output().answer(json, answer, [("changed", changed), ("held", answer.held), ("version", answer.version)])
    return 0 if answer.changed else 1


def topics(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="One topic, or a pattern with * and ?.", show_default=False),
    ] = None,
    paused: Annotated[
        str | None, option("--paused", metavar="yes|no", help="Only topics that are paused, or are not.")
    ] = None,
    limit: Limit = 100,
    page_token: PageToken = None,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Print topics and their messages, or one topic.

    Topics that have messages, that are held, or that a pause or policy names. Counts are current, or from a census if
    there are more than 10,000 messages in all.
    """
    if paused not in (None, "yes", "no"):
        raise BadUse("--paused: use yes or no")
    with connect_any(redis_url, api) as client:
        if topic is not None and not is_pattern(topic):
            if paused is not None or page_token is not None:
                raise BadUse("--paused and --page-token need a pattern, or no topic")
            one = topic_out(client.topic(topic))
            Output().answer(json, one, _pairs(one))
            return 0
        found = client.topics(match=topic or "*", paused=None if paused is None else paused == "yes")
        counted = None if found or json else client.count(Filter(topic=topic or "*"))
    page = topics_out(found, limit, page_token)
    if json:
        Output().json(page)
        return 0
    if page.topics:
        rows = ((one.topic, one.route, one.held, _pause(one), _policy(one), *_messages(one)) for one in page.topics)
        Output().table(("topic", "route", "held", "paused by", "policy", "messages", "as of"), rows)
    elif counted is not None and counted.messages is None:
        say(no_count(counted.as_of))
        return 1
    else:
        as_of = (
            ""
            if counted is None or counted.exact or counted.as_of is None
            else f" as of {format_instant(counted.as_of)}"
        )
        say(in_sentence(f"no topic matches{as_of}; delayq policies list shows all pauses and policies."))
    if page.next_page_token is not None:
        say(f"more follow: --page-token {page.next_page_token}")
    return 0


def _pause(one: TopicOut) -> str | None:
    return one.pause.match if isinstance(one.pause, PauseOut) else None


def _messages(one: TopicOut) -> tuple[int | None, str | None]:
    """Return the number of messages, and the time of the count."""
    return (sum(one.counts.values()), shown(one.as_of)) if one.counts is not UNSET and one.as_of else (None, None)


def _policy(one: TopicOut) -> str | None:
    return one.policy.name if one.policy else None


def _pairs(one: TopicOut) -> Iterable[tuple[str, object]]:
    yield from (("topic", one.topic), ("route", one.route), ("held", one.held), ("policy", _policy(one)))
    yield "paused by", _pause(one)
    if isinstance(one.pause, PauseOut):
        yield from (
            ("since", shown(one.pause.since)),
            ("until", shown(one.pause.until or None)),
            ("reason", one.pause.reason or None),
        )
    if isinstance(one.limit, LimitOut):
        until = " until nothing is held" if one.limit.temporary else ""
        granted = one.limit.granted_last_second
        yield from (("maximum messages/s", one.limit.rate), ("limited by", f"{one.limit.match}{until}"))
        yield "granted in the last second", None if granted is UNSET else granted
        yield "held for at least ms", one.limit.wait_ms
    if one.counts is UNSET or not one.as_of:
        yield "messages", None
    else:
        yield from (*(one.counts or {"messages": 0}).items(), ("as of", shown(one.as_of)))
    for node in one.arriving:
        yield f"may come from {node.node}", "unknown yet" if node.in_flight is None else node.in_flight
