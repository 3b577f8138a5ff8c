"""A cache in bounded memory for texts that callers choose."""

from __future__ import annotations

from typing import Final, TypeVar

__all__ = ["Remembered"]

K = TypeVar("K", str, bytes)
V = TypeVar("V")

#: Topics and patterns of topics have at most 255 characters, and names of hosts, too.
LONGEST: Final = 255


class Remembered(dict[K, V]):
    """A cache whose keys callers choose. `keep` bounds it in entries and in bytes; read it like any dict.

    It forgets everything when it has `entries` entries, and never keeps a key of more than `longest` characters: a caller
    could fill the memory by a few of them. The values must not grow with what a caller sends.
    """

    __slots__ = ("_entries", "_longest")

    def __init__(self, entries: int, longest: int = LONGEST) -> None:
        super().__init__()
        self._entries = entries
        self._longest = longest

    def keep(self, key: K, value: V) -> V:
        """Keep a value if the key is short enough; the value itself."""
        if len(key) <= self._longest:
            if len(self) >= self._entries:
                self.clear()
            self[key] = value
        return value
