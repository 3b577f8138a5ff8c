"""What nodes say of themselves, by the lines that they write every 5 s, and who owns which queue by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Final

import msgspec

from delayq.message import MAX_DUE
from delayq.patterns import compiled

__all__ = [
    "LATELY",
    "LATENESS",
    "LINE_AGE",
    "LONGEST_REASON",
    "RECENT_SLOTS",
    "RECENT_STEP",
    "SAME_NAME",
    "FailedSend",
    "Lately",
    "NodeLine",
    "OpenCircuit",
    "Owned",
    "Recent",
    "RouteLine",
    "era_of",
    "owners_of",
    "ranges",
    "read_nodes",
    "route_of",
]

#: How a worker's complaint begins when another one writes its line, too.
SAME_NAME: Final = "another worker has the name"
#: A line that is older than this (ms) is stale: its node is gone, or cut off from Redis.
LINE_AGE: Final = 15_000

#: So many characters of a target's words stand in a line.
LONGEST_REASON: Final = 300

#: Seconds by which messages are late, as workers count them: the upper ends of the buckets, of which there is one more.
LATENESS: Final = (
    0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 300.0, 600.0,
)  # fmt: skip
#: How long (ms) a slot of what went out lately is, and how many of them are told.
RECENT_STEP: Final = 10_000
RECENT_SLOTS: Final = 60
#: The time (ms) that `Lately` covers, to the minute.
LATELY: Final = 900_000

Ms = Annotated[int, msgspec.Meta(ge=0, le=MAX_DUE)]


class Owned(msgspec.Struct, frozen=True):
    """A queue of a node: the epoch under which it owns it, and since when."""

    epoch: str
    since: Ms | None = None


class OpenCircuit(msgspec.Struct, frozen=True):
    """A circuit that is open: since when, when the next probes may go, and what the target said last."""

    since: Ms
    probe: Ms
    reason: str = ""


class FailedSend(msgspec.Struct, frozen=True):
    """The last send to a target that failed: when, and why."""

    at: Ms
    reason: str = ""


class RouteLine(msgspec.Struct, frozen=True):
    """A route of a node, in the order of its table: the pattern of its topics, its target's kind and hosts, how often its
    messages are tried if neither they nor a policy says so, and what failed last since the node began.

    `send_timeout` is the longest that a send may take (ms). `local` is whether the pull script appends its messages to streams
    of delayq's own Redis. `stream` is the name of its streams if these lie in delayq's own Redis, where `{topic}` stands for
    the topic; `per_queue` is whether each queue has its own.
    """

    name: str
    match: str
    target: str
    circuit: OpenCircuit | None = None
    max_attempts: int | None = None
    failed: FailedSend | None = None
    send_timeout: int | None = None
    local: bool = False
    stream: str | None = None
    per_queue: bool = False


class Recent(msgspec.Struct, frozen=True):
    """How many messages went out in each of the last slots, by their lateness, the last slot being number `last`.

    A slot's number is its time by the clock of Redis divided by `RECENT_STEP`. Its counts are those of the buckets of
    `LATENESS`, without the zeros at the end.
    """

    last: int
    counts: tuple[tuple[int, ...], ...]


class Lately(msgspec.Struct, frozen=True):
    """What a node counted in the last 15 minutes.

    `failures` are unexpected errors of pull jobs and refusals of Redis, `went_back` is how often Redis had lost the last
    changes of a queue, and `claims` how many queues the node took over.
    """

    failures: int = 0
    went_back: int = 0
    claims: int = 0


class NodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A node, by its line. Times are Unix ms by its own clock, but `seen` by that of Redis; what an older worker does not
    say is '' or None.

    `handed_over` is when it last gave a queue up to another node. The times of `routes` are by the clock of Redis, too.
    `complaints` are what keeps it from doing its work well. `policies` is the version of them that all its pull jobs act on,
    and `held` how many messages of topics that are paused by then may arrive yet. `recent` is None until it has run for a
    while. `skew` is the clock of Redis minus the clock of the node, in ms. `tells_routes` is False for an older worker, whose
    line has no table: it may have any route.
    `connected` says whether it is registered with its coordinator. `longest_send` is how long (ms) a message that it has begun to
    send may still arrive, of all its routes and of sends that hang; None for an older worker.
    """

    node: str
    address: str
    version: str
    since: int | None
    seen: int
    stale: bool
    coordinator: str
    queues: dict[int, Owned]
    handed_over: int | None
    routes: tuple[RouteLine, ...] = ()
    tells_routes: bool = False
    complaints: tuple[str, ...] = ()
    policies: str | None = None
    held: dict[str, int] = {}
    recent: Recent | None = None
    lately: Lately | None = None
    skew: int | None = None
    connected: bool | None = None
    longest_send: int | None = None

    def route_of(self, topic: str) -> RouteLine | None:
        """The route of its table that takes a topic."""
        return route_of(topic, self.routes)


