"""The keys of the HTTP API: a file with what each may do, and of its secret only the hash.

A key reads `dq_<id>_<secret>`. The secret is 256 random bits, so its SHA-256 tells nothing of it and needs no salt.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from delayq.errors import ConfigError

__all__ = ["SCOPES", "ApiKey", "Scope", "hash_of", "id_of", "load_keys", "make_key", "parse_keys", "write_keys"]

Scope = Literal["schedule", "cancel", "read", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("schedule", "cancel", "read", "admin")

_SHAPE: Final = re.compile(r"dq_([a-z0-9]{4,32})_([A-Za-z0-9_-]{43})")
_ID: Final = re.compile(r"[a-z0-9]{4,32}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PATTERN: Final = re.compile(r"[A-Za-z0-9._:*?-]{1,255}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one key may do.

    `scopes` maps topic patterns (with `*` and `?`) to what is allowed there. `name` is whose key it is; keys of one
    name share its quota. `ids` is how all ids of its messages begin: no other key can give or ask for such.
    `rate` is requests a second, each message of a batch counting as one, `burst` how many of them may come at once;
    `pending` how many messages of this name may be waiting, or be dead letters. Without these there is no limit. With
    `audit` its cancels and moves are written down, as those by hand are. Without `console` nobody comes into the console
    with it.
    """

    id: str
    name: str
    hash: str
    scopes: dict[str, list[Scope]]
    ids: str = ""
    rate: int | None = None
    burst: int | None = None
    pending: int | None = None
    audit: bool = False
    console: bool = True
    created: str = ""

    def __repr__(self) -> str:
        """Without its hash."""
        return f"ApiKey(id={self.id!r}, name={self.name!r})"

    def check(self) -> None:
        """Raise ConfigError if the key makes no sense."""
        if not _ID.fullmatch(self.id):
            raise ConfigError("the id of a key is 4 to 32 of a-z and 0-9")
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"key {self.id}: its name is 1 to 64 of A-Z a-z 0-9 . _ -")
        if not _HASH.fullmatch(self.hash):
            raise ConfigError(f"key {self.id}: its hash is 'sha256:' and 64 hexadecimal digits")
        if not self.scopes:
            raise ConfigError(f"key {self.id}: it has no scopes; revoke it by taking it out of the file")
        for pattern, scopes in self.scopes.items():
            if not _PATTERN.fullmatch(pattern):
                raise ConfigError(f"key {self.id}: {pattern!r} is no topic pattern")
            if not scopes:
                raise ConfigError(f"key {self.id}: nothing is allowed on {pattern!r}; give some of {', '.join(SCOPES)}")
        if self.ids and not _PREFIX.fullmatch(self.ids):
            raise ConfigError(f"key {self.id}: ids is how its ids begin, 1 to 64 of A-Z a-z 0-9 . _ : -")
        for field in ("rate", "burst", "pending"):
            value = getattr(self, field)
            if value is not None and not 1 <= value <= 10**12:
                raise ConfigError(f"key {self.id}: {field} is a whole number from 1")
        if self.burst is not None and self.rate is None:
            raise ConfigError(f"key {self.id}: burst goes with a rate")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[ApiKey]


def hash_of(key: str) -> str:
    """What the file has of a key."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def id_of(key: str) -> str | None:
    """The id in a key; None if it has not the form of one."""
    match = _SHAPE.fullmatch(key)
    return match.group(1) if match else None


def make_key(name: str, scopes: Mapping[str, Sequence[Scope]], **limits: Any) -> tuple[str, ApiKey]:
    """A new key: what its user gets, and what the file keeps; raises ConfigError."""
    id = secrets.token_hex(6)
    text = f"dq_{id}_{secrets.token_urlsafe(32)}"
    granted = {pattern: list(some) for pattern, some in scopes.items()}
    key = ApiKey(id=id, name=name, hash=hash_of(text), scopes=granted, **limits)
    key.check()
    return text, key


def load_keys(path: Path) -> list[ApiKey]:
    """The keys of a JSON, YAML or TOML file; raises ConfigError, which shows nothing of what is in it."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"DELAYQ_API_KEYS: {path} cannot be read: {error.strerror or error}") from None
    return parse_keys(raw, path)


def parse_keys(raw: bytes, path: Path) -> list[ApiKey]:
    """The keys that a file holds whose name is `path`; raises ConfigError."""
    kind = path.suffix.lower()
    try:
        if kind in (".yaml", ".yml"):
            data = msgspec.yaml.decode(raw)
        elif kind == ".toml":
            data = msgspec.toml.decode(raw.decode())
        else:
            data = msgspec.json.decode(raw)
        keys = msgspec.convert({} if data is None else data, _File).keys  # an empty file is one that is being written
        for key in keys:
            key.check()
        _check_together(keys)
    except msgspec.ValidationError as error:
        raise ConfigError(f"DELAYQ_API_KEYS: {path}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        what = kind.lstrip(".").upper() or "JSON"
        raise ConfigError(f"DELAYQ_API_KEYS: {path} is no {what}") from None  # the reason would quote from it
    except ConfigError as error:
        raise ConfigError(f"DELAYQ_API_KEYS: {path}: {error}") from None
    return keys


def _check_together(keys: Sequence[ApiKey]) -> None:
    if len({key.id for key in keys}) < len(keys):
        raise ConfigError("two keys have the same id")
    prefixes = {key.ids: key.name for key in keys if key.ids}
    for one in prefixes:
        for other in prefixes:
            if one != other and other.startswith(one):
                raise ConfigError(f"ids that begin with {other!r} begin with {one!r}, too; they have to differ")
    for key in keys:
        if key.ids and prefixes[key.ids] != key.name:
            raise ConfigError(f"keys of two names have ids that begin with {key.ids!r}")


def write_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Put the keys into the file, whole or not at all, for its owner's eyes only; raises ConfigError."""
    _check_together(keys)
    kind = path.suffix.lower()
    if kind == ".toml":
        raise ConfigError(f"{path}: TOML is only read; write it by hand, or use a .yaml or .json file")
    value = _File(list(keys))
    yaml = kind in (".yaml", ".yml")
    text = msgspec.yaml.encode(value) if yaml else msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    target = path.resolve()  # of a link, the file that it leads to
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}") from None
