"""Sessions of the console: a cookie in place of a key, which no script of a page can read.

It says until when, and has a mark that only processes with the same file of keys and the same Redis can make. Each key has
a secret of its own for that: a key that is changed or revoked ends its sessions, and no others. The cookie's name comes of
that secret, too: browsers keep one cookie of a name for all ports of a host, behind which other installations may be.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from api.auth.caller import Caller
from api.wire.problems import CHALLENGE, WRONG, Problem

__all__ = ["COOKIE", "LASTS", "Cookie", "Sessions", "from_a_page", "from_own_page", "header"]

#: How the names of all cookies of sessions begin.
COOKIE: Final = b"dq_console_"
#: How long a session lasts, ms.
LASTS: Final = 12 * 3_600_000
_READ: Final = "read"


class Cookie(NamedTuple):
    """What the browser keeps, or with an empty value what it is to forget."""

    name: bytes
    value: bytes


class _Holder(NamedTuple):
    """Of a key that may have sessions: who comes by them, and what marks their cookies."""

    caller: Caller
    secret: bytes


class Sessions:
    """The sessions of these callers' keys; `read_only`: they may only look."""

    def __init__(self, callers: Iterable[Caller], redis_url: str, *, read_only: bool) -> None:
        self._read_only = read_only
        self._redis_url = redis_url
        self._holders: dict[bytes, _Holder] = {}
        for caller in callers:
            if caller.key is not None and _why_not(caller) is None:
                secret = _secret(redis_url, caller.hash)
                self._holders[_name(secret)] = _Holder(self._within(caller), secret)

    def _within(self, caller: Caller) -> Caller:
        """The caller, when it comes by a session."""
        key = caller.key
        assert key is not None
        if self._read_only:
            readable = {pattern: [one for one in scopes if one == _READ] for pattern, scopes in key.scopes.items()}
            key = replace(key, scopes={pattern: scopes for pattern, scopes in readable.items() if scopes})
        return caller.within_session(key)

    def begin(self, caller: Caller, now: int) -> Cookie:
        """A new session of a caller that has shown its key; raises Problem for one whose key may have none."""
        if (reason := _why_not(caller)) is not None:
            raise Problem("forbidden", reason)
        secret = _secret(self._redis_url, caller.hash)
        until = b"%d" % (now + LASTS)
        return Cookie(_name(secret), b"%s.%s" % (until, _mark(until, secret)))

    def begun(self, headers: Iterable[tuple[bytes, bytes]]) -> list[Cookie]:
        """The cookies in a request's headers that are of these callers, whatever they say; the longest path first."""
        return [cookie for cookie in _cookies(headers) if cookie.name in self._holders]

    def holder(self, headers: Sequence[tuple[bytes, bytes]], now: int) -> Caller:
        """Who comes by the session in a request's headers; raises Problem if there is none that is in force."""
        if not any(True for _ in _cookies(headers)):
            raise Problem("unauthorized", "Send a key: Authorization: Bearer dq_….", headers=CHALLENGE)
        if not from_own_page(headers):
            detail = "A session counts for requests of the console's own page alone (Sec-Fetch-Site: same-origin)."
            raise Problem("unauthorized", detail, headers=WRONG)
        for name, value in self.begun(headers)[:1]:
            caller, secret = self._holders[name]
            until, _, mark = value.partition(b".")
            if hmac.compare_digest(mark, _mark(until, secret)):
                if int(until) <= now:
                    detail = "This session has ended by its time: log in again."
                    raise Problem("unauthorized", detail, headers=WRONG)
                return caller
        # A cookie of a key that was revoked looks like one of another installation.
        detail = "There is no session here, or it has ended: its key was changed or revoked. Log in again."
        raise Problem("unauthorized", detail, headers=WRONG)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """The first header of this name, or nothing."""
    return next((value for one, value in headers if one == name), b"")


def from_own_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser says that a page of this very origin asks; no page can say so by itself."""
    return header(headers, b"sec-fetch-site") == b"same-origin"


def from_a_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a page asks for a change, for all that is known: what people do by hand, and no program.

    Over plain HTTP browsers say nothing of sites but to loopback, yet they name the page's origin with all but GET and HEAD.
    Programs leave both out, or could write either: this takes rights away, and gives none.
    """
    site = header(headers, b"sec-fetch-site")
    return site == b"same-origin" or (not site and any(name == b"origin" for name, _ in headers))


def _why_not(caller: Caller) -> str | None:
    """Why a key may have no session."""
    key = caller.key
    assert key is not None
    if not key.console:
        return "This key is not for the console: the file of keys says so (console: false)."
    if not any(_READ in scopes for scopes in key.scopes.values()):
        return "This key may look at nothing, and so does the console: it takes one with 'read' on some topics."
    return None


def _cookies(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[Cookie]:
    for kind, line in headers:
        if kind == b"cookie":
            for one in line.split(b";"):
                name, _, value = one.strip().partition(b"=")
                if name.startswith(COOKIE):
                    yield Cookie(name, value)


def _secret(redis_url: str, key_hash: str) -> bytes:
    return hashlib.sha256(f"session\n{redis_url}\n{key_hash}".encode()).digest()


def _name(secret: bytes) -> bytes:
    return COOKIE + hmac.digest(secret, b"name", "sha256").hex()[:12].encode()


def _mark(text: bytes, secret: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret, text, "sha256")).rstrip(b"=")
