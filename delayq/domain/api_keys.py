"""The API keys: a file with the scopes of each key, and with the hash of its secret.

A key reads `dq_<id>_<secret>`. The secret has 256 random bits, so its SHA-256 reveals nothing about it and needs no
salt.
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

from delayq.base.errors import ConfigError, InvalidMessage, MissingExtra
from delayq.base.written import NotWritten, Twice, converted, kind_of, parsed
from delayq.domain.message import MOST
from delayq.domain.patterns import check_pattern

Scope = Literal["schedule", "cancel", "read", "receive", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("schedule", "cancel", "read", "receive", "admin")

_SHAPE: Final = re.compile(r"dq_([a-z0-9]{4,32})_([A-Za-z0-9_-]{43})")
_ID: Final = re.compile(r"[a-z0-9]{4,32}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The permissions of one API key.

    `scopes` maps topic patterns (with `*` and `?`) to the scopes there. `name` is the owner of the key; keys with the
    same name share its quota. `ids` is the prefix of all ids of its messages, and no other key can use or read such
    ids. `rate` is requests per second, where each message of a batch counts as one. `burst` is the maximum at once.
    `pending` is the maximum number of waiting messages and dead letters of this name. Without these fields there is no
    limit. With `audit`, its cancels and reschedules are recorded in the audit, like manual changes. Without `console`,
    the console refuses the key.
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
        """Return the key as text, without its hash."""
        return f"ApiKey(id={self.id!r}, name={self.name!r})"

    def check(self) -> None:
        """Raise ConfigError for an invalid key."""
        if not _ID.fullmatch(self.id):
            raise ConfigError("the id of a key must be 4 to 32 of a-z and 0-9")
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"key {self.id}: the name must be 1 to 64 of A-Z a-z 0-9 . _ -")
        if not _HASH.fullmatch(self.hash):
            raise ConfigError(f"key {self.id}: the hash must be 'sha256:' and 64 hexadecimal digits")
        if not self.scopes:
            raise ConfigError(f"key {self.id}: it has no scopes; add some, or remove the key from the file")
        for pattern, scopes in self.scopes.items():
            try:
                check_pattern(pattern)
            except InvalidMessage as error:
                raise ConfigError(f"key {self.id}: the topic pattern {pattern!r} {error.reason}") from None
            if not scopes:
                raise ConfigError(f"key {self.id}: {pattern!r} has no scopes; add some of {', '.join(SCOPES)}")
        if self.ids and not _PREFIX.fullmatch(self.ids):
            raise ConfigError(f"key {self.id}: ids must be a prefix of ids, 1 to 64 of A-Z a-z 0-9 . _ : -")
        for field in ("rate", "burst", "pending"):
            value = getattr(self, field)
            if value is not None and not 1 <= value <= MOST:
                raise ConfigError(f"key {self.id}: {field} must be an integer from 1")
        if self.burst is not None and self.rate is None:
            raise ConfigError(f"key {self.id}: burst needs a rate")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[ApiKey]


def hash_of(key: str) -> str:
    """Return the entry of a key in the file."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def id_of(key: str) -> str | None:
    """Return the id in a key, or None for a malformed key."""
    match = _SHAPE.fullmatch(key)
    return match.group(1) if match else None


def make_key(name: str, scopes: Mapping[str, Sequence[Scope]], **limits: Any) -> tuple[str, ApiKey]:
    """Return a new key: the text for its user, and the entry of the file. Raises ConfigError."""
    id = secrets.token_hex(6)
    text = f"dq_{id}_{secrets.token_urlsafe(32)}"
    granted = {pattern: list(some) for pattern, some in scopes.items()}
    key = ApiKey(id=id, name=name, hash=hash_of(text), scopes=granted, **limits)
    key.check()
    return text, key


def load_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a JSON, YAML or TOML file. Raises ConfigError, which shows nothing of the file's content."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"DELAYQ_API_KEYS: cannot read {path}: {error.strerror or error}") from None
    return parse_keys(raw, path)


def parse_keys(raw: bytes, path: Path) -> list[ApiKey]:
    """Return the keys in the content of a file whose name is `path`. Raises ConfigError."""
    kind = kind_of(path)
    try:
        data = parsed(raw, kind)
        keys = converted({} if data is None else data, _File).keys  # an empty file is still being written
        for key in keys:
            key.check()
        _check_together(keys)
    except ImportError:
        raise MissingExtra(f"DELAYQ_API_KEYS: {path} is YAML, which", "cli") from None
    except NotWritten as error:
        if isinstance(error, Twice):
            raise ConfigError(f"DELAYQ_API_KEYS: {path}: {error}") from None
        raise ConfigError(f"DELAYQ_API_KEYS: {path} is not {kind}") from None  # the reason would quote the file
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"DELAYQ_API_KEYS: {path}: {error}") from None
    return keys


def _check_together(keys: Sequence[ApiKey]) -> None:
    if len({key.id for key in keys}) < len(keys):
        raise ConfigError("two keys have the same id")
    prefixes = {key.ids: key.name for key in keys if key.ids}
    for one in prefixes:
        for other in prefixes:
            if one != other and other.startswith(one):
                raise ConfigError(f"ids with the prefix {other!r} also have the prefix {one!r}; use different prefixes")
    for key in keys:
        if key.ids and prefixes[key.ids] != key.name:
            raise ConfigError(f"keys of two names have the same id prefix {key.ids!r}; use different prefixes")


def write_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Write the keys into the file, atomically, readable by its owner alone. Raises ConfigError."""
    _check_together(keys)
    kind = kind_of(path)
    if kind == "TOML":
        raise ConfigError(f"{path}: a TOML file is only read; edit it, or use a .yaml or .json file")
    value = _File(list(keys))
    text = (
        msgspec.yaml.encode(value)
        if kind == "YAML"
        else msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    )
    target = path.resolve()  # if the path is a link, the file that it points to
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
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None
