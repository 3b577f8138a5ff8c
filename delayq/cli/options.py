"""Options that several commands share, and the functions that read them."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import update_wrapper
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, cast, get_type_hints

import typer

from delayq.base.clock import SystemClock
from delayq.base.terminal import say, visible
from delayq.cli.moments import BadUse, duration, moment
from delayq.cli.started_server import noted_url

if TYPE_CHECKING:
    from delayq.client.audit import By
    from delayq.client.client import Client
    from delayq.config import Settings

__all__ = [
    "ApiUrl",
    "AsJson",
    "At",
    "BadUse",
    "Delay",
    "Due",
    "Ids",
    "Level",
    "Limit",
    "NoRouteCheck",
    "PageToken",
    "Reason",
    "RedisUrl",
    "Verbose",
    "Window",
    "api_url_of",
    "by_me",
    "connect",
    "connect_any",
    "due_of",
    "duration",
    "moment",
    "of_redis",
    "option",
    "properties_of",
    "settings_of",
    "who",
]  # fmt: skip


def option(*names: str, help: str, metavar: str | None = None) -> Any:
    """Return an option whose help shows no default."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


RedisUrl = Annotated[
    str | None,
    option("--redis-url", metavar="URL", help="Redis; default: DELAYQ_REDIS_URL, or ./dev up."),
]
Namespace = Annotated[
    str | None, option("--namespace", metavar="NAME", help="Namespace in Redis; default: DELAYQ_NAMESPACE, or delayq.")
]
ApiUrl = Annotated[
    str | None, option("--api", metavar="URL", help="HTTP API to call in place of Redis; default: DELAYQ_API_URL.")
]
AsJson = Annotated[bool, option("--json", help="Print JSON in the format of the HTTP API.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Message ids.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Entries to print.")]
PageToken = Annotated[str | None, option("--page-token", metavar="TOKEN", help="Token that the previous page printed.")]
NoRouteCheck = Annotated[bool, option("--no-route-check", help="Accept topics that no live worker has a route for.")]
Verbose = Annotated[bool, option("--verbose", "-v", help="Also print epochs, and times as Unix ms.")]
Reason = Annotated[str, option("--reason", metavar="TEXT", help="Reason, recorded in the audit.")]
Delay = Annotated[str | None, option("--delay", metavar="DURATION", help="Delay from now: 30s, 1h30m, PT30M, 500ms.")]
At = Annotated[str | None, option("--at", metavar="TIME", help="15:30, tomorrow 09:00, +2h, RFC 3339, Unix ms.")]
Level = Annotated[int | None, option("--level", metavar="N", help="Delay level, 1 (1 s) to 18 (2 h).")]
Window = Annotated[str | None, option("--window", metavar="DURATION", help="Spread due times over this time, by id.")]


class Due(TypedDict):
    """The due time as the client takes it."""

    delay_time: int | None
    expect_date: int | None
    delay_level: int | None


#: The namespace that the running command names.
_namespace: Final[ContextVar[str | None]] = ContextVar("namespace", default=None)


