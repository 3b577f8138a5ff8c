"""The targets of topics: the first route whose pattern matches applies.

A route also has the check for messages that its target can never accept: such a message is refused when it is
scheduled.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from delayq.base.errors import ConfigError, InvalidMessage, MissingExtra
from delayq.base.remembered import Remembered
from delayq.base.urls import split_url
from delayq.base.written import BYTE_ORDER_MARK, converted, kind_of, parsed
from delayq.domain.message import MOST, MOST_ATTEMPTS, MOST_NUMBER, NAMESPACE, Message, check_topic
from delayq.domain.patterns import check_pattern, compiled, covered

LOCAL: Final = "redis+stream:"
#: ms; a worker reads every queue at least once per second.
MOST_SLACK: Final = 1_000
#: The number of topics whose route is remembered.
TOPICS: Final = 10_000
#: Targets without their own options.
NO_OPTIONS: Final = ("redis+stream", "log")
#: Targets that are no streams of Redis, and targets that connect to every address. Others are those of an application.
_WITHOUT_STREAMS: Final = ("http", "https", "kafka", "log", "rabbitmq", "rabbitmqs", "rocketmq")
_FREE: Final = ("kafka", "log", "rabbitmq", "rabbitmqs", "redis+stream", "rocketmq")
_HOST: Final = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_HOSTS: Final = re.compile(f"{_HOST}(?:[,;]{_HOST})*")
_PLACEHOLDER: Final = "{topic}"
_VARIABLE: Final = "DELAYQ_ROUTES"
_BRACES: Final = re.compile(r"\{[^{}]*\}|[{}]")


class Route(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A line of the route table.

    `match` is a topic pattern with `*` and `?`. `target` is a target's URL. `redis+stream:` without a host is a stream in
    delayq's own Redis, to which messages are delivered exactly once, unless `path` is 'general'. `stream` names the
    stream, where `{topic}` stands for the topic. `max_length` trims it; by default it is never trimmed. `max_backlog`
    bounds the unread entries of its consumers: above it, messages wait in delayq. Such a route uses the general path.
    `per_queue` makes one stream in each queue, beside the queue's own keys. Delivery is then exactly once in a Redis
    Cluster too. `max_attempts` and `send_timeout` (ms) override the worker's. `slack` is how late (ms) its messages may
    be sent, so that more of them are sent together. `options` are the target's own and may contain secrets. `allow` are
    networks and names that are not public, to which a target that checks addresses may connect.
    """

    name: str
    match: str = "*"
    target: str = LOCAL
    stream: str | UnsetType = UNSET
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
        """Return the route as text, without its secrets."""
        return f"Route(name={self.name!r}, match={self.match!r})"

    @property
    def shown_target(self) -> str:
        """Return the target's kind and hosts, without login, path and query, which may contain secrets."""
        scheme, _, rest = self.target.partition(":")
        if not rest.startswith("//"):
            return f"{scheme}:"
        authority = re.split(r"[/?#]", rest[2:], maxsplit=1)[0]
        hosts = authority.rpartition("@")[2]
        # Text that is not a list of hosts may be a piece of a password that was not escaped.
        return f"{scheme}://{hosts if _HOSTS.fullmatch(hosts) else '…'}"

    def stream_of(self, topic: str) -> str:
        """Return the name of the topic's stream."""
        return self.streams.replace(_PLACEHOLDER, topic)

    @property
    def streams(self) -> str:
        """The name of its streams, where `{topic}` stands for the topic."""
        return self.stream or _PLACEHOLDER

    @property
    def unused(self) -> tuple[str, ...]:
        """The names of its settings that its kind of target ignores."""
        kind = split_url(self.target).scheme
        found = ["stream"] if kind in _WITHOUT_STREAMS and self.streams != _PLACEHOLDER else []
        found += ["maxLength"] if kind in _WITHOUT_STREAMS and self.max_length is not None else []
        found += ["path"] if kind != "redis+stream" and self.path != "auto" else []
        found += ["allow"] if kind in _FREE and self.allow else []
        return tuple(found)

    @property
    def numbers(self) -> tuple[tuple[str, int | None, int, int, str], ...]:
        """The name, value, least and largest value and unit of each number."""
        return (
            ("maxLength", self.max_length, 1, MOST, ""),
            ("maxBacklog", self.max_backlog, 1, MOST, ""),
            ("maxAttempts", self.max_attempts, 1, MOST_ATTEMPTS, ""),
            ("sendTimeout", self.send_timeout, 1, MOST_NUMBER, " ms"),
            ("slack", self.slack, 0, MOST_SLACK, " ms"),
        )

    @property
    def own_stream(self) -> str | None:
        """The name of its streams if they lie in delayq's own Redis by this URL; None for other targets."""
        return self.streams if self.target == LOCAL else None

    def check(self) -> None:
        """Raise ConfigError for an invalid route."""
        try:
            check_topic(self.name, "name")
        except InvalidMessage as error:
            raise ConfigError(f"route {self.name!r}: {error}") from None
        try:
            check_pattern(self.match)
        except InvalidMessage as error:
            reason = f"the pattern {self.match!r:.100} {error.reason}; several patterns need a route each"
            raise ConfigError(f"route {self.name}: {reason}") from None
        if self.path not in ("auto", "general"):
            raise ConfigError(f"route {self.name}: path must be 'auto' or 'general', not {self.path!r}")
        if self.per_queue and (self.path == "general" or self.target != LOCAL):
            raise ConfigError(f"route {self.name}: perQueue needs streams in delayq's own Redis ({LOCAL}, path auto)")
        if self.max_backlog is not None and (self.per_queue or split_url(self.target).scheme != "redis+stream"):
            raise ConfigError(f"route {self.name}: maxBacklog needs streams ({LOCAL}) without perQueue")
        if self.streams.startswith("delayq:"):
            raise ConfigError(f"route {self.name}: a stream's name must not begin with 'delayq:'")
        if self.stream == "" or self.streams != self.streams.strip():
            reason = "a stream's name must not be empty, and not begin or end with a space"
            raise ConfigError(f"route {self.name}: {reason}; omit `stream` for one stream per topic")
        stray = stray_braces(self.streams)
        if stray and _PLACEHOLDER not in self.streams and not _is_hash_tag(stray):
            reason = f"the stream has {stray[:40]!r}, which is not {_PLACEHOLDER}, so all topics would share it"
            remedy = f"write {_PLACEHOLDER}, or a hash tag that does not look like it, such as {{shop}}"
            raise ConfigError(f"route {self.name}: {reason}; {remedy}")
        for field, value, least, most, unit in self.numbers:
            if value is not None and not least <= value <= most:
                raise ConfigError(f"route {self.name}: {field} must be from {least} to {most}{unit}")
        if not split_url(self.target).scheme:
            raise ConfigError(f"route {self.name}: target must be a URL, such as 'redis+stream:' or 'log:'")
        if self.options and split_url(self.target).scheme in NO_OPTIONS:
            raise ConfigError(f"route {self.name}: targets of this kind have no options")


