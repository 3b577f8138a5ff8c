"""Redis Cluster: which slot a key lies in, and which primary serves it, as far as is known."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from delayq.store.commands import Command
from delayq.store.connect.address import Node

__all__ = ["SLOTS", "WHO", "SlotMap", "key_of", "slot_of"]

SLOTS: Final = 16_384
#: Asks a server which primary serves which slots.
WHO: Final[Any] = ("CLUSTER", "SLOTS")


@lru_cache(maxsize=8192)
def slot_of(key: str) -> int:
    """CRC-16 of the hash tag (or of the whole key) modulo 16,384."""
    start = key.find("{")
    if start >= 0 and (end := key.find("}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


def key_of(command: Command[Any]) -> str | None:
    """The key that says where a command goes: its first one, or what stands behind a plain command's name.

    A wrong guess costs a redirection; a command without a key may go anywhere.
    """
    if command.keys:
        return command.keys[0]
    if not command.script and len(command.args) > 1:
        guess = command.args[1]
        return guess.decode(errors="replace") if isinstance(guess, bytes) else str(guess)
    return None


class SlotMap:
    """The primaries by slot. Threads may read it while one writes: each look is at one whole list."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self.primaries: tuple[Node, ...] = ()
        self.version = 0  # counts the maps taken over
        self._seeds = tuple(seeds)
        self._known: tuple[Node, ...] = ()
        self._slots: list[Node | None] = [None] * SLOTS

    def take(self, reply: Any, asked: Node) -> None:
        """Take over what `asked` said. A server that does not know its own address means the one we asked."""
        slots: list[Node | None] = [None] * SLOTS
        primaries: dict[Node, None] = {}
        known: dict[Node, None] = {asked: None}  # who answered is asked first the next time
        for first, last, *servers in reply:
            nodes = [(_host(server[0]) or asked[0], int(server[1])) for server in servers]
            slots[first : last + 1] = [nodes[0]] * (last + 1 - first)
            primaries[nodes[0]] = None
            known.update(dict.fromkeys(nodes))
        self._slots, self.primaries, self._known = slots, tuple(primaries), tuple(known)
        self.version += 1

    def moved(self, slot: int, node: Node) -> None:
        """A server said that a slot lies elsewhere."""
        self._slots[slot] = node

    def node_of(self, key: str | None) -> Node | None:
        """The primary for a key; None if nobody is known to serve its slot."""
        if key is None:
            return self.primaries[0] if self.primaries else None
        return self._slots[slot_of(key)]

    def to_ask(self) -> list[Node]:
        """Servers that may know the map, each once: who answered last, those of its map, those of the URL."""
        return list(dict.fromkeys((*self._known, *self._seeds)))


def _host(word: Any) -> str:
    host = word.decode() if isinstance(word, bytes) else str(word or "")
    return "" if host == "?" else host
