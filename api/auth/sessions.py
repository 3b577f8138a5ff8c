"""Sessions of the console: a cookie in place of a key, which no script of a page can read.

A cookie has an expiry time and a mark that only processes with the same file of keys and the same Redis can make. Each
key has its own secret for that, so a change or revocation of a key ends its sessions and no others. The cookie's name
depends on that secret too, because browsers share cookies between all ports of a host, where other installations may
run.
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

#: The common prefix of the names of session cookies.
COOKIE: Final = b"dq_console_"
#: The duration of a session, in ms.
LASTS: Final = 12 * 3_600_000
_READ: Final = "read"


class Cookie(NamedTuple):
    """Return a Set-Cookie header. An empty value deletes the cookie."""

    name: bytes
    value: bytes


class _Holder(NamedTuple):
    """A key that may have sessions: their caller, and the mark of their cookies."""

    caller: Caller
    secret: bytes


class Sessions:
    """The sessions of these callers' keys. With `read_only`, they cannot change anything."""

    def __init__(self, callers: Iterable[Caller], redis_url: str, *, read_only: bool) -> None:
        self._read_only = read_only
        self._redis_url = redis_url
        self._holders: dict[bytes, _Holder] = {}
        for caller in callers:
            if caller.key is not None and _why_not(caller) is None:
                secret = _secret(redis_url, caller.hash)
                self._holders[_name(secret)] = _Holder(self._within(caller), secret)

    def _within(self, caller: Caller) -> Caller:
        """Return the caller if the request has a valid session."""
        key = caller.key
        assert key is not None
        if self._read_only:
            readable = {pattern: [one for one in scopes if one == _READ] for pattern, scopes in key.scopes.items()}
            key = replace(key, scopes={pattern: scopes for pattern, scopes in readable.items() if scopes})
        return caller.within_session(key)

    def begin(self, caller: Caller, now: int) -> Cookie:
        """Return a new session of a caller that has sent its key. Raises Problem for a key that may have none."""
        if (reason := _why_not(caller)) is not None:
            raise Problem("forbidden", reason)
        secret = _secret(self._redis_url, caller.hash)
        until = b"%d" % (now + LASTS)
        return Cookie(_name(secret), b"%s.%s" % (until, _mark(until, secret)))

    def begun(self, headers: Iterable[tuple[bytes, bytes]]) -> list[Cookie]:
        """Return the cookies of these callers in a request's headers, valid or not, longest path first."""
        return [cookie for cookie in _cookies(headers) if cookie.name in self._holders]

    def renewed(self, caller: Caller) -> Caller | None:
        """Return the caller of the same key's sessions; None if the key was changed, or may have no session now."""
        found = self._holders.get(_name(_secret(self._redis_url, caller.hash)))
        return None if found is None else found.caller

    def holder(self, headers: Sequence[tuple[bytes, bytes]], now: int) -> Caller:
        """Return the caller of the session in a request's headers. Raises Problem if there is no valid session."""
        if not any(True for _ in _cookies(headers)):
            raise Problem(
                "unauthorized", "The request has no key. Send the header Authorization: Bearer dq_….", headers=CHALLENGE
            )
        if not from_own_page(headers):
            detail = "A session is accepted only for requests of the console's own page (Sec-Fetch-Site: same-origin)."
            raise Problem("unauthorized", detail, headers=WRONG)
        for name, value in self.begun(headers)[:1]:
            caller, secret = self._holders[name]
            until, _, mark = value.partition(b".")
            if hmac.compare_digest(mark, _mark(until, secret)):
                if int(until) <= now:
                    detail = "This session has expired. Log in again."
                    raise Problem("unauthorized", detail, headers=WRONG)
                return caller
        # A cookie of a revoked key looks like a cookie of another installation.
        detail = "There is no valid session: its key was changed or revoked. Log in again."
        raise Problem("unauthorized", detail, headers=WRONG)


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    """Return the first header of this name, or nothing."""
    return next((value for one, value in headers if one == name), b"")


def from_own_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the browser declares a request of a page of the same origin. No page can forge that header."""
    return header(headers, b"sec-fetch-site") == b"same-origin"


def from_a_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a page may have made this change, that is, a person and not a program.

    Over plain HTTP, browsers send Sec-Fetch headers only to loopback, but they send the page's origin with every method
    except GET and HEAD. Programs omit both headers. A forged header only removes rights and grants none.
    """
    site = header(headers, b"sec-fetch-site")
    return site == b"same-origin" or (not site and any(name == b"origin" for name, _ in headers))


def _why_not(caller: Caller) -> str | None:
    """Return the reason why a key may have no session."""
    key = caller.key
    assert key is not None
    if not key.console:
        return "This key is not for the console (console: false in the file of keys)."
    if not any(_READ in scopes for scopes in key.scopes.values()):
        return "This key cannot read any topic. The console needs a key with 'read' on some topics."
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
