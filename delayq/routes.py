"""Which topics go to which target: the first route whose pattern matches takes the topic.

And what a route's target can never take: whoever schedules such a message is told so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from delayq.errors import ConfigError, InvalidMessage, MissingExtra
from delayq.message import Message, check_topic
from delayq.remembered import Remembered
from delayq.urls import split_url

__all__ = ["Check", "CheckFactory", "Route", "Routes", "load_routes", "register_check"]

LOCAL: Final = "redis+stream:"
#: ms; a worker looks at every queue once a second.
MOST_SLACK: Final = 1_000
#: Topics of which the route is remembered.
TOPICS: Final = 10_000
#: Targets without options of their own.
NO_OPTIONS: Final = ("redis+stream", "log")
_HOST: Final = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(f"{_HOST}(?:[,;]{_HOST})*")


class Route(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One line of the route table.

    `match` is a topic pattern with `*` and `?`. `target` is a target's URL; `redis+stream:` without a host is a
    stream in delayq's own Redis, into which messages go exactly once, unless `path` is 'general'. `stream` names
    the stream, `{topic}` in it stands for the topic; `max_length` trims it (by default it never is). `max_backlog` bounds
    what its consumers have yet to do: beyond it messages wait here; it takes the general path. `per_queue`
    makes one stream of it in each queue, beside the queue's own keys: so it is exactly once in a Redis Cluster, too.
    `max_attempts` and `send_timeout` (ms) override the worker's. `slack` is how late (ms) its messages may go out, so that
    more of them go together. `options` are the target's own; there may be secrets
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
    slack: int = 0
    options: Mapping[str, Any] = {}
    allow: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without its secrets."""
        return f"Route(name={self.name!r}, match={self.match!r})"

    @property
    def shown_target(self) -> str:
        """The target's kind and hosts: no login, path or query, in which there may be secrets."""
        scheme, _, rest = self.target.partition(":")
        if not rest.startswith("//"):
            return f"{scheme}:"
        authority = re.split(r"[/?#]", rest[2:], maxsplit=1)[0]
        hosts = authority.rpartition("@")[2]
        # What is no list of hosts may be a piece of a password that was not escaped.
        return f"{scheme}://{hosts if _HOSTS.fullmatch(hosts) else '…'}"

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
        if self.max_backlog is not None and (self.per_queue or split_url(self.target).scheme != "redis+stream"):
            raise ConfigError(f"route {self.name}: maxBacklog is for streams ({LOCAL}), and not with perQueue")
        if self.stream.startswith("delayq:"):
            raise ConfigError(f"route {self.name}: a stream's name must not begin with 'delayq:'")
        for field, value in (
            ("maxLength", self.max_length),
            ("maxBacklog", self.max_backlog),
            ("maxAttempts", self.max_attempts),
            ("sendTimeout", self.send_timeout),
        ):
            if value is not None and value < 1:
                raise ConfigError(f"route {self.name}: {field} is at least 1")
        if not 0 <= self.slack <= MOST_SLACK:
            raise ConfigError(f"route {self.name}: slack is from 0 to {MOST_SLACK} ms")
        if not split_url(self.target).scheme:
            raise ConfigError(f"route {self.name}: target is a URL, such as 'redis+stream:' or 'log:'")
        if self.options and split_url(self.target).scheme in NO_OPTIONS:
            raise ConfigError(f"route {self.name}: targets of this kind have no options")


class Check(Protocol):
    """What a route's target can never take, known by the message and the route alone.

    It has no secrets of its route: it is handed on to other processes. One whose answer never depends on the body may
    say so by `reads_body = False`: many messages are then looked at together.
    """

    def __call__(self, message: Message) -> None:
        """Raise InvalidMessage for a message that the target would reject each time, whatever state it is in."""


CheckFactory = Callable[[Route], Check]

_registered: dict[str, CheckFactory] = {}


def register_check(scheme: str, factory: CheckFactory) -> None:
    """Make the check of a kind of target known to this process without an entry point."""
    _registered[scheme] = factory


def _check_of(route: Route) -> Check | None:
    """The check of the route's kind of target: by the entry points of the group `delayq.checks`; None without one."""
    scheme = split_url(route.target).scheme
    if scheme in NO_OPTIONS:
        return None
    factory = _registered.get(scheme)
    if factory is None:
        found = entry_points(group="delayq.checks")
        if scheme not in found.names:
            return None
        factory = found[scheme].load()
    return factory(route)


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
        self._known: Remembered[str, tuple[Route | None, Check | None]] = Remembered(TOPICS)
        self._checks: dict[str, Check | None] = {}
        #: ms for which a queue may wait though something in it is due: it carries messages of all routes.
        self.slack = min((route.slack for route in self.table), default=0)

    def allowing(self, more: Sequence[str]) -> Routes:
        """The same table, with these networks and names allowed to every route, too."""
        if not more:
            return self
        return Routes([msgspec.structs.replace(route, allow=(*route.allow, *more)) for route in self.table])

    def bare(self) -> Routes:
        """The same table for another process: which topics it takes, and what their targets never do; no secrets."""
        routes = Routes([Route(name=route.name, match=route.match, target=route.shown_target) for route in self.table])
        routes._checks = {route.name: self._check(route) for route in self.table}
        return routes

    def find(self, topic: str) -> Route | None:
        """The topic's route; None if no pattern matches."""
        return self.look(topic)[0]

    def look(self, topic: str) -> tuple[Route | None, Check | None]:
        """The topic's route, and the check of its target."""
        try:
            return self._known[topic]
        except KeyError:
            pass
        route = next((route for pattern, route in self._patterns if pattern.match(topic)), None)
        return self._known.keep(topic, (route, self._check(route) if route is not None else None))

    def _check(self, route: Route) -> Check | None:
        """The route's check, made when it is asked for first."""
        if route.name not in self._checks:
            self._checks[route.name] = _check_of(route)
        return self._checks[route.name]


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
            text = path.read_text(encoding="utf-8")
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
        raise MissingExtra(f"DELAYQ_ROUTES: {value} is YAML, which", "cli") from None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        reason = f"no list {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(f"DELAYQ_ROUTES: {reason}") from None
