"""Authentication: API keys from a file that is read again when it changes, and the lock-out of callers with wrong keys.

Page tokens of callers with limited rights are encrypted, because they contain the id of a message that may not be
theirs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from api.auth.caller import ANYBODY, Caller
from api.auth.rates import Attempts, Bucket
from api.auth.sessions import Cookie, Sessions, from_a_page
from api.wire.problems import WRONG, Problem
from delayq import ConfigError, InvalidMessage, Settings
from delayq.base.clock import Clock, SystemClock
from delayq.base.remembered import Remembered
from delayq.domain.api_keys import ApiKey, hash_of, id_of, load_keys

#: The file is checked at this interval, in seconds.
LOOK_EVERY: Final = 1.0
#: Number of remembered headers with valid keys, by digest. A key may be written with more or less space.
VERIFIED: Final = 10_000
#: Number of remembered host names by which requests may address this service.
NAMES: Final = 1_000
_PORT: Final = re.compile(r":\d*$", re.ASCII)
_NOBODY: Final = "sha256:" + "0" * 64  # compared with ids that no key has

_NONCE: Final = 16
_MARK: Final = 16
#: The text of a token is padded to a multiple of this many bytes, because its length would reveal foreign ids.
_PADDED: Final = 512

_log = structlog.get_logger("api")


def refuse_open_door(settings: Settings) -> None:
    """Raise ConfigError for an API that others can reach and that needs no key, unless a setting allows it."""
    if settings.api_keys or settings.api_open or _is_loopback(settings.api_host):
        return
    raise ConfigError(
        f"DELAYQ_API_HOST: others can reach {settings.api_host or 'all addresses'}, and no keys are set; set "
        "DELAYQ_API_KEYS (delayq api-keys new creates a key), or DELAYQ_API_OPEN=yes-without-keys"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_loopback(host: bytes) -> bool:
    """Return whether a request's Host is one of this machine's own names."""
    return _is_loopback(_PORT.sub("", host.decode("latin-1")).lower().removeprefix("[").removesuffix("]"))


class Door:
    """Authenticates requests. Without a file of keys, every caller is accepted."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._redis_url = settings.redis_url
        self._secret = b""
        self._path = Path(settings.api_keys).expanduser() if settings.api_keys else None
        self._console = settings.console
        #: The host names of accepted requests, if they must be names of loopback; None if every name is accepted.
        self._names: Remembered[bytes, bool] | None = None
        if self._path is None and not settings.api_open and _is_loopback(settings.api_host):
            self._names = Remembered(NAMES)
        self.attempts = Attempts()
        self._callers: dict[str, Caller] = {}
        # The keys, the digests of headers with valid keys (a caller chooses the length of a header), and the sessions.
        # All of them belong to the same file.
        nobody = Sessions((), "", read_only=True)
        self._verified: tuple[dict[str, Caller], Remembered[bytes, Caller], Sessions] = (
            {},
            Remembered(VERIFIED),
            nobody,
        )
        self._seen: Any = None
        #: The reason why the current file is not in force; '' if it is.
        self.stale = ""
        if self._path is not None:
            self._seen = self._stamp()
            self._take(load_keys(self._path))

    @property
    def open(self) -> bool:
        """Return whether requests need no key."""
        return self._path is None

    def _stamp(self) -> object:
        """Return a value that changes whenever the file does."""
        assert self._path is not None
        try:
            status = self._path.stat()
        except OSError as error:
            return error.errno
        return status.st_ino, status.st_ctime_ns, status.st_mtime_ns, status.st_size

    def _take(self, keys: Sequence[ApiKey]) -> None:
        prefixes = {key.ids for key in keys if key.ids}
        now = self._clock.monotonic()
        callers: dict[str, Caller] = {}
        for key in keys:
            bucket = None
            if key.rate is not None:
                rate, burst = float(key.rate), float(key.burst or key.rate)
                old = self._callers[key.id].bucket if key.id in self._callers else None
                bucket = old if old is not None and old.like(rate, burst) else Bucket(rate, burst, now)
            callers[key.id] = Caller(key, tuple(prefixes - {key.ids}), bucket)
        # No holder of a key knows this secret: it needs the hashes of all keys, and the address of Redis.
        parts = [self._redis_url, *sorted(key.hash for key in keys)]
        self._secret = hashlib.sha256("\n".join(parts).encode()).digest()
        may = callers.values() if self._console != "no" else ()
        sessions = Sessions(may, self._redis_url, read_only=self._console == "readOnly")
        self._verified = (
            callers,
            Remembered(VERIFIED),
            sessions,
        )  # a header that was valid under other keys proves nothing
        self._callers = callers  # assigned at once, because the event loop may be in the middle of a request

    def look(self) -> None:
        """Read the file again if it has changed. An invalid file changes nothing, is reported, and is tried again."""
        if self._path is None:
            return
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            keys = load_keys(self._path)
        except ConfigError as error:
            self._seen = None  # an error of reading may disappear without a change of the file
            if self.stale != str(error):
                self.stale = str(error)
                _log.error("keys_not_taken", reason=self.stale, keys=len(self._callers))
            return
        self._seen = stamp
        self.stale = ""
        self._take(keys)
        _log.info("keys_taken", keys=len(keys))

    async def watch(self) -> None:
        """Check the file at an interval, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                _log.exception("keys_look_failed")

    def seal(self, text: str) -> str:
        """Encrypt a page token, so that no caller can read it or infer the length of an id in it."""
        nonce = os.urandom(_NONCE)
        raw = text.encode()
        hidden = _mask(raw + b"\0" * (-len(raw) % _PADDED), self._secret, nonce)
        return base64.urlsafe_b64encode(nonce + _mark(hidden, self._secret, nonce) + hidden).decode().rstrip("=")

    def unseal(self, token: str) -> str:
        """Return the text of a page token. Raises InvalidMessage for a token that was not made with these keys."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        # The last character of base 64 may contain unused bits.
        if base64.urlsafe_b64encode(raw).decode().rstrip("=") != token:
            raw = b""
        nonce, mark, hidden = raw[:_NONCE], raw[_NONCE : _NONCE + _MARK], raw[_NONCE + _MARK :]
        if not hidden or not hmac.compare_digest(mark, _mark(hidden, self._secret, nonce)):
            raise InvalidMessage(
                "pageToken", "is not a token that this key received from this API; start without a token"
            )
        return _mask(hidden, self._secret, nonce).rstrip(b"\0").decode()

    def guest(self, scope: Any) -> Caller:
        """Return the caller of an API without keys. Raises Problem for a Host that is not of this machine.

        Without keys, a page of another site could reach the API by a name that resolves to this machine (DNS
        rebinding).
        """
        if self._names is not None:
            for name, value in scope["headers"]:
                if name == b"host" and value not in self._names:
                    self._take_name(value, self._names)
        return ANYBODY

    @staticmethod
    def _take_name(host: bytes, names: Remembered[bytes, bool]) -> None:
        if not names_loopback(host):
            detail = (
                "This API needs no keys, so address it as localhost or 127.0.0.1. Otherwise set DELAYQ_API_KEYS, "
                "or DELAYQ_API_OPEN=yes-without-keys to allow every caller everything."
            )
            raise Problem("misdirected", detail)
        names.keep(host, True)

    def enter(self, scope: Any, path: str) -> Caller:
        """Return the caller of a request. Raises Problem for an unknown caller, too many requests, and calls that a
        page may not make.
        """
        caller = self.guest(scope) if self._path is None else self._known(scope, path)
        if self._console == "readOnly" and scope["method"] not in ("GET", "HEAD") and from_a_page(scope["headers"]):
            raise Problem("forbidden", "The console is read-only (DELAYQ_CONSOLE). It cannot change anything.")
        return caller

    def renewed(self, caller: Caller) -> Caller:
        """Return the caller with its present permissions, for a request that has waited. Raises Problem for a revoked key."""
        if caller.key is None:
            return caller
        callers, _, sessions = self._verified
        found = sessions.renewed(caller) if caller.session else callers.get(caller.key.id)
        if found is None or found.hash != caller.hash:
            raise Problem("unauthorized", "Unknown or revoked API key.", headers=WRONG)
        return found

    def _known(self, scope: Any, path: str) -> Caller:
        found: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(found) > 1:
            raise Problem("unauthorized", "The request has several Authorization headers. Send one.", headers=WRONG)
        given = found[0] if found else b""
        callers, verified, sessions = self._verified
        digest = hashlib.sha256(given).digest()
        caller = verified.get(digest)
        # Other schemes than Bearer are no key: a proxy with a password of its own passes its header on.
        if caller is None and given[:6].lower() != b"bearer":
            return self._paid(sessions.holder(scope["headers"], self._clock.now()))
        if caller is None or (self.attempts.locks_until and self._clock.monotonic() < self.attempts.locks_until):
            caller = verified.keep(digest, self._verify(given, callers, scope, path))
        return self._paid(caller)

    def _paid(self, caller: Caller) -> Caller:
        """Return the caller if it is within its rate."""
        bucket = caller.bucket
        if bucket is not None:
            if wait := bucket.wait(self._clock.monotonic()):
                raise Problem(
                    "rate",
                    f"Too many requests. This key may make {bucket.rate:g} requests per second.",
                    retry_after=wait,
                )
            bucket.take(1)
        return caller

    def begin_session(self, key: str, scope: Any, path: str) -> Cookie:
        """Return the cookie of a new session. Raises Problem as for a key in a header."""
        callers, _, sessions = self._verified
        caller = self._paid(self._verify(b"Bearer " + key.encode(), callers, scope, path))
        return sessions.begin(caller, self._clock.now())

    def sessions_begun(self, scope: Any) -> list[Cookie]:
        """Return the session cookies of a request that belong to these keys, not those of other installations."""
        return self._verified[2].begun(scope["headers"])

    def _verify(self, given: bytes, callers: Mapping[str, Caller], scope: Any, path: str) -> Caller:
        text = given[7:].strip().decode("latin-1") if given[:7].lower() == b"bearer " else ""
        id = id_of(text) or ""
        caller = callers.get(id)
        now = self._clock.monotonic()
        right = hmac.compare_digest(hash_of(text), _NOBODY if caller is None else caller.hash)
        who = (_address(scope), id if caller is not None else "")
        if wait := self.attempts.locked(who, now):
            raise Problem(
                "locked", "Too many attempts with a wrong key from this address. Retry later.", retry_after=wait
            )
        if caller is None or not right:
            raise self._refusal(who, path, now)
        return caller

    def _refusal(self, who: tuple[str, str], path: str, now: int) -> Problem:
        locks = self.attempts.failed(who, now)
        address, id = who
        _log.warning("access_refused", address=address, key=id or "unknown", path=path, locked=locks)
        return Problem("unauthorized", "Unknown or revoked API key.", headers=WRONG)


def _address(scope: Any) -> str:
    """Return the origin of a request for the lock-out. For IPv6 it is the network, because one caller has many
    addresses.
    """
    client = scope.get("client")
    host: str = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _mask(text: bytes, secret: bytes, nonce: bytes) -> bytes:
    """Encrypt or decrypt the text."""
    stream = hashlib.shake_256(b"mask" + secret + nonce).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))


def _mark(hidden: bytes, secret: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, nonce + hidden, "sha256")[:_MARK]
