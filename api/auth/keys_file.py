"""Who may come in: keys, from a file that is read again when it changes, and those who try too often.

Page tokens for callers that do not see everything are sealed, since they name a message that may be another's.
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
from delayq.api_keys import ApiKey, hash_of, id_of, load_keys
from delayq.clock import Clock, SystemClock
from delayq.remembered import Remembered

__all__ = ["Door", "names_loopback", "refuse_open_door"]

#: How often the file is looked at, in seconds.
LOOK_EVERY: Final = 1.0
#: Headers remembered as right, by their digests: a key may be written with more or less space.
VERIFIED: Final = 10_000
#: Names remembered by which a request may call this service.
NAMES: Final = 1_000
_PORT: Final = re.compile(r":\d*$", re.ASCII)
_NOBODY: Final = "sha256:" + "0" * 64  # what an id that no key has is compared with

_NONCE: Final = 16
_MARK: Final = 16
#: The text of a token is filled up to a multiple of so many bytes: ids of others stand in it.
_PADDED: Final = 512

_log = structlog.get_logger("api")


def refuse_open_door(settings: Settings) -> None:
    """Raise ConfigError for an API that anybody could reach and nobody needs a key for, unless that is wanted."""
    if settings.api_keys or settings.api_open or _is_loopback(settings.api_host):
        return
    raise ConfigError(
        f"DELAYQ_API_HOST: {settings.api_host or 'all addresses'} can be reached by others, and there are no keys: "
        "set DELAYQ_API_KEYS (delayq api-keys new makes one), or DELAYQ_API_OPEN=yes-without-keys"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_loopback(host: bytes) -> bool:
    """Whether a request's Host is this machine by one of its own names."""
    return _is_loopback(_PORT.sub("", host.decode("latin-1")).lower().removeprefix("[").removesuffix("]"))


