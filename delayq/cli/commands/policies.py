"""The commands policies list, show, put and delete."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from delayq.answers.topics import PolicyChangedOut, policies_out, policy_changed_out, policy_out
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, say
from delayq.cli.options import ApiUrl, AsJson, BadUse, Reason, RedisUrl, Window, by_me, connect_any, duration, option
from delayq.domain.policies import Policy

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the policy.", show_default=False)]
IfVersion = Annotated[
    int | None, option("--if-version", metavar="N", help="Only if the policies still have this version.")
]
#: Fields of a policy that have columns of their own in a table.
NAMED = ("name", "match", "order", "since")


def list_(redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print the policies, the pauses and the limits of resumes.

    Policies stand in their order, pauses begin with the oldest.
    """
    with connect_any(redis_url, api) as client:
        answer = policies_out(client.policies())
    if json:
        Output().json(answer)
        return 0
    rows: list[tuple[object, ...]] = []
    for one in answer.policies:
        told = {name: value for name, value in msgspec.to_builtins(one).items() if name not in NAMED}
        rows.append(("policy", one.match, one.name, one.order, shown(one.since), _text(told)))
    for pause in answer.pauses:
        said = ", ".join(filter(None, (pause.reason, in_sentence(f"until {pause.until}") if pause.until else "")))
        rows.append(("pause", pause.match, None, None, shown(pause.since), said or None))
    for limit in answer.limits:
        rows.append(("limit", limit.match, None, None, shown(limit.since), _text({"rate": limit.rate})))
    if rows:
        Output().table(("kind", "match", "name", "order", "since", "says"), rows)
    else:
        say("there are no policies and no pauses.")
    return 0


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def show(name: Name, redis_url: RedisUrl = None, api: ApiUrl = None, json: AsJson = False) -> int:
    """Print a policy.

    Exit 1 if no policy has this name.
    """
    with connect_any(redis_url, api) as client:
        policy = client.policy(name)
    if policy is None:
        say("no policy has this name.")
        return 1
    answer = policy_out(policy)
    told = msgspec.to_builtins(answer) | {"since": shown(answer.since)}
    said = ((field, _text(value) if isinstance(value, tuple | list) else value) for field, value in told.items())
    Output().answer(json, answer, said)
    return 0


def put(
    name: Name,
    match: Annotated[str, option("--match", metavar="MATCH", help="Topics it applies to: a pattern with * and ?.")],
    order: Annotated[int, typer.Option("--order", metavar="N", help="Only the first matching policy applies.")] = 100,
    rate: Annotated[float | None, option("--rate", metavar="N", help="Messages/s.")] = None,
    burst: Annotated[
        int | None, option("--burst", metavar="N", help="Messages at once; default: one second of rate.")
    ] = None,
    per: Annotated[
        str, typer.Option("--per", metavar="WHAT", help="Rate for each topic, or for the policy.")
    ] = "topic",
    max_in_flight: Annotated[
        int | None, option("--max-in-flight", metavar="N", help="Concurrency limit: sends at a time.")
    ] = None,
    window: Window = None,
    max_attempts: Annotated[
        int | None, option("--max-attempts", metavar="N", help="Attempts before a message becomes a dead letter.")
    ] = None,
    backoff: Annotated[
        str | None,
        option("--backoff", metavar="A,B", help="Back-off after each failed attempt or hand-back: 10s,1m,10m."),
    ] = None,
    max_hand_backs: Annotated[
        int | None, option("--max-hand-backs", metavar="N", help="Hand-backs before a message becomes a dead letter.")
    ] = None,
    max_deliveries: Annotated[
        int | None, option("--max-deliveries", metavar="N", help="Ended leases before a message becomes a dead letter.")
    ] = None,
    expire_after: Annotated[
        str | None, option("--expire-after", metavar="DURATION", help="Expire messages this long after the due time.")
    ] = None,
    pending: Annotated[int | None, option("--pending", metavar="N", help="Maximum number of waiting messages.")] = None,
    index: Annotated[str | None, option("--index", metavar="A,B", help="Exact counts by topic, tags or both.")] = None,
    redact: Annotated[
        list[str] | None, option("--redact", metavar="PATH", help="JSON path of bodies to hide; repeatable.")
    ] = None,
    min_replicas: Annotated[int | None, option("--min-replicas", metavar="N", help="Replicas to wait for.")] = None,
    fsync: Annotated[str | None, option("--fsync", metavar="HOW", help="everysec or always.")] = None,
    retention_age: Annotated[
        str | None,
        option("--retention-age", metavar="DURATION", help="Trim acknowledged stream entries older than this."),
    ] = None,
    retention_length: Annotated[
        int | None,
        option("--retention-length", metavar="N", help="Trim acknowledged stream entries above this number."),
    ] = None,
    retention_force: Annotated[
        bool, typer.Option("--retention-force", help="Trim entries that are not acknowledged, too.")
    ] = False,
    if_version: IfVersion = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Create or replace a policy."""
    if per not in ("topic", "policy"):
        raise BadUse("--per: use topic or policy")
    fields: dict[str, Any] = {
        "order": order, "rate": rate, "burst": burst, "per": per, "max_in_flight": max_in_flight,
        "window": duration("--window", window), "max_attempts": max_attempts,
        "backoff": tuple(duration("--backoff", one) for one in _parts(backoff)),
        "max_hand_backs": max_hand_backs, "max_deliveries": max_deliveries,
        "expire_after": duration("--expire-after", expire_after), "pending": pending, "index": tuple(_parts(index)),
        "redact": tuple(redact or ()), "min_replicas": min_replicas, "fsync": fsync,
        "retention_age": duration("--retention-age", retention_age), "retention_length": retention_length,
        "retention_force": retention_force,
    }  # fmt: skip
    with connect_any(redis_url, api) as client:
        policy = Policy(name=name, match=match, **fields)
        return _answer(policy_changed_out(client.put_policy(policy, if_version=if_version, by=by_me(reason))), json)


def _parts(text: str | None) -> list[str]:
    return [one.strip() for one in text.split(",")] if text else []


def delete(
    name: Name,
    if_version: IfVersion = None,
    reason: Reason = "",
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Delete a policy.

    Exit 1 if no policy has this name.
    """
    with connect_any(redis_url, api) as client:
        answer = policy_changed_out(client.delete_policy(name, if_version=if_version, by=by_me(reason)))
    _answer(answer, json)
    return 0 if answer.changed else 1


def _answer(answer: PolicyChangedOut, json: bool) -> int:
    pairs = [("name", answer.name), ("changed", "yes" if answer.changed else "no"), ("version", answer.version)]
    Output().answer(json, answer, pairs)
    return 0
