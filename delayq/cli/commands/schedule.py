"""The command schedule."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from delayq import Scheduled
from delayq.base import json_text
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.cli.options import (
    ApiUrl,
    AsJson,
    At,
    BadUse,
    Delay,
    Level,
    NoRouteCheck,
    RedisUrl,
    Window,
    connect_any,
    due_of,
    duration,
    of_redis,
    option,
    properties_of,
)
from delayq.client.known_routes import NO_WORKER
from delayq.domain.message import Message, State

#: The most bytes that are read of a body for the HTTP API, which has its own limit.
LONGEST_BODY: Final = 64 * 1024 * 1024


def schedule(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the message.")],
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Body, as text.", show_default=False)] = None,
    body_file: Annotated[str | None, option("--body-file", metavar="F", help="File with the body; - is stdin.")] = None,
    json_body: Annotated[bool, option("--json-body", help="The body is a JSON value.")] = False,
    delay: Delay = None,
    at: At = None,
    level: Level = None,
    tags: Annotated[str, option("--tags", metavar="TAG", help="RocketMQ's tag.")] = "",
    key: Annotated[
        list[str] | None, option("--key", metavar="KEY", help="Business key, for find and cancel; repeatable.")
    ] = None,
    property: Annotated[
        list[str] | None, option("--property", metavar="K=V", help="Property, delivered with the message; repeatable.")
    ] = None,
    id: Annotated[
        str | None, option("--id", metavar="ID", help="Your own id; repeating the call is then safe.")
    ] = None,
    ordering_key: Annotated[
        str, option("--ordering-key", metavar="KEY", help="Messages with the same key keep their order.")
    ] = "",
    max_attempts: Annotated[
        int | None, option("--max-attempts", metavar="N", help="Attempts before it becomes a dead letter.")
    ] = None,
    expire_after: Annotated[
        str | None,
        option("--expire-after", metavar="DURATION", help="Expire this long after the due time: 10m."),
    ] = None,
    window: Window = None,
    again: Annotated[bool, option("--again", help="Also schedule an id that was certainly cancelled.")] = False,
    no_route_check: NoRouteCheck = False,
    redis_url: RedisUrl = None,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule a message; print its id and due time."""
    due = due_of(delay, at, level)
    expires = duration("--expire-after", expire_after)
    with connect_any(redis_url, api, check_routes=not no_route_check) as client:
        redis = of_redis(client)
        limit = LONGEST_BODY if redis is None else redis.context().limits.body
        message = Message(
            topic=topic,
            body=_body(body, body_file, json_body, limit),
            tags=tags,
            keys=tuple(key or ()),
            properties=properties_of(property),
            id=id,
            ordering_key=ordering_key,
            max_attempts=max_attempts,
            expire_after=expires,
            window=duration("--window", window),
            again=again,
        )
        if redis is not None:
            redis.known_routes.be_quiet()  # a refusal is one sentence, so the warning follows only after success
        scheduled = client.schedule(msgspec.structs.replace(message, **due))
    if json:
        from delayq.answers.messages import scheduled_out  # this import loads all plans of a client

        Output().json(scheduled_out(scheduled))
    else:
        Output().row(("id", "due", "state"), (scheduled.id, shown(scheduled.due), _how(scheduled)))
    if redis is not None and redis.known_routes.without_worker:
        say(f"{NO_WORKER}.")
    return 0


def _how(scheduled: Scheduled) -> str:
    if scheduled.state == State.DELIVERED:
        return "already delivered"
    if scheduled.state == State.DEAD:
        return "a dead letter"
    return "scheduled" if scheduled.created else "already scheduled"


def _body(text: str | None, file: str | None, is_json: bool, limit: int) -> Any:
    if text is not None and file is not None:
        raise BadUse("the body is given twice; use BODY or --body-file")
    raw: bytes = (text or "").encode() if file is None else _read(file, limit)
    if is_json:
        try:
            value = msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            raise BadUse(f"BODY: is not a JSON value ({json_text.explain(raw, str(error))[0]})") from None
        except (ValueError, RecursionError) as error:
            raise BadUse(f"BODY: is not a JSON value ({error})") from None
        return value if isinstance(value, str) else msgspec.Raw(raw)  # unchanged, so that numbers keep all their digits
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read(file: str, limit: int) -> bytes:
    """Read at most one byte more than the limit, so that a longer body is refused."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(limit + 1)
        with Path(file).open("rb") as opened:
            return opened.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadUse(f"--body-file: cannot read {file}: {reason}") from None
