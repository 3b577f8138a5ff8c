"""The commands api-keys new, list and revoke. They edit the file that DELAYQ_API_KEYS names, and need no service."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say
from delayq.base.times import format_instant
from delayq.cli.options import AsJson, BadUse, option
from delayq.config import load_settings
from delayq.domain.api_keys import SCOPES, ApiKey, Scope, load_keys, make_key, write_keys

File = Annotated[str | None, option("--file", metavar="FILE", help="File of the keys; default: DELAYQ_API_KEYS.")]
COLUMNS: Final = ("id", "name", "scopes", "ids", "rate", "burst", "pending", "created", "audit", "console")


def _path(file: str | None) -> Path:
    named = file if file is not None else load_settings().api_keys
    if not named:
        raise BadUse("no key file is named; use --file or set DELAYQ_API_KEYS")
    return Path(named).expanduser()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the folder, so that no other run of these commands changes its files meanwhile."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"cannot open {path.resolve().parent}: {error.strerror or error}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _scopes(grants: list[str] | None) -> dict[str, list[Scope]]:
    scopes: dict[str, list[Scope]] = {}
    for grant in grants or ():
        pattern, equals, words = grant.partition("=")
        names = words.split(",")
        if not equals or not pattern or not all(name in SCOPES for name in names):
            raise BadUse(f"--allow: use 'orders.*={','.join(SCOPES)}' with some of these scopes, not {grant!r}")
        known = scopes.setdefault(pattern, [])
        known += [scope for scope in SCOPES if scope in names and scope not in known]
    if not scopes:
        raise BadUse("the key needs permissions; use --allow 'orders.*=schedule,cancel,read'")
    return scopes


def new(
    name: Annotated[str, typer.Argument(help="Name of the caller; it has one quota.")],
    allow: Annotated[
        list[str] | None,
        option("--allow", metavar="TOPICS=SCOPES", help="Scopes on topics: 'orders.*=read'; repeatable."),
    ] = None,
    ids: Annotated[str, option("--ids", metavar="PREFIX", help="Allow only ids with this prefix.")] = "",
    rate: Annotated[int | None, option("--rate", metavar="N", help="Maximum requests per second.")] = None,
    burst: Annotated[
        int | None, option("--burst", metavar="N", help="Maximum requests at once; default: the rate.")
    ] = None,
    pending: Annotated[int | None, option("--pending", metavar="N", help="Maximum number of waiting messages.")] = None,
    audit: Annotated[bool, option("--audit", help="Record its cancels and reschedules in the audit.")] = False,
    no_console: Annotated[bool, option("--no-console", help="Refuse the key in the console.")] = False,
    file: File = None,
    json: AsJson = False,
) -> int:
    """Create an API key and print it once; the file keeps only its hash.

    A running API accepts the key within seconds. Comments in the file are lost.
    """
    path = _path(file)
    scopes = _scopes(allow)
    created = format_instant(SystemClock().now())
    limits = {"ids": ids, "rate": rate, "burst": burst, "pending": pending}
    text, key = make_key(name, scopes, audit=audit, console=not no_console, created=created, **limits)
    with _alone(path):
        write_keys(path, [*(load_keys(path) if path.exists() else ()), key])
    answer = {"id": key.id, "name": key.name, "key": text}
    Output().answer(json, answer, answer.items())
    if not json:
        say("store the key now, it is not shown again; send it as 'Authorization: Bearer KEY'.")
    return 0


def list_(file: File = None, json: AsJson = False) -> int:
    """List the API keys without their secrets."""
    keys = load_keys(_path(file))
    if json:
        Output().json({"keys": [_shown(key) for key in keys]})
    else:
        rows = (_shown(key) | {"created": shown(key.created or None)} for key in keys)
        Output().table(COLUMNS, ([None if value == "" else value for value in row.values()] for row in rows))
    return 0


def _shown(key: ApiKey) -> dict[str, str | int | None]:
    scopes = " ".join(f"{pattern}={','.join(some)}" for pattern, some in key.scopes.items())
    return {
        "id": key.id,
        "name": key.name,
        "scopes": scopes,
        "ids": key.ids,
        "rate": key.rate,
        "burst": key.burst,
        "pending": key.pending,
        "created": key.created,
        "audit": key.audit or None,
        "console": None if key.console else False,
    }


def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key: the part after dq_.")],
    file: File = None,
) -> int:
    """Remove a key from the file. Exit 1 if no key has the id.

    A running API refuses the key within seconds.
    """
    path = _path(file)
    with _alone(path):
        keys = load_keys(path)
        left = [key for key in keys if key.id != id]
        if len(left) == len(keys):
            say("no key has this id; delayq api-keys list shows all keys.")
            return 1
        write_keys(path, left)
    say(f"revoked {id}.")
    return 0
