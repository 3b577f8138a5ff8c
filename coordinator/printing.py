"""Prints overviews: tables for people, one line of JSON each for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from coordinator.errors import CoordinatorError
from coordinator.zookeeper.overview import Member, Overview
from delayq.answers.times import instant
from delayq.base.clock import Clock
from delayq.base.local_time import in_sentence, shown
from delayq.base.terminal import Output, visible
from delayq.domain.nodes import ranges
from delayq.domain.words import counted


class Printer:
    """Writes to standard output without a buffer. Tables on a terminal have names of columns."""

    def __init__(self, clock: Clock, *, json: bool) -> None:
        self._clock = clock
        self._json = json
        self._output = Output()
        self.has_printed = False

    def overview(self, overview: Overview) -> None:
        """Print an overview."""
        self.has_printed = True
        now = self._clock.now()
        if self._json:
            unowned = None if overview.unowned is None else list(overview.unowned)
            nodes = [_shape(member) for member in overview.members]
            self._output.json(
                {"time": instant(now), "zookeeper": True, "nodes": nodes, "unowned": unowned}, indent=False
            )
            return
        self._output.row(("time", "nodes"), (shown(now), _summary(overview)))
        if overview.members:
            columns = ("node", "queues", "owns", "state", "address", "version", "since")
            self._output.table(columns, [_row(member) for member in overview.members])

    def away(self, error: CoordinatorError) -> None:
        """Print that ZooKeeper does not answer."""
        self.has_printed = True
        if self._json:
            shape = {"time": instant(self._clock.now()), "zookeeper": False, "reason": str(error)}
            self._output.json(shape, indent=False)
        else:
            sys.stderr.write(f"delayq coordinator: {visible(str(error))}; retrying\n")


def _summary(overview: Overview) -> str:
    owned = sum(len(member.queues) for member in overview.members)
    nodes = counted(len(overview.members), "node", "nodes")
    if overview.unowned is None:
        return (
            f"{nodes}, {counted(owned, 'queue', 'queues')} owned; Redis, which has the list of queues, does not answer"
        )
    summary = f"{nodes}, {owned} of {counted(owned + len(overview.unowned), 'queue', 'queues')} owned"
    return f"{summary}; without an owner: {ranges(overview.unowned)}" if overview.unowned else summary


def _row(member: Member) -> Sequence[object]:
    entry = member.entry
    details = entry.address or None, entry.version or None, shown(entry.since or None)
    return member.name, len(member.queues), ranges(member.queues), _state(member), *details


def _state(member: Member) -> str:
    """Why a node gets no queues; 'live' if it gets some."""
    entry = member.entry
    found = [f"{name} {how}" for name, how in (("Redis", entry.redis), ("clock", entry.clock)) if how != "ok"]
    if entry.hold_until:
        found.append(in_sentence(f"left out until {instant(entry.hold_until)}"))
    return ", ".join(found) or "live"


def _shape(member: Member) -> dict[str, object]:
    """The fields have the names of `delayq nodes --json`."""
    entry = member.entry
    return {
        "node": member.name,
        "address": entry.address or None,
        "version": entry.version or None,
        "since": instant(entry.since or None),
        "redis": entry.redis,
        "clock": entry.clock,
        "leftOutUntil": instant(entry.hold_until or None),
        "queues": list(member.queues),
    }
