"""What the owner of a queue does with the messages it pulled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from delayq.store.commands.command import RETENTION, Arg, Command, Now, Retention, texts
from delayq.store.keys import QueueKeys

__all__ = ["AsPulled", "Head", "Parked", "ack", "bury", "park", "repair", "retry", "unpark"]


class AsPulled(Protocol):
    """A message as it was pulled: what settling it compares."""

    @property
    def ticket(self) -> bytes: ...
    @property
    def score(self) -> int:
        """Its place in the queue: the due (Unix ms) of this attempt."""

    @property
    def attempts(self) -> int:
        """Failed attempts so far."""

    @property
    def digest(self) -> int | None:
        """Of what it is, if its id is remembered when it is forwarded."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its business keys."""


def ack(
    keys: QueueKeys, epoch: str, done: Sequence[AsPulled], *, now: Now = "", retention: Retention = RETENTION
) -> Command[tuple[bool, int]]:
    """Forget forwarded messages: (False if fenced, how many were removed)."""
    args: list[Arg] = [epoch, now, retention.window, retention.most, len(done)]
    args += [one.ticket for one in done]
    args += [one.score for one in done]
    args += ["" if (digest := one.digest) is None else digest for one in done]
    for one in done:
        if business_keys := one.keys:
            id = b"\0" + one.ticket[:-8]
            args += [key.encode() + id for key in business_keys]
    return Command(
        "ack",
        (keys.state, keys.queue, keys.pool, keys.attempts, keys.index, keys.final),
        args,
        lambda reply: (reply[0] == b"ok", reply[1]),
    )


def _read_settled(reply: list[Any]) -> list[str] | None:
    return None if reply[0] == b"fenced" else texts(reply[1:])


def retry(keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int | None]]) -> Command[list[str] | None]:
    """Count a failed attempt of each and set the due of the next (None keeps it).

    'ok', 'gone' or 'changed' of each; None: fenced.
    """
    args: list[Arg] = [epoch]
    for one, next_due in failed:
        args += (one.ticket, one.score, one.attempts, "" if next_due is None else next_due)
    return Command("retry", (keys.state, keys.queue, keys.attempts), args, _read_settled)


def bury(
    keys: QueueKeys, epoch: str, failed: Sequence[tuple[AsPulled, int, str]], *, now: Now = ""
) -> Command[list[str] | None]:
    """Give messages up, after so many attempts and for a reason. 'ok', 'gone' or 'changed' of each; None: fenced."""
    args: list[Arg] = [epoch, now]
    for one, attempts, reason in failed:
        # A target may say what is no text; that is to hold up nothing.
        args += (one.ticket, one.score, one.attempts, attempts, reason.encode(errors="replace"))
    names = (keys.state, keys.queue, keys.attempts, keys.dead, keys.reasons)
    return Command("bury", names, args, _read_settled)


Head = tuple[int, bytes]


class Parked(msgspec.Struct, frozen=True):
    """A parked set as it is: the score and ticket of the lowest message in it (None: it is empty), and its turn.

    What leaves the set begins another turn.
    """

    turn: str
    head: Head | None


def _read_parked(reply: list[bytes]) -> Parked | None:
    if reply[0] == b"fenced":
        return None
    return Parked(reply[1].decode(), (int(reply[2]), reply[3]) if reply[2] else None)


def park(keys: QueueKeys, epoch: str, name: str, messages: Sequence[AsPulled]) -> Command[Parked | None]:
    """Set messages aside under `name`; None: fenced."""
    args: list[Arg] = [epoch, name]
    for one in messages:
        args += (one.ticket, one.score, one.attempts)
    return Command("park", (keys.state, keys.queue, keys.attempts, keys.parked(name)), args, _read_parked)


def unpark(keys: QueueKeys, epoch: str, name: str, turn: str, limit: int, begin: float = 0) -> Command[Parked | None]:
    """Put up to `limit` messages parked under `name` back into the queue, lowest due first; None: fenced.

    It does nothing but in the `turn` that the set was said to be in. `begin` (0 to 1) takes them from somewhere within
    instead: a probe must not always be the same message. Tickets of cancelled messages at the head are dropped.
    """
    return Command(
        "unpark",
        (keys.state, keys.queue, keys.pool, keys.parked(name), keys.attempts),
        (epoch, name, turn, limit, f"{begin:.6f}"),
        _read_parked,
    )


def repair(
    keys: QueueKeys, parked: Sequence[str], cursor: str, look: int = 500, *, now: Now = ""
) -> Command[tuple[str, int, int]]:
    """Look at a page of the pool: (next cursor, messages that got their ticket back, records given up as corrupt)."""
    return Command(
        "repair",
        (
            keys.state,
            keys.queue,
            keys.pool,
            keys.attempts,
            keys.dead,
            keys.reasons,
            *map(keys.parked, parked),
        ),
        (now, cursor, look),
        lambda reply: (reply[0].decode(), reply[1], reply[2]),
    )
