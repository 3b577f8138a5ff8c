"""The output of a dry run: the rows, their due times, and the memory that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq.answers.times import instant
from delayq.base.local_time import shown
from delayq.base.terminal import Output, say

if TYPE_CHECKING:
    from delayq.spark.jobs.forecast import Forecast, Room
    from delayq.spark.writing.counts import Counts


def counts_shape(counts: Counts) -> dict[str, Any]:
    """The counts of rows as JSON."""
    return {
        "read": counts.read,
        "scheduled": counts.scheduled,
        "alreadyThere": counts.present,
        "skipped": counts.skipped,
        "rejected": counts.all_rejected,
        "reasons": dict(sorted(counts.rejected.items())),
    }


def counts_rows(counts: Counts) -> list[tuple[str, object]]:
    """The counts of rows as names and numbers."""
    shape = counts_shape(counts)
    reasons = shape.pop("reasons")
    return [*shape.items(), *((f"rejected: {reason}", count) for reason, count in reasons.items())]


def print_forecast(found: Forecast, room: Room | None, json: bool) -> None:
    """Print the forecast, and warn on stderr if Redis has too little memory."""
    size, output = found.memory("redis" if room is None else room.server), Output()
    if json:
        output.json(
            {
                "dryRun": True,
                **counts_shape(found.counts),
                "memory": size,
                "usedMemory": None if room is None else room.used,
                "maxMemory": None if room is None else room.most or None,
                "buckets": [{"dueFrom": instant(begin), "messages": count} for begin, count in found.dues.rows()],
            }
        )
    else:
        output.fields(counts_rows(found.counts))
        output.fields(
            (
                ("memory", _bytes(size)),
                ("used by Redis", _bytes(0 if room is None else room.used)),
                ("maxmemory", _bytes(0 if room is None else room.most)),
            )
        )
        rows = [(shown(begin), count) for begin, count in found.dues.rows()]
        if rows:
            output.bars(("due from", "messages"), rows)
    if room is not None and room.too_small_for(size):
        say(
            f"Redis has too little memory: the rows need {_bytes(size)}, and {_bytes(room.used)} of "
            f"{_bytes(room.most)} are in use{' on the fullest primary' if room.primaries > 1 else ''}; raise "
            "maxmemory first."
        )


def _bytes(size: int) -> str:
    if not size:
        return "-"
    units = ["B", "KB", "MB", "GB", "TB"]
    while size >= 10_000 and len(units) > 1:
        size //= 1000
        units.pop(0)
    return f"{size} {units[0]}"
