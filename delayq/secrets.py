"""Secrets: written out, or named by the variable or the file that has them."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

__all__ = ["as_utf8", "revealed", "with_user"]


def as_utf8(value: str) -> str:
    """The value of a variable as UTF-8. Python has decoded it by the locale, which is ASCII in many units and images.

    A value that is not UTF-8 stays as Python has decoded it.
    """
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        return value


def revealed(text: str, what: str) -> str:
    """What stands in the variable (env:NAME) or the file (file:PATH) that the text names, or the text itself.

    Raises ValueError without it, which says `what` the secret is for.
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        if name not in os.environ:
            raise ValueError(f"{what}: there is no variable {name} in the environment")
        return as_utf8(os.environ[name]).strip()
    if kind == "file":
        try:
            path = Path(os.fsdecode(name.encode("utf-8", "surrogateescape")))  # the reverse of `as_utf8`
            return path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(f"{what}: {name} cannot be read: {reason}") from None
    return text


def with_user(url: str, user: str, password: str) -> str:
    """The URL of Redis with this user; raises ValueError if it names one, or if there is no password."""
    scheme, separator, rest = url.partition("://")
    place = rest.partition("?")[0]
    if not password:
        raise ValueError("DELAYQ_REDIS_USER goes with DELAYQ_REDIS_PASSWORD, which must not be empty")
    if not separator:
        raise ValueError("DELAYQ_REDIS_URL has no '://' in it; a Unix socket is unix:///path/of/the.sock")
    if "@" in place:
        raise ValueError("DELAYQ_REDIS_PASSWORD is for a DELAYQ_REDIS_URL without a user and a password in it")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"
