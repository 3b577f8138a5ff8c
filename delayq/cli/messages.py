"""schedule, cancel, reschedule, get, find."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from delayq.cli.options import (
    AsJson,
    At,
    BadUse,
    Delay,
    Ids,
    Level,
    RedisUrl,
    connect,
    due_of,
    duration,
    properties_of,
)
from delayq.cli.output import Output, say
from delayq.cli.shapes import body_text, instant, scheduled_shape, state_shape
from delayq.errors import StoreError
from delayq.message import Message, State
from delayq.operations import Cancelled, Scheduled

__all__ = ["cancel", "find", "get", "reschedule", "schedule"]

_WHY = {
    "in_flight": "is due or was in flight before, so its due cannot be changed any more",
    "parked": "is due and waits for its target, so its due cannot be changed any more",
    "delivered": "has been delivered",
    "cancelled": "was cancelled",
    "dead": "is a dead letter: delayq dead-letters redrive puts it back",
}
_UNKNOWN = "no message has the id {id}; one that was delivered or cancelled is known for a while only"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


def schedule(
    topic: Annotated[str, typer.Argument(help="Where it goes.")],
    body: Annotated[str | None, typer.Argument(help="The body, as text.", show_default=False)] = None,
    body_file: Annotated[str | None, _option("--body-file", metavar="F", help="The body, from a file; - is stdin.")] = None,
    json_body: Annotated[bool, _option("--json-body", help="The body is a JSON value.")] = False,
    delay: Delay = None,
    at: At = None,
    level: Level = None,
    tags: Annotated[str, _option("--tags", help="RocketMQ's tag.")] = "",
    key: Annotated[list[str] | None, _option("--key", help="A business key to find it by; more than once.")] = None,
    property: Annotated[
        list[str] | None, _option("--property", metavar="K=V", help="Handed on with it; more than once.")
    ] = None,
    id: Annotated[str | None, _option("--id", help="An id of your own: repeating the call is then safe.")] = None,
    ordering_key: Annotated[str, _option("--ordering-key", help="Messages of one key never overtake.")] = "",
    max_attempts: Annotated[int | None, _option("--max-attempts", help="Give up after so many.")] = None,
    expire_after: Annotated[
        str | None, _option("--expire-after", metavar="DURATION", help="Give up when it is so late: 10m.")
    ] = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule a message; print its id, its due and what became of it."""
    due = due_of(delay, at, level)
    expires = duration("--expire-after", expire_after)
    with connect(redis_url) as client:
        limit = client.context().limits.body
        message = Message(
            topic=topic, body=_body(body, body_file, json_body, limit), tags=tags, keys=tuple(key or ()),
            properties=properties_of(property), id=id, ordering_key=ordering_key, max_attempts=max_attempts,
            expire_after=expires, **due,
        )  # fmt: skip
        scheduled = client.schedule(message)
    if json:
        Output().json(scheduled_shape(scheduled))
    else:
        Output().line(scheduled.id, instant(scheduled.due) or "-", _how(scheduled))
    return 0


def _how(scheduled: Scheduled) -> str:
    if scheduled.state == State.DELIVERED:
        return "already delivered"
    return "scheduled" if scheduled.created else "already scheduled"


def _body(text: str | None, file: str | None, is_json: bool, limit: int) -> Any:
    if text is not None and file is not None:
        raise BadUse("give the body as BODY or by --body-file, not both")
    raw: bytes = (text or "").encode() if file is None else _read(file, limit)
    if is_json:
        try:
            msgspec.json.decode(raw)
            return msgspec.Raw(raw)  # as it came: numbers keep all their digits
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise BadUse(f"BODY: it is no JSON value ({error})") from None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _read(file: str, limit: int) -> bytes:
    """At most one byte over the limit, which is then refused."""
    try:
        if file == "-":
            return sys.stdin.buffer.read(limit + 1)
        with Path(file).open("rb") as opened:
            return opened.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadUse(f"--body-file: {file} cannot be read: {reason}") from None


def cancel(
    ids: Ids = None,
    key: Annotated[str | None, _option("--key", help="All messages that carry this business key.")] = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Cancel messages; print what became of each. Exit 1 unless all of them are cancelled for certain."""
    if bool(ids) == (key is not None):
        raise BadUse("say what to cancel: ids, or --key")
    with connect(redis_url) as client:
        outcomes = client.cancel_by_key(key) if key is not None else client.cancel_many(ids or ())
    results = [one for one in outcomes if isinstance(one, Cancelled)]
    if json:
        Output().json({"results": [{"id": one.id, "result": one.result} for one in results]})
    else:
        for one in results:
            Output().line(one.id, one.result)
    for one in outcomes:
        if isinstance(one, StoreError):
            raise one
    if key is not None and not results:
        say(f"no message carries the key {key}.")
        return 1
    return 0 if all(one.result == "cancelled" for one in results) else 1


def reschedule(
    id: Annotated[str, typer.Argument(help="The message.")],
    delay: Delay = None,
    at: At = None,
    level: Level = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Give a message another due, while it can still be cancelled for certain; print id and due."""
    due = due_of(delay, at, level)
    with connect(redis_url) as client:
        outcome = client.reschedule(id, **due)
        queue = client.context().layout.queue_of(id)
    if outcome.result == "not_found":
        say(_UNKNOWN.format(id=id) + ".")
        return 1
    if outcome.due is None:
        raise BadUse(f"{id} {_WHY.get(outcome.result, outcome.result)}")
    if json:
        Output().json(scheduled_shape(Scheduled(id=id, queue=queue, due=outcome.due)))
    else:
        Output().line(id, instant(outcome.due) or "-", "scheduled")
    return 0


def get(
    id: Annotated[str, typer.Argument(help="The message.")], redis_url: RedisUrl = None, json: AsJson = False
) -> int:
    """Print what is known of a message."""
    with connect(redis_url) as client:
        found = client.get(id)
        queue = client.context().layout.queue_of(id)
    if found is None:
        say(_UNKNOWN.format(id=id) + ".")
        return 1
    shape = state_shape(found, queue)
    if json:
        Output().json(shape)
        return 0
    message = shape.pop("message") or {}
    if message:
        message["body"] = body_text(message)
        message.pop("bodyBase64", None)
    Output().fields((name, _cell(value)) for name, value in (shape | message).items() if value is not None)
    return 0


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)


def find(
    key: Annotated[str, typer.Argument(help="The business key.")], redis_url: RedisUrl = None, json: AsJson = False
) -> int:
    """Print the messages that carry a business key and have not ended, by due."""
    with connect(redis_url) as client:
        found = client.find(key)
        layout = client.context().layout
    shapes = [state_shape(one, layout.queue_of(one.id)) for one in found]
    if json:
        Output().json({"messages": shapes})
    elif shapes:
        columns = ("id", "state", "due", "attempts", "topic")
        Output().table(columns, ([one["id"], one["state"], one["dueTime"] or "-", str(one["attempts"]), _topic(one)] for one in shapes))
    if not shapes:
        say(f"no message carries the key {key}.")
    return 0 if shapes else 1


def _topic(shape: dict[str, Any]) -> str:
    return str(shape["message"]["topic"]) if shape["message"] else "-"
