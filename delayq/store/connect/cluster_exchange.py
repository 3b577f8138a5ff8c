"""An exchange decides which primary of a cluster gets each command, and handles the replies.

This module does no I/O: `AsyncCluster` and `Cluster` send and receive. An exchange works in rounds. The next round sends
a command again in these cases:

- A server redirected the command (MOVED, ASK), so it did not run.
- A server refused it for now (TRYAGAIN, CLUSTERDOWN, READONLY), so it did not run.
- The server could not be reached, so it did not run.
- The connection broke before the reply, so the outcome is unknown. The exchange repeats the command once, as the store
  of a single server does, because scripts are idempotent. It never repeats a command of an owner: the owner continues
  as the next incarnation.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache  # noqa: TID251  # the keys are names of Redis keys, with one topic at most
from math import inf
from typing import Any, Final, NamedTuple

import redis

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.store.commands import EVERY, Command, Replies, plain
from delayq.store.connect.address import Node
from delayq.store.connect.durability import Barrier, Durability
from delayq.store.connect.exchange import (
    AHEAD,
    AHEAD_BYTES,
    NO_PLACE,
    PACKET,
    PASSING_ERRORS,
    UNANSWERED,
    as_not_done,
    as_unknown,
    broken,
    instead,
    is_login_refused,
    once,
    pack,
    promises,
    read_reply,
    translate,
)
from delayq.store.connect.server_state import ServerState, WrongKind, WrongServer, late_by

SLOTS: Final = 16_384
#: This command asks a server which primary serves which slots.
WHO: Final[Any] = ("CLUSTER", "SLOTS")


@lru_cache(maxsize=8192)
def slot_of(key: str) -> int:
    """Return the slot of a key: CRC-16 of its hash tag, or of the complete key if it has none, modulo 16,384."""
    start = key.find("{")
    if start >= 0 and (end := key.find("}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


def key_of(command: Command[Any]) -> str | None:
    """Return the key that selects the server of a command: its first key, or the word after a plain command's name.

    A wrong guess costs a redirection. A command without a key may be sent to any server.
    """
    if command.keys:
        return command.keys[0]
    if not command.script and len(command.args) > 1:
        guess = command.args[1]
        return guess.decode(errors="replace") if isinstance(guess, bytes) else str(guess)
    return None


class SlotMap:
    """The map returns the primary of each slot.

    Threads may read the map while another thread changes it, because `take` replaces complete lists.
    """

    def __init__(self, seeds: Sequence[Node]) -> None:
        self.primaries: tuple[Node, ...] = ()
        self.version = 0  # counts the adopted maps
        self._seeds = tuple(seeds)
        self._known: tuple[Node, ...] = ()
        self._slots: list[Node | None] = [None] * SLOTS

    def take(self, reply: Any, asked: Node) -> None:
        """Adopt the map that the server `asked` returned. A node without an address in the map is `asked` itself."""
        slots: list[Node | None] = [None] * SLOTS
        primaries: dict[Node, None] = {}
        known: dict[Node, None] = {asked: None}  # first, so that the next question goes to the server that answered
        for first, last, *servers in reply:
            nodes = [(_host(server[0]) or asked[0], int(server[1])) for server in servers]
            slots[first : last + 1] = [nodes[0]] * (last + 1 - first)
            primaries[nodes[0]] = None
            known.update(dict.fromkeys(nodes))
        self._slots, self.primaries, self._known = slots, tuple(primaries), tuple(known)
        self.version += 1

    def moved(self, slot: int, node: Node) -> None:
        """Record that another primary serves a slot now."""
        self._slots[slot] = node

    def node_of(self, key: str | None) -> Node | None:
        """Return the primary for a key; None if no server is known to serve its slot."""
        if key is None:
            return self.primaries[0] if self.primaries else None
        return self._slots[slot_of(key)]

    def to_ask(self) -> list[Node]:
        """Return each server that may know the map once, in the order to ask them.

        The order is: the last one that answered, the servers of its map, and the servers of the URL.
        """
        return list(dict.fromkeys((*self._known, *self._seeds)))


def _host(word: Any) -> str:
    host = word.decode() if isinstance(word, bytes) else str(word or "")
    return "" if host == "?" else host


#: The wait before each further round, in seconds, if a server needs time.
PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
ASKING: Final[Command[None]] = plain("ASKING", read=lambda _: None)


class Routed(NamedTuple):
    """A command has a place among the answers, and may have been redirected to the server `node`.

    With `asking`, ASKING goes first: the server accepts a command for a slot that is moving to it.
    """

    place: int
    command: Command[Any]
    node: Node | None = None
    asking: bool = False


class PrimaryLink:
    """A link is one connection to one primary during an exchange, with the sent commands that have no reply."""

    def __init__(self, node: Node, connection: Any, state: ServerState, durability: Durability | None) -> None:
        self.node = node
        self.connection = connection
        self.state = state
        self.pending: Routed | None = None  # the next command to send, once the clock of the server is known
        self._question: Command[None] | None = None  # a question for the clock that has no reply
        self.waiting: deque[tuple[Routed, int]] = deque()
        self.barrier = Barrier(durability) if durability is not None else None
        self.wrong: WrongServer | None = None  # the reason to close the connection after all replies
        self._bytes = 0
        self._packet = bytearray()  # sent before any reply is read

    @property
    def full(self) -> bool:
        """Return whether replies must be read before more is sent, as in an `Exchange`."""
        much = len(self.waiting) >= AHEAD or self._bytes >= AHEAD_BYTES
        return self._question is not None or (much and self.connection.until == inf)

    def to_send(self, routed: Routed) -> Iterator[bytes]:
        """Yield the packets to send for a command. Small commands wait for `rest`.

        If the deadline of the command needs the clock of the server, the question for the clock goes first.
        """
        self.pending = routed
        if promises(routed.command) and self.state.stale:
            self._question = self.state.ask()
            self._add(Routed(NO_PLACE, self._question))
            yield self._take_packet()
        self.pending = None
        self._add(routed)
        if len(self._packet) >= PACKET or self.full:
            yield self._take_packet()

    def rest(self) -> bytes:
        """Return the packet to send before the last replies are read, with the commands that confirm earlier changes."""
        if self.barrier is not None and self.barrier.needed:
            for command in self.barrier.commands():
                self._add(Routed(NO_PLACE, command))
        return self._take_packet()

    def again(self, routed: Routed) -> bytes:
        """Return the bytes that send a command again, at once."""
        self._add(routed)
        return self._take_packet()

    def _add(self, routed: Routed) -> None:
        if routed.asking:
            self._add(Routed(NO_PLACE, ASKING))
        packed = pack(routed.command, self.state)
        self.waiting.append((routed, len(packed)))
        self._bytes += len(packed)
        self._packet += packed
        if self.barrier is not None:
            self.barrier.sent(routed.command)

    def _take_packet(self) -> bytes:
        packet = bytes(self._packet)
        self._packet.clear()
        return packet

    def take(self) -> Routed:
        """Remove the command whose reply has arrived, and return it."""
        routed, size = self.waiting.popleft()
        self._bytes -= size
        if routed.command is self._question:
            self._question = None
        return routed


class ClusterExchange:
    """An exchange keeps commands that have no reply, the answers in order, and the links in use."""

    def __init__(
        self, commands: Iterable[Command[Any]], slots: SlotMap, durability: Durability | None, until: float = inf
    ) -> None:
        self.answers: list[Any] = []
        self.links: dict[Node, PrimaryLink] = {}
        self.down: dict[Node, Exception] = {}  # unreachable in this round
        self.trouble: set[Node] = set()  # servers that failed: the last to ask for the map
        self.stale = False  # the map may be wrong: ask for it again
        self.durability = durability
        self.until = until  # by the precise monotonic clock; a later answer is not read
        self._slots = slots
        self._commands = iter(commands)
        self._next: list[tuple[Routed, Exception]] = []
        self._again: deque[Routed] = deque()
        self._patient = False
        self._rounds = 0
        self._repeated: set[int] = set()  # sent on a connection that broke before the reply
        self._late: set[int] = set()  # refused once because their deadline had passed
        self._unknown: dict[int, StoreError] = {}
        # The errors of owners' commands whose replies were lost, by their first key. The exchange sends no later command
        # of such an owner: it could run although the lost one did not.
        self._owner_errors: dict[str, StoreError] = {}

    # -- out ---------------------------------------------------------------------------------------------------------

    def to_send(self) -> Iterator[tuple[Node, Routed]]:
        """Yield each command of this round with its server."""
        while self._again:
            yield from self._route(self._again.popleft())
        for command in self._commands:
            self.answers.append(UNANSWERED)
            yield from self._route(Routed(len(self.answers) - 1, command))

    def _route(self, routed: Routed) -> Iterator[tuple[Node, Routed]]:
        if routed.command.keys is EVERY and routed.node is None:
            replies: dict[Node, Any] = {}
            for primary in self._slots.primaries:
                yield from self._route(routed._replace(command=self._part(routed, primary, replies), node=primary))
            return
        if once(routed.command) and (lost := self._owner_errors.get(routed.command.keys[0])) is not None:
            self.answers[routed.place] = as_not_done(lost)
            return
        node = routed.node or self._slots.node_of(key_of(routed.command))
        if node is None:
            nobody = redis.exceptions.ClusterDownError("CLUSTERDOWN no primary is known for this slot")
            self._bounce(routed, nobody, patient=True)
        elif node in self.down:
            self._bounce(routed, self.down[node], patient=True)
        else:
            yield node, routed

    def _part(self, routed: Routed, node: Node, replies: dict[Node, Any]) -> Command[Any]:
        """Return the part of one primary in a command for all primaries. The last reply completes the answer."""
        everyone = len(self._slots.primaries)

        def read(reply: Any) -> Any:
            replies[node] = reply
            if isinstance(self.answers[routed.place], StoreError):
                return self.answers[routed.place]  # another part failed
            return routed.command.read(Replies(list(replies.values()))) if len(replies) == everyone else UNANSWERED

        return Command("", EVERY, routed.command.args, read)

    # -- in ----------------------------------------------------------------------------------------------------------

    def answered(self, link: PrimaryLink, reply: Any) -> bytes | None:
        """Handle the next reply of a link. Return bytes to send at once, if any."""
        routed = link.take()
        if isinstance(reply, Exception):
            again = self._refused(link, routed, reply)
            return link.again(again) if again is not None else None
        answer = read_reply(routed.command, reply)
        if isinstance(answer, StoreError) and routed.place in self._repeated:
            answer = as_unknown(answer)
        if routed.place != NO_PLACE:
            self.answers[routed.place] = answer
            if link.barrier is not None:
                link.barrier.answered(routed.place, routed.command)
        return None

    def _refused(self, link: PrimaryLink, routed: Routed, error: Exception) -> Routed | None:
        if isinstance(error, redis.exceptions.NoScriptError):
            link.state.loaded.discard(routed.command.script)
            return routed
        if isinstance(error, WrongServer):
            link.wrong = error
        if routed.place == NO_PLACE:
            return None
        if (time := late_by(error)) is not None:
            link.state.learn(time)
            if routed.place not in self._late:
                self._late.add(routed.place)
                return routed
        if (other := instead(routed.command, error)) is not None:
            return routed._replace(command=other)
        if isinstance(error, redis.exceptions.AskError):  # also MOVED: a MovedError is an AskError
            node = (error.host or link.node[0], error.port)
            moved = isinstance(error, redis.exceptions.MovedError)
            if moved:
                self._slots.moved(error.slot_id, node)
                self.stale = True
            # The first redirection is followed at once. Later ones wait: the servers may disagree for a moment.
            self._bounce(routed._replace(node=node, asking=not moved), error, patient=self._rounds > 0)
        elif isinstance(error, PASSING_ERRORS):
            self.stale = self.stale or not isinstance(error, redis.exceptions.TryAgainError)
            self._bounce(routed._replace(node=None, asking=False), error, patient=True)
        else:
            self.answers[routed.place] = self._error_of(routed, error)
        return None

    def _error_of(self, routed: Routed, error: Exception) -> StoreError:
        """Return the error of a command that did not run now. If it was sent before, it may have run then."""
        return as_unknown(translate(error)) if routed.place in self._repeated else as_not_done(error)

    def unreachable(self, node: Node, routed: Routed, error: Exception) -> None:
        """Record that a server accepts no connection, so that the command did not run there."""
        self.stale = True
        self.trouble.add(node)
        self.down[node] = error
        self._bounce(routed._replace(node=None, asking=False), error, patient=True)

    def lost(self, link: PrimaryLink, error: Exception) -> None:
        """Record a broken link: the last reply may be lost, so the outcome of commands without a reply is unknown."""
        self.links.pop(link.node, None)
        self.stale = True
        self.trouble.add(link.node)
        if link.barrier is not None:
            self._unknown.update(dict.fromkeys(link.barrier.uncovered, link.barrier.error()))
        link.state.forget()
        if link.pending is not None:  # the link sent only the question for the clock, not the command
            self._bounce(link.pending._replace(node=None, asking=False), error, patient=False)
        for routed, _ in link.waiting:
            if routed.place == NO_PLACE:
                continue
            if once(routed.command):
                self.answers[routed.place] = self._owner_errors[routed.command.keys[0]] = translate(error)
            elif broken(error) and routed.place not in self._repeated:
                self._repeated.add(routed.place)
                self._bounce(routed._replace(node=None, asking=False), error, patient=False)
            elif is_login_refused(error):
                self.answers[routed.place] = self._error_of(routed, error)
            else:
                self.answers[routed.place] = as_unknown(translate(error))
        link.waiting.clear()

    def _bounce(self, routed: Routed, error: Exception, *, patient: bool) -> None:
        if routed.command.keys is EVERY and self._slots.primaries:  # no other server can answer instead
            self.answers[routed.place] = translate(error)
            return
        self._next.append((routed, error))
        self._patient = self._patient or patient

    # -- rounds ------------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Return whether another round is needed."""
        return bool(self._next)

    def next_round(self) -> float | None:
        """Begin another round. Return the wait before it, in seconds; None if no more rounds are allowed."""
        if self._rounds == len(PAUSES):
            return None
        pause = PAUSES[self._rounds] if self._patient else 0.0
        self._rounds += 1
        self._again.extend(routed for routed, _ in sorted(self._next, key=lambda one: one[0].place))
        self._next.clear()
        self.down.clear()
        self._patient = False
        return pause

    def result(self) -> list[Any]:
        """Return the answers at the end. A command that still needs another round gets its last error."""
        for routed, error in self._next:
            is_redirected = isinstance(error, redis.exceptions.AskError)
            last = StoreUnavailable(f"the cluster redirected it too often: {error}") if is_redirected else error
            self.answers[routed.place] = self._error_of(routed, last)
        for link in self.links.values():
            if link.barrier is not None:
                self._unknown.update(dict.fromkeys(link.barrier.uncovered, link.barrier.error()))
        for index, unknown in self._unknown.items():
            if not isinstance(self.answers[index], StoreError):
                self.answers[index] = unknown
        return self.answers

    def give_up(self, error: Exception) -> list[Any]:
        """Return the error for every command, because none can be sent."""
        failed = as_not_done(error)
        self.answers.extend(failed for _ in self._commands)
        return self.answers


def nobody(tried: Iterable[Node], error: Exception | None) -> StoreError:
    """Return the error for a cluster of which no server returns the map of slots."""
    if isinstance(error, WrongKind):
        return translate(error)
    named = ", ".join(f"{host}:{port}" for host, port in tried)
    return StoreUnavailable(f"no server of the Redis Cluster answers ({named}): {error}")