class _Written(msgspec.Struct, frozen=True):
    """The JSON of a line; a queue's text alone is its epoch, as older workers write it."""

    seen: Ms
    address: str = ""
    version: str = ""
    since: Ms | None = None
    coordinator: str = ""
    queues: dict[int, Owned | str] = {}
    handed_over: Ms | None = None
    routes: tuple[RouteLine, ...] | None = None
    complaints: tuple[str, ...] = ()
    policies: str | None = None
    held: dict[str, int] = {}
    recent: Recent | None = None
    lately: Lately | None = None
    skew: int | None = None
    connected: bool | None = None
    longest_send: Ms | None = None


_written = msgspec.json.Decoder(_Written)


def read_nodes(lines: Mapping[str, bytes], now: int) -> dict[str, NodeLine]:
    """The nodes by name, as seen at `now` (Unix ms); a line that makes no sense is left out."""
    nodes = {}
    for name, raw in sorted(lines.items()):
        try:
            line = _written.decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):  # of another version, or not ours
            continue
        queues = {q: Owned(one) if isinstance(one, str) else one for q, one in sorted(line.queues.items())}
        nodes[name] = NodeLine(
            node=name,
            address=line.address,
            version=line.version,
            since=line.since,
            seen=line.seen,
            stale=now - line.seen > LINE_AGE,
            coordinator=line.coordinator,
            queues=queues,
            handed_over=line.handed_over,
            routes=line.routes or (),
            tells_routes=line.routes is not None,
            complaints=line.complaints,
            policies=line.policies,
            held=line.held,
            recent=line.recent,
            lately=line.lately,
            skew=line.skew,
            connected=line.connected,
            longest_send=line.longest_send,
        )
    return nodes


def owners_of(nodes: Iterable[NodeLine], stored: Mapping[int, str | None]) -> dict[int, str]:
    """The node that owns each queue: of those not stale, the one with the highest epoch.

    `stored` are the epochs that Redis has of the queues, by number. Who claims a lower one was fenced off.
    """
    owners: dict[int, tuple[str, str]] = {}
    for line in nodes:
        if line.stale:
            continue
        for queue, owned in line.queues.items():
            if queue in stored and owned.epoch >= (stored[queue] or ""):
                owners[queue] = max(owners.get(queue, ("", "")), (owned.epoch, line.node))
    return {queue: node for queue, (_, node) in owners.items()}


def route_of(topic: str, table: Iterable[RouteLine]) -> RouteLine | None:
    """The route of a table that takes a topic."""
    return next((route for route in table if compiled(route.match).match(topic)), None)


def era_of(epoch: str | None) -> int:
    """The era of an epoch; 0 where there is none."""
    era = (epoch or "").partition(".")[0]
    return int(era) if era.isdecimal() else 0


def ranges(numbers: Sequence[int]) -> str:
    """Numbers of queues as people read them: 0, 1, 2 and 5 as '0-2,5'."""
    runs = ([number for _, number in run] for _, run in groupby(enumerate(numbers), lambda one: one[1] - one[0]))
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "-"
