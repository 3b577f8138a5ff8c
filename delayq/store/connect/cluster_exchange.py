"""Commands on their way to the primaries of a cluster: the slots, their known servers, the next sends, and the replies.

No I/O is done here: `AsyncCluster` sends and receives, and `Cluster`. Work goes in rounds. Some commands go once more in
the next round, because nothing ran: a server redirected them (MOVED, ASK), refused them for now (TRYAGAIN, CLUSTERDOWN,
READONLY), or never got them. The outcome of a command is unknown if its server broke before the reply. The command is
sent once more, as by a single server's store, because every script is idempotent. An owner's command is not: its owner
continues as the next incarnation.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final, NamedTuple

import redis

from delayq.errors import StoreError, StoreUnavailable
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
from delayq.store.connect.server_state import ServerState, WrongServer, late_by

__all__ = [
    "PAUSES",
    "SLOTS",
    "WHO",
    "ClusterExchange",
    "PrimaryLink",
    "Routed",
    "SlotMap",
    "key_of",
    "nobody",
    "slot_of",
]

SLOTS: Final = 16_384
#: Asks a server which primary serves which slots.
WHO: Final[Any] = ("CLUSTER", "SLOTS")


@lru_cache(maxsize=8192)
def slot_of(key: str) -> int:
    """CRC-16 of the hash tag (or of the complete key) modulo 16,384."""
    start = key.find("{")
    if start >= 0 and (end := key.find("}", start + 1)) > start + 1:
        key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


def key_of(command: Command[Any]) -> str | None:
    """The key that decides where a command goes: its first one, or the word after a plain command's name.

    A wrong guess costs a redirection. A command without a key may be sent to any server.
    """
    if command.keys:
        return command.keys[0]
    if not command.script and len(command.args) > 1:
        guess = command.args[1]
        return guess.decode(errors="replace") if isinstance(guess, bytes) else str(guess)
    return None


class SlotMap:
    """The primaries by slot. Threads may read it while one writes: each look is at one complete list."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self.primaries: tuple[Node, ...] = ()
        self.version = 0  # counts the adopted maps
        self._seeds = tuple(seeds)
        self._known: tuple[Node, ...] = ()
        self._slots: list[Node | None] = [None] * SLOTS

    def take(self, reply: Any, asked: Node) -> None:
        """Adopt the answer of `asked`. A server that does not know its own address means the one we asked."""
        slots: list[Node | None] = [None] * SLOTS
        primaries: dict[Node, None] = {}
        known: dict[Node, None] = {asked: None}  # the server that answered is asked first the next time
        for first, last, *servers in reply:
            nodes = [(_host(server[0]) or asked[0], int(server[1])) for server in servers]
            slots[first : last + 1] = [nodes[0]] * (last + 1 - first)
            primaries[nodes[0]] = None
            known.update(dict.fromkeys(nodes))
        self._slots, self.primaries, self._known = slots, tuple(primaries), tuple(known)
        self.version += 1

    def moved(self, slot: int, node: Node) -> None:
        """A server reported that a slot lies elsewhere."""
        self._slots[slot] = node

    def node_of(self, key: str | None) -> Node | None:
        """Return the primary for a key; None if no server is known to serve its slot."""
        if key is None:
            return self.primaries[0] if self.primaries else None
        return self._slots[slot_of(key)]

    def to_ask(self) -> list[Node]:
        """Return servers that may know the map, each once: the last one that answered, those of its map, those of the
        URL.
        """
        return list(dict.fromkeys((*self._known, *self._seeds)))


def _host(word: Any) -> str:
    host = word.decode() if isinstance(word, bytes) else str(word or "")
    return "" if host == "?" else host


#: The wait before each further round, in seconds, if a server needs time.
PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
ASKING: Final[Command[None]] = plain("ASKING", read=lambda _: None)


class Routed(NamedTuple):
    """A command, its place among the answers, and the server that it was redirected to."""

    place: int
    command: Command[Any]
    node: Node | None = None
    asking: bool = False


class PrimaryLink:
    """One connection to one primary during an exchange: commands that were sent and are not answered."""

    def __init__(self, node: Node, connection: Any, state: ServerState, durability: Durability | None) -> None:
        self.node = node
        self.connection = connection
        self.state = state
        self.pending: Routed | None = None  # sent next, once the clock is known
        self._question: Command[None] | None = None  # questions for the clock that are not answered
        self.waiting: deque[tuple[Routed, int]] = deque()
        self.barrier = Barrier(durability) if durability is not None else None
        self.wrong: WrongServer | None = None  # the reason to leave it once all commands are answered
        self._bytes = 0
        self._packet = bytearray()  # sent before any reply is read

    @property
    def full(self) -> bool:
        """Return whether replies must be read before more is sent, as in an `Exchange`."""
        much = len(self.waiting) >= AHEAD or self._bytes >= AHEAD_BYTES
        return self._question is not None or (much and self.connection.until == inf)

    def to_send(self, routed: Routed) -> Iterator[bytes]:
        """Return the command, after the question for the clock if its deadline needs it. Small ones wait for `rest`."""
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
        """The commands to send before the last replies are read, with the commands that must follow the former changes."""
        if self.barrier is not None and self.barrier.needed:
            for command in self.barrier.commands():
                self._add(Routed(NO_PLACE, command))
        return self._take_packet()

    def again(self, routed: Routed) -> bytes:
        """Send a command once more, at once."""
        self._add(routed)
        return self._take_packet()

    def _add(self, routed: Routed) -> None:
        if routed.asking:
            self._add(Routed(NO_PLACE, ASKING))
        whole = pack(routed.command, self.state)
        self.waiting.append((routed, len(whole)))
        self._bytes += len(whole)
        self._packet += whole
        if self.barrier is not None:
            self.barrier.sent(routed.command)

    def _take_packet(self) -> bytes:
        packet = bytes(self._packet)
        self._packet.clear()
        return packet

    def take(self) -> Routed:
        """Return the command whose reply has come."""
        routed, size = self.waiting.popleft()
        self._bytes -= size
        if routed.command is self._question:
            self._question = None
        return routed


