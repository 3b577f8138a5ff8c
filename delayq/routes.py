"""Which topics go to which target: the first route whose pattern matches takes the topic."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from delayq.errors import ConfigError, InvalidMessage
from delayq.message import check_topic

__all__ = ["Route", "Routes", "load_routes"]

LOCAL: Final = "redis+stream:"
#: Targets without options of their own.
NO_OPTIONS: Final = ("redis+stream", "log")


class Route(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One line of the route table.

    `match` is a topic pattern with `*` and `?`. `target` is a target's URL; `redis+stream:` without a host is a
    stream in delayq's own Redis, into which messages go exactly once, unless `path` is 'general'. `stream` names
    the stream, `{topic}` in it stands for the topic; `max_length` trims it (by default it never is). `max_backlog` bounds
    what its consumers have yet to do: beyond it messages wait here; it takes the general path. `per_queue`
    makes one stream of it in each queue, beside the queue's own keys: so it is exactly once in a Redis Cluster, too.
    `max_attempts` and `send_timeout` (ms) override the worker's. `options` are the target's own; there may be secrets
    among them. `allow` are the networks and names to which a target that checks its addresses may connect although
    they are not public.
    """

    name: str
    match: str = "*"
    target: str = LOCAL
    stream: str = "{topic}"
    max_length: int | None = None
    max_backlog: int | None = None
    path: str = "auto"
    per_queue: bool = False
    max_attempts: int | None = None
    send_timeout: int | None = None
    options: Mapping[str, Any] = {}
    allow: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Route(name={self.name!r}, match={self.match!r})"

    def stream_of(self, topic: str) -> str:
        """The name of the topic's stream."""
        return self.stream.replace("{topic}", topic)

    def check(self) -> None:
        """Raise ConfigError if the route makes no sense."""
        try:
            check_topic(self.name, "name")
        except InvalidMessage as error:
            raise ConfigError(f"route {self.name!r}: {error}") from None
        if self.path not in ("auto", "general"):
            raise ConfigError(f"route {self.name}: path is 'auto' or 'general', not {self.path!r}")
        if self.per_queue and (self.path == "general" or self.target != LOCAL):
            raise ConfigError(f"route {self.name}: perQueue is for streams in delayq's own Redis ({LOCAL}, path auto)")
        if self.max_backlog is not None and (self.per_queue or urlsplit(self.target).scheme != "redis+stream"):
            raise ConfigError(f"route {self.name}: maxBacklog is for streams ({LOCAL}), and not with perQueue")
        if self.stream.startswith("delayq:"):
            raise ConfigError(f"route {self.name}: a stream's name must not begin with 'delayq:'")
        for field, value in (
            ("maxLength", self.max_length), ("maxBacklog", self.max_backlog), ("maxAttempts", self.max_attempts),
            ("sendTimeout", self.send_timeout),
        ):  # fmt: skip
            if value is not None and value < 1:
                raise ConfigError(f"route {self.name}: {field} is at least 1")
        if not urlsplit(self.target).scheme:
            raise ConfigError(f"route {self.name}: target is a URL, such as 'redis+stream:' or 'log:'")
        if self.options and urlsplit(self.target).scheme in NO_OPTIONS:
            raise ConfigError(f"route {self.name}: targets of this kind have no options")


class Routes:
    """The route table. Without one, every topic goes to a stream of its name in delayq's own Redis."""

    def __init__(self, routes: Sequence[Route] | None = None) -> None:
        self.table = tuple(routes) if routes is not None else (Route(name="streams"),)
        for route in self.table:
            route.check()
        names = [route.name for route in self.table]
        if len(set(names)) != len(names):
            raise ConfigError("two routes have the same name")
        self._patterns = [(re.compile(translate(route.match)), route) for route in self.table]
        self._known: dict[str, Route | None] = {}
        #: Whether there is a route for whatever topic.
        self.take_all = any(route.match == "*" for route in self.table)

    def allowing(self, more: Sequence[str]) -> Routes:
        """The same table, with these networks and names allowed to every route, too."""
        if not more:
            return self
        return Routes([msgspec.structs.replace(route, allow=(*route.allow, *more)) for route in self.table])

    def find(self, topic: str) -> Route | None:
        """The topic's route; None if no pattern matches."""
        try:
            return self._known[topic]
        except KeyError:
            pass
        found = next((route for pattern, route in self._patterns if pattern.match(topic)), None)
        if len(self._known) >= 10_000:  # topics come from outside: bounded
            self._known.clear()
        self._known[topic] = found
        return found

    def check(self, topic: str) -> None:
        """Raise InvalidMessage for a topic that has no route."""
        if self.find(topic) is None:
            raise InvalidMessage("topic", f"no route takes {topic!r}; add one to DELAYQ_ROUTES")


def load_routes(value: str) -> Routes:
    """The table of DELAYQ_ROUTES: '' for none, JSON, or the path of a JSON, YAML or TOML file with a list `routes`."""
    if not value.strip():
        return Routes()
    text = value
    kind = ".json"
    if not value.lstrip().startswith(("[", "{")):
        path = Path(os.path.expanduser(value))
        kind = path.suffix.lower()
        try:
            text = path.read_text()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"DELAYQ_ROUTES: {value} cannot be read: {reason}") from None
    try:
        if kind in (".yaml", ".yml"):
            data = msgspec.yaml.decode(text)
        elif kind == ".toml":
            data = msgspec.toml.decode(text)
        else:
            data = msgspec.json.decode(text)
        rows = data["routes"] if isinstance(data, dict) else data
        return Routes(msgspec.convert(rows, list[Route]))
    except ImportError:
        raise ConfigError(f"DELAYQ_ROUTES: {value} needs PyYAML (pip install pyyaml), or write JSON or TOML") from None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        reason = f"no list {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"DELAYQ_ROUTES: {reason}") from None