def in_namespace(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that takes the URL of a Redis with the option --namespace."""
    given = signature(command).parameters
    if "redis_url" not in given:
        return command

    def call(namespace: str | None = None, **options: Any) -> int:
        _namespace.set(namespace)
        return command(**options)

    shown: Any = update_wrapper(call, command)  # Typer reads the signature and the annotations
    del shown.__wrapped__
    hints = get_type_hints(command, include_extras=True) | {"namespace": Namespace}
    names = [two for one in given for two in ((one, "namespace") if one == "redis_url" else (one,))]
    all = {**given, "namespace": Parameter("namespace", Parameter.KEYWORD_ONLY, default=None)}
    shown.__signature__ = Signature(
        [all[name].replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]) for name in names]
    )
    shown.__annotations__ = hints
    return call


def settings_of(redis_url: str | None) -> Settings:
    """Return the settings of the environment, with the named Redis. Raises ConfigError.

    If neither an option nor the environment names a Redis, use the one that ./dev up started from this checkout, if it
    runs.
    """
    from delayq.config import load_settings, variable
    from delayq.store.connect.address import parse

    _say_warnings()
    if redis_url is None and variable("redis_url") not in os.environ:
        if os.environ.get(variable("api_url")):
            raise BadUse(f"the HTTP API has no endpoint for this command: give --redis-url, or {variable('redis_url')}")
        redis_url = noted_url()
    given = {"redis_url": redis_url, "namespace": _namespace.get()}
    settings = load_settings(**{name: value for name, value in given.items() if value is not None})
    parse(settings.redis_url)
    return settings


def _say_warnings() -> None:
    """Print the warnings of clients as sentences of the command line, each of them once."""
    import logging  # imported only by commands that connect

    said: set[str] = set()

    class Sentences(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (text := record.getMessage()) not in said:
                said.add(text)
                say(f"{text}.")

    logging.getLogger("delayq.client").handlers = [Sentences()]


def connect(redis_url: str | None, *, check_routes: bool = True) -> Client:
    """Return a client for the named Redis. Raises ConfigError."""
    from delayq.client.client import Client  # imported only by commands that connect

    return Client(settings=settings_of(redis_url), check_routes=check_routes)


def api_url_of(redis_url: str | None, api: str | None) -> str | None:
    """Return the URL of the HTTP API that an option or the environment names. Raises BadUse."""
    from delayq.config import variable

    if api is not None and redis_url is not None:
        raise BadUse("--api and --redis-url exclude each other: remove one of them")
    if api == "":
        raise BadUse("--api: write the URL of the HTTP API, such as https://delayq.example.com")
    url = api if redis_url is not None else api or os.environ.get(variable("api_url")) or None
    if url is not None and _namespace.get() is not None:
        raise BadUse("--namespace is for Redis, and the HTTP API has one of its own: remove it, or give --redis-url")
    return url


def connect_any(redis_url: str | None, api: str | None, *, check_routes: bool = True) -> Client:
    """Return a client of the HTTP API if an option or the environment names one, else of Redis. Raises ConfigError.

    Both have the same methods. Use `of_redis` for what only a client of Redis has.
    """
    if (url := api_url_of(redis_url, api)) is None:
        return connect(redis_url, check_routes=check_routes)
    if not check_routes:
        raise BadUse("--no-route-check needs Redis: the HTTP API checks the routes by itself")
    from delayq.http.client import Client as ApiClient

    _say_warnings()
    return cast("Client", ApiClient(url))


def of_redis(client: Client) -> Client | None:
    """Return the client if it is one of Redis."""
    from delayq.client.client import Client

    found: object = client
    return found if isinstance(found, Client) else None


def who() -> str:
    """Return the name of the caller: `cli:<user>@<host>`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name here, as in many containers
        user = str(os.getuid())
    return visible(f"cli:{user}@{socket.gethostname()}")  # the environment may contain bytes that are not UTF-8


def by_me(reason: str) -> By:
    """Return the caller of the command and the reason for the audit. One command is one act."""
    from delayq.client.audit import By, new_act

    return By(actor=who(), reason=reason, act=new_act())


def due_of(delay: str | None, at: str | None, level: int | None) -> Due:
    """Return the due time as the client takes it. Raises BadUse."""
    if (delay is not None) + (at is not None) + (level is not None) != 1:
        raise BadUse("the due time needs exactly one of --delay, --at and --level")
    now = SystemClock().now()
    return {
        "delay_time": duration("--delay", delay),
        "expect_date": moment("--at", at, now, ahead=True, distance=False),
        "delay_level": level,
    }


def properties_of(pairs: Sequence[str] | None) -> dict[str, str]:
    """Return the properties of options such as 'name=value'. Raises BadUse."""
    properties: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadUse(f"--property: use name=value, not {pair!r}")
        if name in properties:
            raise BadUse(f"--property: {name!r} is given twice; give each name once")
        properties[name] = value
    return properties
