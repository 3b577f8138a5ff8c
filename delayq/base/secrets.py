"""Secrets: written directly, or in a variable or a file that is named."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def as_utf8(value: str) -> str:
    """Return the value of a variable as UTF-8. Python has decoded it by the locale, which is ASCII in many units and
    images.

    A value that is not UTF-8 stays as Python has decoded it.
    """
    try:
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        return value


def revealed(text: str, what: str) -> str:
    """Return the secret in the variable (env:NAME) or the file (file:PATH) that the text names, or the text itself.

    Raises ValueError if it is missing; `what` is the purpose of the secret.
    """
    kind, _, name = text.partition(":")
    if kind == "env":
        if name not in os.environ:
            raise ValueError(f"{what}: the variable {name} is not set")
        return as_utf8(os.environ[name]).strip()
    if kind == "file":
        try:
            path = Path(os.fsdecode(name.encode("utf-8", "surrogateescape")))  # the reverse of `as_utf8`
            return path.read_text(encoding="utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ValueError(f"{what}: cannot read {name}: {reason}") from None
    return text


def with_user(url: str, user: str, password: str) -> str:
    """Return the URL of Redis with this user. Raises ValueError if the URL already names one, or if there is no
    password.
    """
    scheme, separator, rest = url.partition("://")
    place = rest.partition("?")[0]
    if not password:
        raise ValueError("DELAYQ_REDIS_USER needs DELAYQ_REDIS_PASSWORD, which must not be empty")
    if not separator:
        raise ValueError("DELAYQ_REDIS_URL contains no '://'; a Unix socket is unix:///path/of/the.sock")
    if "@" in place:
        raise ValueError("DELAYQ_REDIS_PASSWORD needs a DELAYQ_REDIS_URL without a user and a password")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"