class ClusterExchange:
    """Commands on their way, their answers in order, and the links in use."""

    def __init__(
        self, commands: Iterable[Command[Any]], slots: SlotMap, durability: Durability | None, until: float = inf
    ) -> None:
        self.answers: list[Any] = []
        self.links: dict[Node, PrimaryLink] = {}
        self.down: dict[Node, Exception] = {}  # unreachable in this round
        self.trouble: set[Node] = set()  # asked last for the map
        self.stale = False  # the map must be asked for
        self.durability = durability
        self.until = until  # by the precise monotonic clock
        self._slots = slots
        self._commands = iter(commands)
        self._next: list[tuple[Routed, Exception]] = []
        self._again: deque[Routed] = deque()
        self._patient = False
        self._rounds = 0
        self._repeated: set[int] = set()  # sent to a server that broke before it answered them
        self._late: set[int] = set()  # refused once because their deadline had passed
        self._unknown: dict[int, StoreError] = {}
        self._unheard: dict[str, StoreError] = {}  # by the first key of an owner's command: nothing may follow it

    # -- out ---------------------------------------------------------------------------------------------------------

    def to_send(self) -> Iterator[tuple[Node, Routed]]:
        """The commands of this round by server."""
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
        if once(routed.command) and (unheard := self._unheard.get(routed.command.keys[0])) is not None:
            self.answers[routed.place] = as_not_done(unheard)
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
        """One primary's part of a command for all of them. The last reply completes it."""
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
        if isinstance(error, redis.exceptions.AskError):  # MOVED, too
            node = (error.host or link.node[0], error.port)
            moved = isinstance(error, redis.exceptions.MovedError)
            if moved:
                self._slots.moved(error.slot_id, node)
                self.stale = True
            # At first it is sent there at once; servers that disagree for a moment are given time.
            self._bounce(routed._replace(node=node, asking=not moved), error, patient=self._rounds > 0)
        elif isinstance(error, PASSING_ERRORS):
            self.stale = self.stale or not isinstance(error, redis.exceptions.TryAgainError)
            self._bounce(routed._replace(node=None, asking=False), error, patient=True)
        else:
            self.answers[routed.place] = self._told(routed, error)
        return None

    def _told(self, routed: Routed, error: Exception) -> StoreError:
        """Record the error of a command that did not run now. It may have run if it was sent before."""
        return as_unknown(translate(error)) if routed.place in self._repeated else as_not_done(error)

    def unreachable(self, node: Node, routed: Routed, error: Exception) -> None:
        """Record that there is no connection to a server: nothing ran there."""
        self.stale = True
        self.trouble.add(node)
        self.down[node] = error
        self._bounce(routed._replace(node=None, asking=False), error, patient=True)

    def lost(self, link: PrimaryLink, error: Exception) -> None:
        """Record a broken link: its last answer may be lost, and the outcome of unanswered commands is unknown."""
        self.links.pop(link.node, None)
        self.stale = True
        self.trouble.add(link.node)
        if link.barrier is not None:
            self._unknown.update(dict.fromkeys(link.barrier.uncovered, link.barrier.error()))
        link.state.forget()
        if link.pending is not None:  # only the question before it was sent
            self._bounce(link.pending._replace(node=None, asking=False), error, patient=False)
        for routed, _ in link.waiting:
            if routed.place == NO_PLACE:
                continue
            if once(routed.command):
                self.answers[routed.place] = self._unheard[routed.command.keys[0]] = translate(error)
            elif broken(error) and routed.place not in self._repeated:
                self._repeated.add(routed.place)
                self._bounce(routed._replace(node=None, asking=False), error, patient=False)
            elif is_login_refused(error):
                self.answers[routed.place] = self._told(routed, error)
            else:
                self.answers[routed.place] = as_unknown(translate(error))
        link.waiting.clear()

    def _bounce(self, routed: Routed, error: Exception, *, patient: bool) -> None:
        if routed.command.keys is EVERY and self._slots.primaries:  # no other server can answer for this one
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
        """Begin another round. Return the wait before it, in seconds; None if there were enough."""
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
        """The answers at the end. A command that is still redirected gets its last error."""
        for routed, error in self._next:
            astray = isinstance(error, redis.exceptions.AskError)
            told = StoreUnavailable(f"the cluster redirected it too often: {error}") if astray else error
            self.answers[routed.place] = self._told(routed, told)
        for link in self.links.values():
            if link.barrier is not None:
                self._unknown.update(dict.fromkeys(link.barrier.uncovered, link.barrier.error()))
        for index, unknown in self._unknown.items():
            if not isinstance(self.answers[index], StoreError):
                self.answers[index] = unknown
        return self.answers

    def give_up(self, error: Exception) -> list[Any]:
        """Record that nothing can be sent: every command gets the error."""
        failed = as_not_done(error)
        self.answers.extend(failed for _ in self._commands)
        return self.answers


def nobody(tried: Iterable[Node], error: Exception | None) -> StoreUnavailable:
    """No server of the cluster returns the slots and their servers."""
    named = ", ".join(f"{host}:{port}" for host, port in tried)
    return StoreUnavailable(f"no server of the Redis Cluster answers ({named}): {error}")
