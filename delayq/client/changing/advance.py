"""Moves the time of a development server forward, from one due time to the next, so that everything happens in its order.

A development server is one that `./dev up --dev` or `delayq.testing` has started: its `delayq:meta` has the field `advanced`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.base.errors import InvalidMessage, NotDevelopment, StillDue
from delayq.client.plan import Context, Plan
from delayq.domain.nodes import NodeLine, read_nodes
from delayq.domain.policies import Policies
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.exchange import all_good

#: The number of exact stops at due times. The rest of the time is divided into as many equal parts at most, so later
#: messages are late, never early.
EXACT: Final = 100
PARTS: Final = 50
REMEDY: Final = (
    "only a development server moves its time; start one with `./dev up --dev` or `delayq.testing.run()`, and "
    "again after a FLUSHALL"
)


class Advanced(msgspec.Struct, frozen=True):
    """The time of a development server (Unix ms), and the ms between it and the machine's clock."""

    now: int
    ahead: int


class Advance:
    """One way through time, and its progress."""

    def __init__(self, goal: int, nodes: list[str]) -> None:
        self.goal = goal  # the ms that the server is ahead in the end
        self.nodes = nodes  # the workers that have to follow
        self.steps = 0
        self.moved = False  # whether the last step has moved the time
        self.due = 0  # queues that have due messages
        self.behind: list[str] = []  # workers that have not followed

    def late(self) -> StillDue:
        """Return the error if this takes too long."""
        return StillDue(self.due, self.behind)


class _Seen(msgspec.Struct, frozen=True):
    now: int
    ahead: int
    nodes: dict[str, NodeLine]
    followers: dict[str, int]
    heads: list[int]  # the earliest due time of each queue that has messages
    pauses: list[int]  # when pauses end by themselves

    @property
    def events(self) -> list[int]:
        """Return the next time at which something happens by itself."""
        circuits = [route.circuit.probe for line in self.nodes.values() for route in line.routes if route.circuit]
        return [at for at in (*self.heads, *self.pauses, *circuits) if at > self.now]


def begin_advance(context: Context, ms: int) -> Plan[Advance]:
    """Read where to start. Raises NotDevelopment and InvalidMessage."""
    most = context.limits.horizon
    if not 0 <= ms <= most:
        raise InvalidMessage("time", f"must be between 0 and {most} ms")
    seen = yield from _see(context)
    return Advance(seen.ahead + ms, [name for name, line in seen.nodes.items() if not line.stale])


def step_of_advance(context: Context, advance: Advance) -> Plan[Advanced | None]:
    """Move to the next event, if everything due is done. Return the time once it is at the goal."""
    seen = yield from _see(context)
    advance.moved = False
    advance.due = sum(due <= seen.now for due in seen.heads)
    advance.behind = [name for name in advance.nodes if seen.followers.get(name, -1) < seen.ahead]
    if advance.due and not advance.nodes:
        raise advance.late()
    if advance.due or advance.behind:
        return None
    rest = advance.goal - seen.ahead
    if rest <= 0:
        return Advanced(seen.now, seen.ahead)
    advance.steps += 1
    to_event = min(seen.events, default=seen.now + rest) - seen.now
    least = 1 if advance.steps <= EXACT else max(1, rest // PARTS)
    wanted = seen.ahead + min(rest, max(least, to_event))
    (ahead,) = all_good((yield [commands.advance(context.keys, wanted)]))
    if ahead is None:
        raise NotDevelopment(REMEDY)
    advance.moved = True
    return None


def _see(context: Context) -> Plan[_Seen]:
    keys = context.keys
    asked: list[Command[Any]] = [
        commands.advanced(keys), commands.redis_now(), commands.nodes(keys), commands.followers(keys),
        commands.policies(keys)
    ]  # fmt: skip
    heads = [commands.lowest_due(keys.queue(queue).queue) for queue in context.layouts.queues]
    ahead, now, lines, followers, policies, *dues = all_good((yield [*asked, *heads]))
    if ahead is None:
        raise NotDevelopment(REMEDY)
    ends = [pause.until for pause in Policies.read(policies).pauses.values() if pause.until is not None]
    return _Seen(now, ahead, read_nodes(lines, now), followers, [due for due in dues if due is not None], ends)
