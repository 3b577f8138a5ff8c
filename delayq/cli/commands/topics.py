"""pause, resume, topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from delayq.cli.options import AsJson, Reason, RedisUrl, by_me, connect, duration, moment, option
from delayq.store import commands
from delayq.text.answers import PauseOut
from delayq.text.output import Output, say
from delayq.text.topics import LimitOut, TopicOut, TopicsOut, paused_out, resumed_out, topic_out

__all__ = ["pause", "resume", "topics"]

Match = Annotated[str, typer.Argument(metavar="MATCH", help="A pattern of topics, with * and ?.", show_default=False)]


def pause(
    match: Match,
    reason: Annotated[str, option("--reason", metavar="TEXT", help="Why, for whoever looks.")] = "",
    until: Annotated[
        str | None, option("--until", metavar="TIME", help="When it ends: a date, Unix ms, or from now on ('2h').")
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="How long to wait until nothing may arrive.")
    ] = "1s",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Hand out nothing of some topics any more.

    Exit 1 while messages that were handed out before may still arrive; the same again looks anew.
    """
    with connect(redis_url) as client:
        end = moment("--until", until, client.store.run(commands.redis_now()), ahead=True)
        longest = duration("--wait", wait) or 0
        answer = paused_out(client.pause(match, reason=reason, until=end, wait=longest, by=by_me(reason)))
    told = "not told yet" if answer.in_flight is None else answer.in_flight
    pairs = [("state", answer.state), ("in flight", told), ("since", answer.since), ("version", answer.version)]
    Output().answer(json, answer, pairs)
    return 0 if answer.state == "paused" else 1


def resume(
    match: Match,
    rate: Annotated[
        float | None,
        option(
            "--rate", metavar="N", help="At most so many messages/s until nothing is held; slower policies count alone."
        ),
    ] = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """End the pause that has this very pattern.

    Exit 1 if there was none.
    """
    with connect(redis_url) as client:
        answer = resumed_out(client.resume(match, rate=rate, by=by_me(reason)))
    changed = "yes" if answer.changed else "no"
    Output().answer(json, answer, [("changed", changed), ("held", answer.held), ("version", answer.version)])
    return 0 if answer.changed else 1


def topics(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="One topic, whatever it is.", show_default=False)
    ] = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print the topics of which something is held, or that a pause or a policy names; or one topic."""
    with connect(redis_url) as client:
        if topic is not None:
            one = topic_out(client.topic(topic))
            Output().answer(json, one, _pairs(one))
            return 0
        found = [topic_out(one) for one in client.topics()]
    if json:
        Output().json(TopicsOut(found, None, len(found)))
    elif found:
        rows = ((one.topic, one.route, one.held, _pause(one), _policy(one)) for one in found)
        Output().table(("topic", "route", "held", "paused by", "policy"), rows)
    else:
        say("nothing is held, and no pause or policy names a topic; delayq policies list shows them all.")
    return 0


def _pause(one: TopicOut) -> str | None:
    return one.pause.match if isinstance(one.pause, PauseOut) else None


def _policy(one: TopicOut) -> str | None:
    return one.policy.name if one.policy else None


def _pairs(one: TopicOut) -> Iterable[tuple[str, object]]:
    yield from (("topic", one.topic), ("route", one.route), ("held", one.held), ("policy", _policy(one)))
    yield "paused by", _pause(one)
    if isinstance(one.pause, PauseOut):
        yield from (
            ("since", one.pause.since),
            ("until", one.pause.until or None),
            ("reason", one.pause.reason or None),
        )
    if isinstance(one.limit, LimitOut):
        yield from (("messages/s at most", one.limit.rate), ("in the last second", one.limit.last_second))
        yield "held for ms", one.limit.wait_ms
    if one.counts and one.as_of:
        yield from (*one.counts.items(), ("as of", one.as_of))
    for node in one.arriving:
        yield f"may come from {node.node}", "not told yet" if node.in_flight is None else node.in_flight
