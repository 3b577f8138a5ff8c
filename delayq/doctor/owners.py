"""Who owns which queue, by the lines that the workers write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from delayq.doctor.ask import redis_now
from delayq.doctor.check import FAIL, OK, WARN, Check, name_queues
from delayq.store import commands
from delayq.store.commands import QueueStats
from delayq.store.store import Store

__all__ = ["check_owners", "owners_of"]

#: Workers write their line every 5 s; an owner whose line is older than this is gone.
LINE_AGE: Final = 15_000


class NodeLine(msgspec.Struct, frozen=True):
    """What a worker writes: its queues with their epochs, and when (Unix ms, by its own clock)."""

    seen: int
    queues: dict[int, str]


_line = msgspec.json.Decoder(NodeLine)


def owners_of(lines: Mapping[str, bytes], now: int) -> dict[int, str]:
    """The node that owns each queue: of those seen lately, the one with the highest epoch."""
    owners: dict[int, tuple[str, str]] = {}
    for name, raw in lines.items():
        try:
            line = _line.decode(raw)
        except (msgspec.DecodeError, ValueError):
            continue
        if now - line.seen > LINE_AGE:
            continue
        for queue, epoch in line.queues.items():
            owners[queue] = max(owners.get(queue, ("", "")), (epoch, name))
    return {queue: name for queue, (_, name) in owners.items()}


def check_owners(store: Store, stats: Sequence[QueueStats]) -> Check:
    """Whether a live worker owns every queue; it matters where messages wait."""
    lines = store.run(commands.nodes())
    owners = owners_of(lines, redis_now(store))
    lacking = [queue for queue in range(len(stats)) if queue not in owners]
    if not lacking:
        return Check("owners", OK, f"every queue has an owner: {', '.join(sorted(set(owners.values())))}")
    waiting = sum(stats[queue].scheduled + stats[queue].parked for queue in lacking)
    holding = f", with {waiting} messages that nobody forwards" if waiting else ""
    text = f"{name_queues(lacking)} without an owner{holding}"
    mend = "start a worker (python -m workers), or see why the one that runs does not take them"
    return Check("owners", FAIL if waiting else WARN, text, mend)
