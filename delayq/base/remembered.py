"""A cache with bounded memory for texts that callers choose."""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K", str, bytes)
V = TypeVar("V")

#: Topics, patterns of topics and names of hosts have at most 255 characters.
LONGEST: Final = 255


class Remembered(dict[K, V]):
    """A cache whose keys callers choose. `keep` bounds it in entries and in bytes; read it like any dict.

    It drops everything when it has `entries` entries. It never keeps a key of more than `longest` characters, because a
    few of them could fill the memory. The values must not grow with the caller's input.
    """

    __slots__ = ("_entries", "_longest")

    def __init__(self, entries: int, longest: int = LONGEST) -> None:
        super().__init__()
        self._entries = entries
        self._longest = longest

    def keep(self, key: K, value: V) -> V:
        """Keep a value if the key is short enough. Return the value."""
        if len(key) <= self._longest:
            if len(self) >= self._entries:
                self.clear()
            self[key] = value
        return value
