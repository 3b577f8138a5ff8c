"""The command tail: watch the stream in which a topic's messages arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Annotated, Any

import typer
from msgspec import UNSET

from delayq.answers.times import instant
from delayq.base.clock import Clock, SystemClock, pause
from delayq.base.errors import StoreError, StoreUnavailable
from delayq.base.json_text import text_or_base64
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.cli.options import AsJson, BadUse, RedisUrl, option, settings_of
from delayq.client.client import Client
from delayq.config import Settings
from delayq.domain.message import check_topic
from delayq.domain.nodes import NodeLine
from delayq.domain.routes import Route
from delayq.store.commands import Command, plain
from delayq.store.connect.store import Store
from delayq.store.keys import Keys
from delayq.targets.redis_stream.target import redis_url_of

MOST = 50
STEP = 500  # ms; the longest wait of one read
START = b"0-0"
#: The target of a route whose streams, if any, cannot be read from here.
ELSEWHERE = "elsewhere:"

Entry = tuple[bytes, dict[bytes, bytes]]


def tail(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to watch.")],
    from_start: Annotated[bool, option("--from-start", help="Begin with the oldest entry, not with the next.")] = False,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, metavar="N", help="Stop after this many entries.", show_default=False),
    ] = None,
    stream: Annotated[str | None, option("--stream", metavar="NAME", help="Stream, if no route names it.")] = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Print the entries of a topic's stream until Ctrl-C.

    Each line has the due time, the lateness in ms, the id, the tags and the body.
    """
    settings = settings_of(redis_url)
    name, url = _stream_of(_route_of(settings, check_topic(topic)), topic, stream, settings)
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
    """Return the topic's route from the tables of live workers, or from the local table if no worker is live."""
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
        return own  # only the local table has the complete URL
    return Route(name=found.name, target=ELSEWHERE)


def _stream_of(route: Route | None, topic: str, named: str | None, settings: Settings) -> tuple[str, str]:
    """Return the stream and the URL of its Redis."""
    if route is None or not route.target.startswith("redis+stream:"):
        if named is None:
            where = "no route matches it" if route is None else f"its route {route.name} has another target"
            raise BadUse(f"{topic} has no stream to watch, because {where}; name one with --stream")
        return named, settings.redis_url
    if route.per_queue and named is None:
        one = Keys(settings.namespace).queue(0).stream(route.stream_of(topic))
        raise BadUse(f"{topic} has one stream in each queue; name one with --stream, such as '{one}'")
    return named if named is not None else route.stream_of(topic), redis_url_of(route.target, settings.redis_url)


def watch(store: Store, stream: str, *, from_start: bool, step: int, clock: Clock) -> Iterator[Entry]:
    """Yield the entries of a stream as they arrive. Waits while Redis is unreachable. Raises StoreError."""
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
            raise BadUse(f"the key {stream} is not a stream") from None
        raise


def _newest(stream: str) -> Command[bytes]:
    # '$' would mean another position in every read, and skip entries that arrive between two reads.
    return plain("XREVRANGE", stream, "+", "-", "COUNT", 1, read=lambda reply: reply[0][0] if reply else START)


def _next(stream: str, last: bytes, step: int) -> Command[list[Entry]]:
    return plain("XREAD", "COUNT", MOST, "BLOCK", step, "STREAMS", stream, last, read=_read, key=stream)


def _read(reply: Any) -> list[Entry]:
    if not reply:
        return []
    # A deleted entry has no fields.
    return [(id, dict(zip(words[::2], words[1::2], strict=True))) for id, words in reply[0][1] if words]


def entry_shape(id: bytes, fields: dict[bytes, bytes]) -> dict[str, Any]:
    """Return an entry as JSON, without fields that are not delayq's. The lateness is by the clock of Redis."""
    texts = {name.decode(errors="replace"): value for name, value in fields.items()}
    shape: dict[str, Any] = {"entry": id.decode()}
    for name in ("id", "topic", "tags"):
        if value := texts.get(name):
            shape[name] = value.decode(errors="replace")
    if keys := texts.get("keys"):
        shape["keys"] = keys.decode(errors="replace").split(" ")
    body, encoded = text_or_base64(texts.get("body", b""))
    shape |= {"bodyBase64": encoded} if body is UNSET else {"body": body}
    if (due := texts.get("due", b"")).isdigit() and len(due) < 14:
        shape |= {"dueTime": instant(int(due)), "dueMs": int(due)}
        shape["lateness"] = int(id.partition(b"-")[0]) - int(due)
    if (attempt := texts.get("attempt", b"")).isdigit() and len(attempt) < 14:
        shape["attempt"] = int(attempt)
    properties = {name[2:]: value.decode(errors="replace") for name, value in texts.items() if name.startswith("p:")}
    return shape | ({"properties": properties} if properties else {})


def _cells(shape: dict[str, Any]) -> Sequence[object]:
    late = f"{shape['lateness']:+d} ms" if "lateness" in shape else None
    body = shape["body"] if "body" in shape else f"base64:{shape['bodyBase64']}"
    return shown(shape.get("dueTime")), late, shape.get("id"), shape.get("tags"), body
