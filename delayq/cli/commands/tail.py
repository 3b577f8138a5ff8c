"""tail: watch the stream that a topic's messages arrive in."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer

from delayq.answers.times import instant
from delayq.cli.options import AsJson, BadUse, RedisUrl, option, settings_of
from delayq.client.client import Client
from delayq.clock import Clock, SystemClock, pause
from delayq.config import Settings
from delayq.errors import StoreError, StoreUnavailable
from delayq.local_time import shown
from delayq.message import check_topic
from delayq.nodes import NodeLine
from delayq.routes import Route
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.store.keys import queue_keys
from delayq.targets.redis_stream.target import redis_url_of
from delayq.terminal import Output, say

__all__ = ["tail"]

MOST = 50
STEP = 500  # ms that one look waits at most
START = b"0-0"
#: The target of a route whose streams, if it has any, cannot be read from here.
ELSEWHERE = "elsewhere:"

Entry = tuple[bytes, dict[bytes, bytes]]


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to watch.")],
    from_start: Annotated[bool, option("--from-start", help="Begin with the oldest entry, not with the next.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="End after so many.", show_default=False)
    ] = None,
    stream: Annotated[str | None, option("--stream", metavar="NAME", help="The stream, if no route says it.")] = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Watch a topic's stream; Ctrl-C ends it.

    Each entry with its due, by how many ms it came after that, its id, tags and body.
    """
    settings = settings_of(redis_url)
    name, url = _stream_of(_route_of(settings, check_topic(topic)), topic, stream, settings.redis_url)
    step = max(1, min(STEP, settings.redis_timeout // 2))
    output = Output()
    with closing(Store(url, timeout=settings.redis_timeout / 1000)) as store, suppress(KeyboardInterrupt):
        entries = watch(store, name, from_start=from_start, step=step, clock=SystemClock())
        for id, fields in islice(entries, count):
            shape = entry_shape(id, fields)
            if json:
                output.json(shape, indent=False)
            else:
                output.row(("due", "late", "id", "tags", "body"), _cells(shape))
    return 0


def _route_of(settings: Settings, topic: str) -> Route | None:
    """The topic's route by the tables of the live workers; if no worker is live, by the table that is set here."""
    own = settings.route_table().find(topic)
    live: list[NodeLine] = []
    with (
        Client(settings=settings) as client,
        suppress(StoreError),
    ):  # the streams may lie in another Redis than this one
        live = [line for line in client.nodes().values() if not line.stale and line.tells_routes]
    if not live:
        return own
    found = next((one for line in live if (one := line.route_of(topic)) is not None), None)
    if found is None:
        return None
    if found.stream is not None:
        return Route(name=found.name, stream=found.stream, per_queue=found.per_queue)
    if own is not None and (own.name, own.match, own.shown_target) == (found.name, found.match, found.target):
        return own  # only here its whole URL is known
    return Route(name=found.name, target=ELSEWHERE)


def _stream_of(route: Route | None, topic: str, named: str | None, redis_url: str) -> tuple[str, str]:
    """The stream and the Redis that it lies in."""
    if route is None or not route.target.startswith("redis+stream:"):
        if named is None:
            where = "no route takes it" if route is None else f"its route {route.name} goes elsewhere"
            raise BadUse(f"{topic} has no stream to watch, for {where}; name one by --stream")
        return named, redis_url
    if route.per_queue and named is None:
        one = queue_keys(0).stream(route.stream_of(topic))
        raise BadUse(f"{topic} has a stream of its own in each queue; name one by --stream, such as '{one}'")
    return named if named is not None else route.stream_of(topic), redis_url_of(route.target, redis_url)


def watch(store: Store, stream: str, *, from_start: bool, step: int, clock: Clock) -> Iterator[Entry]:
    """The entries of a stream as they arrive; it waits for a Redis that went away. Raises StoreError."""
    last = START if from_start else _run(store, stream, _newest(stream))
    away = False
    while True:
        try:
            entries = _run(store, stream, _next(stream, last, step))
            away = False
        except StoreUnavailable as error:
            if not away:
                say(f"{error}; waiting for it")
            away = True
            pause(clock, step)
            continue
        for entry in entries:
            last = entry[0]
            yield entry


def _run(store: Store, stream: str, command: Command[Any]) -> Any:
    try:
        return store.run(command)
    except StoreError as error:
        if "WRONGTYPE" in str(error):
            raise BadUse(f"the key {stream} is no stream") from None
        raise


def _newest(stream: str) -> Command[bytes]:
    # '$' would mean another place at every look, and miss what comes between two.
    return plain("XREVRANGE", stream, "+", "-", "COUNT", 1, read=lambda reply: reply[0][0] if reply else START)


def _next(stream: str, last: bytes, step: int) -> Command[list[Entry]]:
    return plain("XREAD", "COUNT", MOST, "BLOCK", step, "STREAMS", stream, last, read=_read, key=stream)


def _read(reply: Any) -> list[Entry]:
    if not reply:
        return []
    # A deleted entry has no fields.
    return [(id, dict(zip(words[::2], words[1::2], strict=True))) for id, words in reply[0][1] if words]


def entry_shape(id: bytes, fields: dict[bytes, bytes]) -> dict[str, Any]:
    """An entry as JSON. Fields that are not delayq's are left out; the lateness is by the clock of Redis."""
    texts = {name.decode(errors="replace"): value for name, value in fields.items()}
    shape: dict[str, Any] = {"entry": id.decode()}
    for name in ("id", "topic", "tags"):
        if value := texts.get(name):
            shape[name] = value.decode(errors="replace")
    if keys := texts.get("keys"):
        shape["keys"] = keys.decode(errors="replace").split(" ")
    body = texts.get("body", b"")
    try:
        shape["body"] = body.decode()
    except UnicodeDecodeError:
        shape["bodyBase64"] = base64.b64encode(body).decode()
    if (due := texts.get("due", b"")).isdigit() and len(due) < 14:
        shape |= {"dueTime": instant(int(due)), "dueMs": int(due)}
        shape["lateness"] = int(id.partition(b"-")[0]) - int(due)
    if (attempt := texts.get("attempt", b"")).isdigit():
        shape["attempt"] = int(attempt)
    properties = {name[2:]: value.decode(errors="replace") for name, value in texts.items() if name.startswith("p:")}
    return shape | ({"properties": properties} if properties else {})


def _cells(shape: dict[str, Any]) -> Sequence[object]:
    late = f"{shape['lateness']:+d} ms" if "lateness" in shape else None
    body = shape["body"] if "body" in shape else f"base64:{shape['bodyBase64']}"
    return shown(shape.get("dueTime")), late, shape.get("id"), shape.get("tags"), body
