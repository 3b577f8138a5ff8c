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
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache  # noqa: TID251  # the keys are names of Redis keys, with one topic at most
from math import inf
from typing import Any, Final

import redis

from delayq.base.errors import StoreError, StoreUnavailable
from delayq.store.commands import EVERY, Command, Replies
from delayq.store.connect.address import Node
from delayq.store.connect.durability import Durability
from delayq.store.connect.exchange import (
    PASSING_ERRORS,
    UNANSWERED,
    Exchange,
    as_not_done,
    as_unknown,
    broken,
    is_login_refused,
    once,
    translate,
)
from delayq.store.connect.link import NO_PLACE, Link, Sent
from delayq.store.connect.server_state import WrongKind

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


class ClusterExchange(Exchange):
    """An exchange with the primaries of a cluster: a link to each that is in use."""

    def __init__(
        self, commands: Iterable[Command[Any]], slots: SlotMap, durability: Durability | None, until: float = inf
    ) -> None:
        super().__init__(commands, durability, until)
        self.links: dict[Node, Link] = {}
        self.down: dict[Node, Exception] = {}  # unreachable in this round
        self.trouble: set[Node] = set()  # servers that failed: the last to ask for the map
        self.stale = False  # the map may be wrong: ask for it again
        self._slots = slots
        self._next: list[tuple[Sent, Exception]] = []
        self._patient = False
        self._rounds = 0
        # The errors of owners' commands whose replies were lost, by their first key. The exchange sends no later command
        # of such an owner: it could run although the lost one did not.
        self._owner_errors: dict[str, StoreError] = {}

    # -- out ---------------------------------------------------------------------------------------------------------

    def to_send(self) -> Iterator[tuple[Node, Sent]]:
        """Yield each command of this round with its server."""
        for sent in self.wanted():
            yield from self._route(sent)

    def _route(self, sent: Sent) -> Iterator[tuple[Node, Sent]]:
        place, command, node, asking = sent
        if command.keys is EVERY and node is None:
            replies: dict[Node, Any] = {}
            for primary in self._slots.primaries:
                yield from self._route((place, self._part(place, command, primary, replies), primary, asking))
            return
        if once(command) and (lost := self._owner_errors.get(command.keys[0])) is not None:
            self.answers[place] = as_not_done(lost)
            return
        node = node or self._slots.node_of(key_of(command))
        if node is None:
            nobody = redis.exceptions.ClusterDownError("CLUSTERDOWN no primary is known for this slot")
            self._bounce(sent, nobody)
        elif node in self.down:
            self._bounce(sent, self.down[node])
        else:
            yield node, sent

    def _part(self, place: int, command: Command[Any], node: Node, replies: dict[Node, Any]) -> Command[Any]:
        """Return the part of one primary in a command for all primaries. The last reply completes the answer."""
        everyone = len(self._slots.primaries)

        def read(reply: Any) -> Any:
            replies[node] = reply
            if isinstance(self.answers[place], StoreError):
                return self.answers[place]  # another part failed
            return command.read(Replies(list(replies.values()))) if len(replies) == everyone else UNANSWERED

        return Command("", EVERY, command.args, read)

    # -- in ----------------------------------------------------------------------------------------------------------

    def _did_not_run(self, link: Link, sent: Sent, error: Exception) -> None:
        if isinstance(error, redis.exceptions.AskError):  # also MOVED: a MovedError is an AskError
            assert link.node is not None
            node = (error.host or link.node[0], error.port)
            moved = isinstance(error, redis.exceptions.MovedError)
            if moved:
                self._slots.moved(error.slot_id, node)
                self.stale = True
            # The first redirection is followed at once. Later ones wait: the servers may disagree for a moment.
            self._bounce(sent, error, node, asking=not moved, patient=self._rounds > 0)
        elif isinstance(error, PASSING_ERRORS):
            self.stale = self.stale or not isinstance(error, redis.exceptions.TryAgainError)
            self._bounce(sent, error)
        else:
            super()._did_not_run(link, sent, error)

    def unreachable(self, node: Node, sent: Sent, error: Exception) -> None:
        """Record that a server accepts no connection, so that the command did not run there."""
        self.stale = True
        self.trouble.add(node)
        self.down[node] = error
        self._bounce(sent, error)

    def lost(self, link: Link, error: Exception) -> None:
        """Record a broken link: the last reply may be lost, so the outcome of commands without a reply is unknown."""
        assert link.node is not None
        self.links.pop(link.node, None)
        self.stale = True
        self.trouble.add(link.node)
        self._leave(link)
        link.state.forget()
        if link.pending is not None:  # the link sent only the question for the clock, not the command
            self._bounce(link.pending, error, patient=False)
        for sent, _ in link.waiting:
            place, command, _, _ = sent
            if place == NO_PLACE:
                continue
            if once(command):
                self.answers[place] = self._owner_errors[command.keys[0]] = translate(error)
            elif broken(error) and place not in self._unsure:
                self._unsure |= {place}
                self._bounce(sent, error, patient=False)
            elif is_login_refused(error):
                self._put(place, as_not_done(error))
            else:
                self.answers[place] = as_unknown(translate(error))
        link.waiting.clear()

    def _bounce(
        self, sent: Sent, error: Exception, node: Node | None = None, *, asking: bool = False, patient: bool = True
    ) -> None:
        place, command, _, _ = sent
        if command.keys is EVERY and self._slots.primaries:  # no other server can answer instead
            self.answers[place] = translate(error)
            return
        self._next.append(((place, command, node, asking), error))
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
        self._again.extend(sent for sent, _ in sorted(self._next, key=lambda one: one[0][0]))
        self._next.clear()
        self.down.clear()
        self._patient = False
        return pause

    def result(self) -> list[Any]:
        """Return the answers at the end. A command that still needs another round gets its last error."""
        for (place, *_), error in self._next:
            is_redirected = isinstance(error, redis.exceptions.AskError)
            last = StoreUnavailable(f"the cluster redirected it too often: {error}") if is_redirected else error
            self._put(place, as_not_done(last))
        self._next.clear()
        for link in self.links.values():
            self._leave(link)
        return super().result()

    def give_up(self, error: Exception) -> None:
        """Answer every command with the error, because none can be sent."""
        failed = as_not_done(error)
        self.answers.extend(failed for _ in self._commands)


def nobody(tried: Iterable[Node], error: Exception | None) -> StoreError:
    """Return the error for a cluster of which no server returns the map of slots."""
    if isinstance(error, WrongKind):
        return translate(error)
    named = ", ".join(f"{host}:{port}" for host, port in tried)
    return StoreUnavailable(f"no server of the Redis Cluster answers ({named}): {error}")