class Door:
    """Who a request is from; without a file of keys, anybody."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._clock = clock if clock is not None else SystemClock()
        self._redis_url = settings.redis_url
        self._secret = b""
        self._path = Path(settings.api_keys).expanduser() if settings.api_keys else None
        self._console = settings.console
        #: The names by which requests have called it, where it has to be one of loopback; None where any will do.
        self._names: Remembered[bytes, bool] | None = None
        if self._path is None and not settings.api_open and _is_loopback(settings.api_host):
            self._names = Remembered(NAMES)
        self.attempts = Attempts()
        self._callers: dict[str, Caller] = {}
        # The keys, and by the digests of headers those that were found right under them: a caller chooses how long a header
        # is. And the sessions. All of them are of the same file.
        nobody = Sessions((), "", read_only=True)
        self._verified: tuple[dict[str, Caller], Remembered[bytes, Caller], Sessions] = (
            {},
            Remembered(VERIFIED),
            nobody,
        )
        self._seen: Any = None
        #: Why the file as it stands now is not in force; '' when it is.
        self.stale = ""
        if self._path is not None:
            self._seen = self._stamp()
            self._take(load_keys(self._path))

    @property
    def open(self) -> bool:
        """Whether it takes no keys."""
        return self._path is None

    def _stamp(self) -> object:
        """Something that changes when the file does."""
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
        # Known to no holder of a key: it takes the hashes of the others, and where Redis is.
        parts = [self._redis_url, *sorted(key.hash for key in keys)]
        self._secret = hashlib.sha256("\n".join(parts).encode()).digest()
        may = callers.values() if self._console != "no" else ()
        sessions = Sessions(may, self._redis_url, read_only=self._console == "readOnly")
        self._verified = (
            callers,
            Remembered(VERIFIED),
            sessions,
        )  # a header that was right under other keys says nothing
        self._callers = callers  # at once: the event loop may be in the middle of a request

    def look(self) -> None:
        """Read the file again if it has changed; one that is broken leaves all as it is, is told of, and tried again."""
        if self._path is None:
            return
        stamp = self._stamp()
        if stamp == self._seen:
            return
        try:
            keys = load_keys(self._path)
        except ConfigError as error:
            self._seen = None  # what kept it from being read may go without a change of the file
            if self.stale != str(error):
                self.stale = str(error)
                _log.error("keys_not_taken", reason=self.stale, keys=len(self._callers))
            return
        self._seen = stamp
        self.stale = ""
        self._take(keys)
        _log.info("keys_taken", keys=len(keys))

    async def watch(self) -> None:
        """Look at the file now and then, for ever."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                _log.exception("keys_look_failed")

    def seal(self, text: str) -> str:
        """A page token in which no holder of a key can read the text, nor tell how long an id in it is."""
        nonce = os.urandom(_NONCE)
        raw = text.encode()
        hidden = _mask(raw + b"\0" * (-len(raw) % _PADDED), self._secret, nonce)
        return base64.urlsafe_b64encode(nonce + _mark(hidden, self._secret, nonce) + hidden).decode().rstrip("=")

    def unseal(self, token: str) -> str:
        """The text of a page token; raises InvalidMessage for one that was not made under these keys."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raw = b""
        if base64.urlsafe_b64encode(raw).decode().rstrip("=") != token:  # its last character may say more than there is
            raw = b""
        nonce, mark, hidden = raw[:_NONCE], raw[_NONCE : _NONCE + _MARK], raw[_NONCE + _MARK :]
        if not hidden or not hmac.compare_digest(mark, _mark(hidden, self._secret, nonce)):
            raise InvalidMessage("pageToken", "is not a token that this API gave out to this key; start without one")
        return _mask(hidden, self._secret, nonce).rstrip(b"\0").decode()

    def guest(self, scope: Any) -> Caller:
        """Nobody who has to be known; raises Problem for who calls this machine by a stranger's name.

        Where there are no keys, a page of elsewhere could come in by a name of its own that leads here (DNS rebinding).
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
                "This API takes no keys, so it has to be called localhost or 127.0.0.1: set DELAYQ_API_KEYS, or "
                "DELAYQ_API_OPEN=yes-without-keys if whoever reaches it may do everything."
            )
            raise Problem("misdirected", detail)
        names.keep(host, True)

    def enter(self, scope: Any, path: str) -> Caller:
        """Who a request is from; raises Problem for nobody, for one who asks too often, and for what a page may not do."""
        caller = self.guest(scope) if self._path is None else self._known(scope, path)
        if self._console == "readOnly" and scope["method"] not in ("GET", "HEAD") and from_a_page(scope["headers"]):
            raise Problem("forbidden", "The console is read-only here (DELAYQ_CONSOLE): it changes nothing.")
        return caller

    def _known(self, scope: Any, path: str) -> Caller:
        found: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(found) > 1:
            raise Problem("unauthorized", "Give one Authorization header.", headers=WRONG)
        given = found[0] if found else b""
        callers, verified, sessions = self._verified
        digest = hashlib.sha256(given).digest()
        caller = verified.get(digest)
        # What is no Bearer is no key: a proxy that asks for a password of its own passes that on.
        if caller is None and given[:6].lower() != b"bearer":
            return self._paid(sessions.holder(scope["headers"], self._clock.now()))
        if caller is None or (self.attempts.locks_until and self._clock.monotonic() < self.attempts.locks_until):
            caller = verified.keep(digest, self._verify(given, callers, scope, path))
        return self._paid(caller)

    def _paid(self, caller: Caller) -> Caller:
        """The caller, if it does not ask too often."""
        bucket = caller.bucket
        if bucket is not None:
            if wait := bucket.wait(self._clock.monotonic()):
                raise Problem("rate", f"This key may ask {bucket.rate:g} times a second.", retry_after=wait)
            bucket.take(1)
        return caller

    def begin_session(self, key: str, scope: Any, path: str) -> Cookie:
        """The cookie of a new session; raises Problem for a key as in a header."""
        callers, _, sessions = self._verified
        caller = self._paid(self._verify(b"Bearer " + key.encode(), callers, scope, path))
        return sessions.begin(caller, self._clock.now())

    def sessions_begun(self, scope: Any) -> list[Cookie]:
        """The cookies in a request that are of sessions with these keys; not those of other installations."""
        return self._verified[2].begun(scope["headers"])

    def _verify(self, given: bytes, callers: Mapping[str, Caller], scope: Any, path: str) -> Caller:
        text = given[7:].strip().decode("latin-1") if given[:7].lower() == b"bearer " else ""
        id = id_of(text) or ""
        caller = callers.get(id)
        now = self._clock.monotonic()
        right = hmac.compare_digest(hash_of(text), _NOBODY if caller is None else caller.hash)
        who = (_address(scope), id if caller is not None else "")
        if wait := self.attempts.locked(who, now):
            raise Problem("locked", "Too many attempts with a wrong key came from there.", retry_after=wait)
        if caller is None or not right:
            raise self._refusal(who, path, now)
        return caller

    def _refusal(self, who: tuple[str, str], path: str, now: int) -> Problem:
        locks = self.attempts.failed(who, now)
        address, id = who
        _log.warning("access_refused", address=address, key=id or "unknown", path=path, locked=locks)
        return Problem("unauthorized", "Nobody has this key, or not any more.", headers=WRONG)


def _address(scope: Any) -> str:
    """Where a request comes from: of IPv6 the network, of which one caller has many addresses."""
    client = scope.get("client")
    host: str = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _mask(text: bytes, secret: bytes, nonce: bytes) -> bytes:
    """Hide the text, or show what was hidden."""
    stream = hashlib.shake_256(b"mask" + secret + nonce).digest(len(text))
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))


def _mark(hidden: bytes, secret: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, nonce + hidden, "sha256")[:_MARK]
