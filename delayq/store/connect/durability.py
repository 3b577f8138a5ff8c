"""When a change counts as made: once enough replicas have it, or the disk.

WAIT and WAITAOF speak of the writes of their own connection, so they follow the scripts on it, as the last commands
of an exchange. A server whose WAITAOF cannot be believed is asked for its settings in the same place instead: with
`appendfsync always` it syncs before it replies. An answer on a connection that broke before them is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from delayq.base.errors import NotDurable
from delayq.store import scripts
from delayq.store.commands import Command, plain

#: Scripts that the server had lost are sent once more, after the barrier, and need another one. The same is true if
#: another server answers, which needs other questions.
BARRIERS: Final = 3


def promises(command: Command[Any]) -> bool:
    """Return whether its answer is a promise to a caller."""
    return bool(command.script) and scripts.load(command.script).promise


def believable(name: str, version: str) -> bool:
    """Return whether the WAITAOF of a server is reliable.

    Redis 7.2 to 7.4 and every Valkey up to 9.1 answer it before the sync is over, unless appendfsync is always
    (redis#13793).
    """
    major = version.partition(".")[0]
    return name == "redis" and major.isdigit() and int(major) >= 8


class Durability(msgspec.Struct, kw_only=True):
    """Where a change must be stored before it is answered: in `replicas` replicas, and (`fsync`) on the primary's disk.

    `timeout` bounds the wait, in ms. `waitaof` is the known ability of the server: each barrier learns whether its WAITAOF
    can be believed, because another server may answer than before.
    """

    replicas: int = 0
    fsync: bool = False
    waitaof: bool = False
    timeout: int

    @property
    def parts(self) -> int:
        """The number of waits of a barrier."""
        return self.fsync + (self.replicas > 0)


class Barrier:
    """The changes on one connection that are not yet known to be kept."""

    def __init__(self, durability: Durability) -> None:
        self.uncovered: set[int] = set()
        self._durability = durability
        # Less than the timeout of a reply, and never 0, which would mean no timeout.
        self._wait = max(1, durability.timeout * 3 // 4 // max(1, durability.parts))
        self._dirty = False
        self._key = ""
        self._answered_key = ""
        self._written = False  # the tiny write of the last barrier
        # It came after its wait because the server had lost the script, or the wrong question was asked.
        self._void = False
        self._asked_waitaof = False
        self._passed = 0
        self._lacks = ""
        self._sent = 0

    def sent(self, command: Command[Any]) -> None:
        """Record that a command was sent."""
        if promises(command):
            self._key = command.keys[0]
            self._dirty = True

    def answered(self, index: int, command: Command[Any]) -> None:
        """Record its reply. Replies come in order, so a later barrier covers it."""
        if promises(command):
            self.uncovered.add(index)
            self._answered_key = command.keys[0]

    @property
    def needed(self) -> bool:
        """Whether something was sent after the last barrier, or the barrier's own key lies elsewhere now."""
        return self._sent < BARRIERS and (self._dirty or (bool(self.uncovered) and (self._void or not self._written)))

    def commands(self) -> Iterator[Command[Any]]:
        """The commands to send after the changes."""
        key = self._answered_key or self._key
        self._sent += 1
        self._dirty = self._written = self._void = False
        self._asked_waitaof = self._durability.waitaof
        yield Command("barrier", (key,), (), self._begun)
        if self._durability.fsync:
            if self._asked_waitaof:
                yield plain("WAITAOF", 1, 0, self._wait, read=lambda reply: self._pass(reply[0] >= 1), key=key)
            else:
                yield plain("CONFIG", "GET", "appendonly", "appendfsync", read=self._settings, key=key)
        if self._durability.replicas:
            replicas = self._durability.replicas
            yield plain("WAIT", replicas, self._wait, read=lambda reply: self._pass(reply >= replicas), key=key)

    def _begun(self, reply: Any) -> None:
        self._written = True
        self._passed = 0
        name, version = reply
        self._durability.waitaof = believable(name.decode(), version.decode())
        self._void = self._durability.fsync and self._durability.waitaof != self._asked_waitaof

    def _settings(self, reply: Any) -> None:
        """Its settings at the moment when it has run the changes: they are synced before this reply is sent."""
        found = dict(zip(reply[::2], reply[1::2], strict=True))
        file, sync = (found.get(name, b"unknown").decode() for name in (b"appendonly", b"appendfsync"))
        self._lacks = "" if (file, sync) == ("yes", "always") else f" (it has appendonly {file}, appendfsync {sync})"
        self._pass(not self._lacks)

    def _pass(self, enough: bool) -> None:
        self._void = self._void or not self._written
        self._passed += enough
        if not self._void and self._passed == self._durability.parts:
            self.uncovered.clear()

    def error(self) -> NotDurable:
        """The error for a change that is not known to be kept."""
        wanted = []
        if self._durability.replicas:
            wanted.append(f"{self._durability.replicas} replicas have it")
        if self._durability.fsync:
            wanted.append(f"it is on the disk{self._lacks}")
        return NotDurable(f"Redis has it, but did not confirm in time that {' and that '.join(wanted)}")
