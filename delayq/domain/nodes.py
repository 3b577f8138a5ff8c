"""The reports that nodes write every 5 s, and the owners of queues by these reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, starmap, zip_longest
from typing import Annotated, Final, NamedTuple

import msgspec

from delayq.domain.message import MAX_DUE
from delayq.domain.patterns import compiled

#: The code of a worker's complaint when another worker writes the same report.
SAME_NAME: Final = "DelayqOwnersChange"
#: A report that is older than this (ms) is stale: its node is gone, or cannot reach Redis.
LINE_AGE: Final = 15_000

#: The number of characters of a target's answer in a report.
LONGEST_REASON: Final = 300

#: The upper bounds of the workers' buckets of lateness, in seconds. There is one more bucket above them.
LATENESS: Final = (
    0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 300.0, 600.0,
)  # fmt: skip
#: The length (ms) of a slot of recent deliveries, and the number of reported slots.
RECENT_STEP: Final = 10_000
RECENT_SLOTS: Final = 60
#: The time (ms) that `Lately` covers, to the minute.
LATELY: Final = 900_000

Ms = Annotated[int, msgspec.Meta(ge=0, le=MAX_DUE)]


class Complaint(NamedTuple):
    """A problem that keeps a worker from its work. `code` is the alert with the remedy, or empty."""

    text: str
    code: str = ""


class Owned(msgspec.Struct, frozen=True):
    """A queue of a node: the epoch under which it owns the queue, and since when."""

    epoch: str
    since: Ms | None = None


class OpenCircuit(msgspec.Struct, frozen=True):
    """An open circuit: its start, the time of the next probes, and the target's last answer."""

    since: Ms
    probe: Ms
    reason: str = ""


class FailedSend(msgspec.Struct, frozen=True):
    """The last failed send to a target: its time and its reason."""

    at: Ms
    reason: str = ""


class RouteLine(msgspec.Struct, frozen=True):
    """A route of a node, in the order of its table.

    It has the pattern of its topics, its target's kind and hosts, the default of maximum attempts, and the last failure
    since the node's start. `send_timeout` is the longest time of a send (ms). `local` is whether the pull script
    appends its messages to streams of delayq's own Redis. `stream` is the name of these streams, where `{topic}` stands
    for the topic. `per_queue` is whether each queue has its own. `delivered` is the number of messages that the node has
    delivered since its start; None if it is unknown: an older worker omits it. `unused` are the names of its settings
    that its kind of target ignores.
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
    delivered: int | None = None
    unused: tuple[str, ...] = ()


class Recent(msgspec.Struct, frozen=True):
    """The deliveries of the last slots, by lateness; `last` is the number of the last slot.

    A slot's number is its time by the clock of Redis divided by `RECENT_STEP`. Its counts are those of the buckets of
    `LATENESS`, without the zeros at the end.
    """

    last: int
    counts: tuple[tuple[int, ...], ...]


class Lately(msgspec.Struct, frozen=True):
    """The counts of a node in the last 15 minutes.

    `failures` are unexpected errors of pull jobs and refusals of Redis. `went_back` counts how often Redis had lost the
    latest changes of a queue. `claims` is the number of queues that the node took over.
    """

    failures: int = 0
    went_back: int = 0
    claims: int = 0


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are the same in a report's JSON and in a `NodeLine`."""

    seen: Ms
    address: str = ""
    version: str = ""
    since: Ms | None = None
    coordinator: str = ""
    handed_over: Ms | None = None
    policies: str | None = None
    held: dict[str, int] = {}
    recent: Recent | None = None
    lately: Lately | None = None
    skew: int | None = None
    connected: bool | None = None
    longest_send: Ms | None = None


class NodeLine(_Report, frozen=True, kw_only=True):
    """A node, by its report. Times are Unix ms by its own clock, but `seen` is by that of Redis; '' or None: an older
    worker omits it.

    `handed_over` is when it last gave a queue to another node. The times of `routes` are by the clock of Redis, too.
    `complaints` are the problems that keep it from its work. `policies` is the version that all its pull jobs apply.
    `held` is the number of messages of paused topics that may still arrive. `recent` is None until it has run for a
    while. `skew` is the clock of Redis minus the clock of the node, in ms. `tells_routes` is False for an older worker
    without a table, which may have any route. `connected` is whether it is registered with its coordinator.
    `longest_send` is how long (ms) a message in a send may still arrive. It covers all its routes, and sends that hang;
    None for an older worker.
    """

    node: str
    stale: bool
    queues: dict[int, Owned]
    routes: tuple[RouteLine, ...] = ()
    tells_routes: bool = False
    complaints: tuple[Complaint, ...] = ()

    def route_of(self, topic: str) -> RouteLine | None:
        """Return the route of its table that matches a topic."""
        return route_of(topic, self.routes)


class _Written(_Report, frozen=True, kw_only=True):
    """The JSON of a report. Older workers omit `codes` of the complaints, and write a queue as its epoch alone."""

    queues: dict[int, Owned | str] = {}
    routes: tuple[RouteLine, ...] | None = None
    complaints: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()


_written = msgspec.json.Decoder(_Written)


def read_nodes(lines: Mapping[str, bytes], now: int) -> dict[str, NodeLine]:
    """Return the nodes by name, as of `now` (Unix ms). An invalid report is left out."""
    nodes = {}
    for name, raw in sorted(lines.items()):
        try:
            line = _written.decode(raw)
        except (msgspec.DecodeError, ValueError, RecursionError):  # a report of another version, or no report of delayq
            continue
        queues = {q: Owned(one) if isinstance(one, str) else one for q, one in sorted(line.queues.items())}
        nodes[name] = NodeLine(
            **{field: getattr(line, field) for field in _Report.__struct_fields__},
            node=name,
            stale=now - line.seen > LINE_AGE,
            queues=queues,
            routes=line.routes or (),
            tells_routes=line.routes is not None,
            complaints=tuple(starmap(Complaint, zip_longest(line.complaints, line.codes, fillvalue=""))),
        )
    return nodes


def owners_of(nodes: Iterable[NodeLine], stored: Mapping[int, str | None]) -> dict[int, str]:
    """Return the node that owns each queue: of the live ones, the one with the highest epoch.

    `stored` are the epochs of the queues in Redis, by number. A node with a lower one was fenced.
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
    """Return the route of a table that matches a topic."""
    return next((route for route in table if compiled(route.match).match(topic)), None)


def era_of(epoch: str | None) -> int:
    """Return the era of an epoch; 0 if there is none."""
    era = (epoch or "").partition(".")[0]
    return int(era) if era.isdecimal() else 0


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers of queues for people: 0, 1, 2 and 5 as '0-2,5'."""
    runs = ([number for _, number in run] for _, run in groupby(enumerate(numbers), lambda one: one[1] - one[0]))
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "-"
