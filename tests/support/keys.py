"""A file of keys for an API under test, and headers with which to come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delayq.config import Settings
from delayq.domain.api_keys import SCOPES, ApiKey, Scope, make_key, write_keys

EVERYTHING: Mapping[str, Sequence[Scope]] = {"*": SCOPES}


class KeyFile:
    """The file, and the keys that were made for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: list[ApiKey] = []
        self.texts: dict[str, str] = {}

    def add(self, name: str, scopes: Mapping[str, Sequence[Scope]] = EVERYTHING, **limits: Any) -> dict[str, str]:
        """A new key of this name in the file; the header of its requests."""
        text, key = make_key(name, scopes, **limits)
        self.keys.append(key)
        self.texts[name] = text
        write_keys(self.path, self.keys)
        return {"authorization": f"Bearer {text}"}

    def remove(self, name: str) -> None:
        self.keys = [key for key in self.keys if key.name != name]
        write_keys(self.path, self.keys)

    def settings(self, settings: Settings) -> Settings:
        """These settings, with this file."""
        return settings.replace(api_keys=str(self.path))
