"""The commands on one connection: their bytes, and which of them have no reply."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final

from delayq.store import scripts
from delayq.store.commands import Command, plain
from delayq.store.connect.address import Node
from delayq.store.connect.durability import Barrier, Durability, promises
from delayq.store.connect.server_state import ServerState, WrongServer, packed

#: Commands sent ahead of their replies: enough to keep the server busy, few enough for the socket buffers.
AHEAD: Final = 32
AHEAD_BYTES: Final = 1024 * 1024
#: Small commands are sent together in packets of about this many bytes.
PACKET: Final = 16 * 1024
#: No answer of the caller belongs to it.
NO_PLACE: Final = -1
#: Before a command that the server `node` gets only this once: its slot is moving there.
ASKING: Final[Command[None]] = plain("ASKING", read=lambda _: None)
#: A command with its place among the answers. In a cluster it may have been redirected to a server, and need ASKING.
Sent = tuple[int, Command[Any], Node | None, bool]


def pack(command: Command[Any], state: ServerState) -> bytes:
    """Return the command as it is sent."""
    name, keys, args = command.script, command.keys, command.args
    if not name:
        if state.moved_in and args == ("TIME",):
            return packed("EVAL", scripts.load("time", state.moved_in).text, 0, "")
        return packed(*args)
    script = scripts.load(name, state.moved_in)
    deadline = (state.deadline(),) if script.promise else ()
    if name in state.loaded:
        return packed("EVALSHA", script.sha, len(keys), *keys, *args, *deadline)
    state.loaded.add(name)  # the server keeps the complete script
    return packed("EVAL", script.text, len(keys), *keys, *args, *deadline)


class Link:
    """One connection during an exchange: what is sent on it and has no reply.

    `node` is its server in a cluster. With `durability`, a barrier follows the changes.
    """

    def __init__(
        self, connection: Any, state: ServerState, durability: Durability | None = None, node: Node | None = None
    ) -> None:
        self.connection = connection
        self.state = state
        self.node = node
        self.waiting: deque[tuple[Sent, int]] = deque()
        self.pending: Sent | None = None  # the next command to send, once the clock of the server is known
        self.wrong: WrongServer | None = None  # the reason to leave the connection after all replies
        self.barrier = Barrier(durability) if durability is not None else None
        self._question: Command[None] | None = None  # a question for the clock that has no reply
        self._bytes = 0  # without a reply
        self._packet: list[bytes] = []  # sent before any reply is read
        self._size = 0

    @property
    def full(self) -> bool:
        """Return whether replies must be read before more is sent: a deadline needs the clock of the server.

        Commands with a deadline are sent at once: a process that is stopped meanwhile must have no rest to send later.
        """
        much = len(self.waiting) >= AHEAD or self._bytes >= AHEAD_BYTES
        return self._question is not None or (much and self.connection.until == inf)

    def to_send(self, commands: Iterable[Sent]) -> Iterator[bytes]:
        """Yield the packets to send; after each, replies must be read while the link is `full`. Small commands wait for
        `rest`.
        """
        for sent in commands:
            if promises(sent[1]) and self.state.stale:
                self.pending = sent
                self._question = self.state.ask()
                self._add((NO_PLACE, self._question, None, False))
                yield self._take_packet()
                self.pending = None
            self._add(sent)
            if self._size >= PACKET or self.full:
                yield self._take_packet()

    def rest(self) -> bytes:
        """Return the packet to send before the last replies are read, with the commands that confirm earlier changes."""
        if self.barrier is not None and self.barrier.needed and self.wrong is None:
            for command in self.barrier.commands():
                self._add((NO_PLACE, command, None, False))
        return self._take_packet()

    def again(self, sent: Sent) -> bytes:
        """Return the bytes that send a command again, at once."""
        self._add(sent)
        return self._take_packet()

    def _add(self, sent: Sent) -> None:
        _, command, _, asking = sent
        if asking:
            self._add((NO_PLACE, ASKING, None, False))
        packed = pack(command, self.state)
        size = len(packed)
        self.waiting.append((sent, size))
        self._bytes += size
        self._packet.append(packed)
        self._size += size
        if self.barrier is not None:
            self.barrier.sent(command)

    def _take_packet(self) -> bytes:
        packet = b"".join(self._packet)
        self._packet.clear()
        self._size = 0
        return packet

    def take(self) -> Sent:
        """Remove the command whose reply has come, and return it."""
        sent, size = self.waiting.popleft()
        self._bytes -= size
        if sent[1] is self._question:
            self._question = None
        return sent