def _is_hash_tag(braces: str) -> bool:
    """Whether braces without `{topic}` may be a hash tag of Redis Cluster, and not a misspelled `{topic}`."""
    tag = braces[1:-1].strip().lower()
    return bool(tag) and not difflib.get_close_matches(tag, ["topic"], n=1, cutoff=0.6)


def stray_braces(text: str) -> str:
    """Return the first braces in the text that are not `{topic}`, such as a misspelled placeholder; '' without any."""
    return next((found for found in _BRACES.findall(text) if found != _PLACEHOLDER), "")


class Check(Protocol):
    """The check for messages that a route's target can never accept, by the message and the route alone.

    It contains no secrets of its route, because it is passed to other processes. A check that never depends on the body
    may set `reads_body = False`: many messages are then checked together.
    """

    def __call__(self, message: Message) -> None:
        """Raise InvalidMessage for a message that the target would reject each time, whatever its state."""


CheckFactory = Callable[[Route], Check]

_registered: dict[str, CheckFactory] = {}


def register_check(scheme: str, factory: CheckFactory) -> None:
    """Register the check of a kind of target in this process, without an entry point."""
    _registered[scheme] = factory


def _check_of(route: Route) -> Check | None:
    """Return the check of the route's kind of target, by the entry points of the group `delayq.checks`; None without
    one.
    """
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
    """The route table. Without one, every topic is delivered to a stream of its name in delayq's own Redis."""

    def __init__(self, routes: Sequence[Route] | None = None) -> None:
        self.table = tuple(routes) if routes is not None else (Route(name="streams"),)
        for route in self.table:
            route.check()
        names = [route.name for route in self.table]
        if len(set(names)) != len(names):
            raise ConfigError("two routes have the same name; rename one")
        self._patterns = [(compiled(route.match), route) for route in self.table]
        self._known: Remembered[str, tuple[Route | None, Check | None]] = Remembered(TOPICS)
        self._checks: dict[str, Check | None] = {}
        #: ms that a queue with due messages may wait: it has messages of all routes.
        self.slack = min((route.slack for route in self.table), default=0)

    def within(self, namespace: str) -> Routes:
        """Return the same table for a namespace, whose streams begin with its name unless a route names them."""
        if namespace == NAMESPACE:
            return self
        for route in self.table:
            if route.stream and route.stream.startswith(f"{namespace}:"):
                reason = f"a stream's name must not begin with {f'{namespace}:'!r}, as delayq's own keys do"
                raise ConfigError(f"route {route.name}: {reason}; omit `stream`, or choose another name")
        own = f"{namespace}:{_PLACEHOLDER}"
        return Routes(
            [route if route.stream or route.per_queue else replace(route, stream=own) for route in self.table]
        )

    def allowing(self, more: Sequence[str]) -> Routes:
        """Return the same table, with these networks and names allowed to every route too."""
        if not more:
            return self
        return Routes(
            [
                route if split_url(route.target).scheme in _FREE else replace(route, allow=(*route.allow, *more))
                for route in self.table
            ]
        )

    def bare(self) -> Routes:
        """Return the table for another process: its topics and the refusals of their targets, without secrets."""
        routes = Routes([Route(name=route.name, match=route.match, target=route.shown_target) for route in self.table])
        routes._checks = {route.name: self._check(route) for route in self.table}
        return routes

    def find(self, topic: str) -> Route | None:
        """Return the topic's route; None if no pattern matches."""
        return self.look(topic)[0]

    def look(self, topic: str) -> tuple[Route | None, Check | None]:
        """Return the topic's route, and the check of its target."""
        try:
            return self._known[topic]
        except KeyError:
            pass
        route = next((route for pattern, route in self._patterns if pattern.match(topic)), None)
        return self._known.keep(topic, (route, self._check(route) if route is not None else None))

    def _check(self, route: Route) -> Check | None:
        """Return the route's check, which is made on first use."""
        if route.name not in self._checks:
            self._checks[route.name] = _check_of(route)
        return self._checks[route.name]


