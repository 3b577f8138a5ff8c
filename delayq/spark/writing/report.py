"""The progress of a write, in Redis: the counts of each task so far, and at the end the exact totals.

The hash `delayq:report:<name>` has a line for each attempt of each task, which may count rows twice. The driver writes `total`
when all tasks are done, from the counts that they committed. Lines of another job than `begun` are from an earlier write under
this name. For a stream it has only the totals of the last 100 micro-batches.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.client.client import Client
from delayq.spark.writing.counts import Counts
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.keys import Keys

#: The number of micro-batches whose totals are kept: a stream may run without an end.
KEPT_BATCHES: Final = 100


class Report(msgspec.Struct, frozen=True):
    """`total` at the end (for a stream: of the last 100 micro-batches), None before; `running` meanwhile."""

    total: Counts | None
    running: Counts


class _ReportLine(msgspec.Struct, frozen=True):
    job: str
    counts: Counts
    partition: int = -1


def begun_line(keys: Keys, name: str, job: str) -> list[Command[Any]]:
    """Begin a write."""
    return [
        commands.report(keys, name, "begun", msgspec.json.encode(_ReportLine(job, Counts()))),
        commands.keep_report(keys, name),
    ]


def task_line(keys: Keys, name: str, job: str, partition: int, attempt: int, counts: Counts) -> list[Command[Any]]:
    """The counts of an attempt of a task so far."""
    line = msgspec.json.encode(_ReportLine(job, counts, partition))
    return [commands.report(keys, name, f"task {job} {partition} {attempt}", line), commands.keep_report(keys, name)]


def total_line(keys: Keys, name: str, job: str, counts: Counts, batch: int | None = None) -> list[Command[Any]]:
    """The counts of all tasks together (of a stream: in the micro-batch `batch`)."""
    line = msgspec.json.encode(_ReportLine(job, counts))
    if batch is None:
        return [commands.report(keys, name, "total", line), commands.keep_report(keys, name)]
    old = f"batch {batch - KEPT_BATCHES}"
    return [
        commands.report(keys, name, f"batch {batch}", line),
        commands.unreport(keys, name, old),
        commands.keep_report(keys, name),
    ]


def read_report(client: Client, name: str) -> Report:
    """Read the progress of the write with this name. Raises StoreError."""
    texts = client.store.run(commands.reported(client.store.keys, name))
    lines = {field: msgspec.json.decode(text, type=_ReportLine) for field, text in texts.items()}
    begun = lines.pop("begun", None)
    running: dict[int, Counts] = {}
    totals = [line.counts for field, line in lines.items() if field.startswith("batch ")]
    for field, line in lines.items():
        if begun is None or line.job != begun.job:
            continue
        if field == "total":
            totals.append(line.counts)
        elif line.partition not in running or running[line.partition].read < line.counts.read:
            running[line.partition] = line.counts
    return Report(Counts.total(totals) if totals else None, Counts.total(running.values()))
