"""Options that several commands share, and the functions that read them."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delayq.cli.moments import BadUse, duration, moment
from delayq.cli.started_server import noted_url
from delayq.clock import SystemClock
from delayq.terminal import say, visible

if TYPE_CHECKING:
    from delayq.client.audit import By
    from delayq.client.client import Client
    from delayq.config import Settings

__all__ = [
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
    "by_me",
    "connect",
    "due_of",
    "duration",
    "moment",
    "option",
    "properties_of",
    "settings_of",
    "who",
]  # fmt: skip


def option(*names: str, help: str, metavar: str | None = None) -> Any:
    """An option whose help shows no default."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


RedisUrl = Annotated[
    str | None,
    option(
        "--redis-url", metavar="URL", help="The Redis to talk to; without it DELAYQ_REDIS_URL, or that of ./dev up."
    ),
]
AsJson = Annotated[bool, option("--json", help="Print JSON as the HTTP API answers it.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of messages.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="Most to print.")]
PageToken = Annotated[str | None, option("--page-token", metavar="TOKEN", help="What the page before ended with.")]
NoRouteCheck = Annotated[bool, option("--no-route-check", help="Accept topics that no live worker has a route for.")]
Verbose = Annotated[bool, option("--verbose", "-v", help="Print epochs, and times as Unix ms, too.")]
Reason = Annotated[str, option("--reason", metavar="TEXT", help="Why, for the audit.")]
Delay = Annotated[str | None, option("--delay", metavar="DURATION", help="From now: 30s, 1h30m, PT30M, 500ms.")]
At = Annotated[
    str | None, option("--at", metavar="TIME", help="15:30, tomorrow 09:00, 2027-01-31 15:30, +2h, RFC 3339, Unix ms.")
]
Level = Annotated[int | None, option("--level", metavar="N", help="A delay level, 1 (1 s) to 18 (2 h).")]
Window = Annotated[
    str | None, option("--window", metavar="DURATION", help="Spread by the id: due up to so much later.")
]

Due = dict[str, int | None]


def settings_of(redis_url: str | None) -> Settings:
    """The settings of the environment, with the Redis that was named; raises ConfigError.

    Where neither an option nor the environment names one, it is the one that ./dev up started from here, if that runs.
    """
    from delayq.config import load_settings, variable
    from delayq.store.connect.address import parse

    _say_warnings()
    if redis_url is None and variable("redis_url") not in os.environ:
        redis_url = noted_url()
    settings = load_settings() if redis_url is None else load_settings(redis_url=redis_url)
    parse(settings.redis_url)
    return settings


def _say_warnings() -> None:
    """Print the warnings of clients as sentences of the command line, each one once."""
    import logging  # only for commands that connect

    said: set[str] = set()

    class Sentences(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (text := record.getMessage()) not in said:
                said.add(text)
                say(f"{text}.")

    logging.getLogger("delayq.client").handlers = [Sentences()]


def connect(redis_url: str | None, *, check_routes: bool = True) -> Client:
    """A client for the Redis that was named; raises ConfigError."""
    from delayq.client.client import Client  # only for commands that connect

    return Client(settings=settings_of(redis_url), check_routes=check_routes)


def who() -> str:
    """The name of the caller: `cli:<user>@<host>`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # this user has no name here, as in many containers
        user = str(os.getuid())
    return visible(f"cli:{user}@{socket.gethostname()}")  # the environment may have bytes that are not UTF-8


def by_me(reason: str) -> By:
    """The caller of the command and the reason for the audit; one command is one act."""
    from delayq.client.audit import By, new_act

    return By(actor=who(), reason=reason, act=new_act())


def due_of(delay: str | None, at: str | None, level: int | None) -> Due:
    """The due time as the client takes it; raises BadUse."""
    if (delay is not None) + (at is not None) + (level is not None) != 1:
        raise BadUse("say when by exactly one of --delay, --at and --level")
    now = SystemClock().now()
    return {
        "delay_time": duration("--delay", delay),
        "expect_date": moment("--at", at, now, ahead=True, distance=False),
        "delay_level": level,
    }


def properties_of(pairs: Sequence[str] | None) -> dict[str, str]:
    """The properties of options such as 'name=value'; raises BadUse."""
    properties: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadUse(f"--property: write it as name=value, not {pair!r}")
        if name in properties:
            raise BadUse(f"--property: {name!r} is given twice")
        properties[name] = value
    return properties