def _check_reached(table: Sequence[Route], where: str) -> None:
    """Raise ConfigError for a route that gets no message, because an earlier one takes all of its topics."""
    for place, before in covered(tuple(route.match for route in table)).items():
        route, earlier = table[place], table[before]
        raise ConfigError(
            f"{where}: route {route.name}: its pattern {route.match!r} gets no message; the earlier route "
            f"{earlier.name} with {earlier.match!r} takes all its topics. Put {route.name} first, or remove it"
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    routes: list[Route]


def load_routes(value: str) -> Routes:
    """Return the table of DELAYQ_ROUTES: '' for none, JSON, or the path of a JSON, YAML or TOML file with a list
    `routes`.
    """
    text = value.strip().removeprefix(BYTE_ORDER_MARK).lstrip()
    if not text:
        return Routes()
    kind, where = "JSON", _VARIABLE
    if not text.startswith(("[", "{")):
        path = Path(os.path.expanduser(value))
        kind, where = kind_of(path), f"{_VARIABLE}: {value}"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{_VARIABLE}: cannot read {value}: {reason}") from None
    try:
        data = parsed(text, kind)
        routes = Routes(converted(data, _File).routes if isinstance(data, dict) else converted(data, list[Route]))
    except ImportError:
        raise MissingExtra(f"{where} is YAML, which", "cli") from None
    except ConfigError as error:
        raise (error if where == _VARIABLE else ConfigError(f"{where}: {error}")) from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    _check_reached(routes.table, where)
    return routes
