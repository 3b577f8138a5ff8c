"""Writing: what each task does with its rows, and what the driver does when all of them are done."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import tzinfo
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from delayq.client import Client
from delayq.clock import SystemClock
from delayq.config import Settings
from delayq.errors import Conflict, DelayqError, PastDue
from delayq.operations import Scheduled
from delayq.spark.counts import Counts
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rejects import RejectsFile, RejectsFolder
from delayq.spark.rows import messages_of
from delayq.spark.sending import GivenUp, Outcome, Sender, reason_of

__all__ = ["BatchWriter", "Job", "RowsRejected", "StreamWriter", "Written", "windows"]

#: So many rows, or bytes, of a task are grouped by queue at a time: its memory does not grow with its rows.
WINDOW_ROWS: Final = 32_000
WINDOW_BYTES: Final = 16 * 1024 * 1024


class RowsRejected(DelayqError):
    """Some rows were rejected, and there is no folder for them; the others are scheduled."""


class Written(WriterCommitMessage):
    """What one task has done: its counts, and the file of its rejected rows ('' for none)."""

    def __init__(self, partition: int, counts: Counts, file: str) -> None:
        self.partition = partition
        self.counts = counts
        self.file = file


def windows(batches: Iterable[pa.RecordBatch], rows: int = WINDOW_ROWS, size: int = WINDOW_BYTES) -> Iterator[pa.RecordBatch]:
    """The rows in pieces of about so many, however they came."""
    waiting: list[pa.RecordBatch] = []
    have = have_bytes = 0
    for whole in batches:
        if whole.num_rows == 0:
            continue
        most = max(1, min(rows, whole.num_rows * size // max(1, whole.nbytes)))
        for start in range(0, whole.num_rows, most):
            batch = whole.slice(start, most)
            waiting.append(batch)
            have += batch.num_rows
            have_bytes += batch.nbytes
            if have >= rows or have_bytes >= size:
                yield _joined(waiting)
                waiting, have, have_bytes = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class Job:
    """One write: what driver and tasks have in common. It is pickled from the one to the others."""

    def __init__(self, options: WriteOptions, settings: Settings) -> None:
        self.options = options
        self.settings = settings
        self.id = uuid.uuid4().hex
        self.rejects = RejectsFolder(options.rejects, self.id) if options.rejects else None

    # -- in a task -------------------------------------------------------------------------------------------------------

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Schedule the rows of one task; raises GivenUp."""
        context = TaskContext.get()
        partition, attempt = (context.partitionId(), context.taskAttemptId()) if context is not None else (0, 0)
        task = _Task(self, f"part-{partition:05d}-{attempt}.parquet")
        with ExitStack() as stack:
            client = stack.enter_context(Client(settings=self.settings))
            task.write(client, windows(batches))
        return Written(partition, task.counts, task.close())

    # -- on the driver ---------------------------------------------------------------------------------------------------

    def commit(self, messages: Sequence[Any], name: Callable[[Written], str], instead_of: str = "") -> Counts:
        """Sum up what the tasks have done; raises RowsRejected if rows were rejected and nobody will see them."""
        written = [message for message in messages if isinstance(message, Written)]
        counts = Counts.total(message.counts for message in written)
        if self.rejects is not None:
            files = {message.file: name(message) for message in written if message.file}
            self.rejects.publish(files, instead_of)
        elif counts.rejected:
            raise RowsRejected(
                f"{counts.sentence}. What was scheduled stays. For the rejected rows with their reasons give a folder: "
                f".option('rejects', DIR). The first of them: {'; '.join(counts.examples)}"
            )
        return counts

    def abort(self) -> None:
        """Clear up what a failed write has left; what was scheduled stays."""
        if self.rejects is not None:
            self.rejects.clear()


class _Task:
    """One task's way through its rows."""

    def __init__(self, job: Job, name: str) -> None:
        self.counts = Counts()
        self._job = job
        self._name = name
        self._file: RejectsFile | None = None
        self._zone: tzinfo | None = None

    def write(self, client: Client, batches: Iterator[pa.RecordBatch]) -> None:
        options = self._job.options
        sender = Sender(client, SystemClock(), retry_for=options.retry_for, refuse_past=options.past != "now")
        for batch in batches:
            rows = messages_of(batch, options, lambda: self._zone_of(batch.schema))
            self._count(batch, sender.send(rows))

    def _count(self, batch: pa.RecordBatch, outcomes: list[Outcome]) -> None:
        counts = self.counts
        counts.read += len(outcomes)
        places: list[int] = []
        reasons: list[str] = []
        details: list[str] = []
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Scheduled):
                if outcome.created:
                    counts.scheduled += 1
                else:
                    counts.present += 1
            elif isinstance(outcome, PastDue) and self._job.options.past == "skip":
                counts.skipped += 1
            else:
                reason = reason_of(outcome)
                counts.reject(reason, str(outcome))
                places.append(place)
                reasons.append(reason)
                details.append(str(outcome))
        if places and self._job.rejects is not None:
            if self._file is None:
                self._file = self._job.rejects.begin(self._name, batch.schema)
            self._file.add(batch, places, reasons, details)

    def _zone_of(self, schema: pa.Schema) -> tzinfo:
        """The zone of timestamps without one: the option, that of the session, or that of another column."""
        if self._zone is None:
            context = TaskContext.get()
            session = context.getLocalProperty("spark.sql.session.timeZone") if context is not None else None
            others = [field.type.tz for field in schema if pa.types.is_timestamp(field.type) and field.type.tz]
            name = self._job.options.time_zone or session or next(iter(others), "")
            if not name:
                raise GivenUp(
                    "the column expect_date has timestamps without a time zone (TIMESTAMP_NTZ), and nothing says which is "
                    "meant: set spark.sql.session.timeZone, or give the option timeZone, or cast them to TIMESTAMP"
                )
            self._zone = zone(name)
        return self._zone

    def close(self) -> str:
        if self._file is None:
            return ""
        self._file.close()
        return self._file.name


class BatchWriter(DataSourceArrowWriter):
    """A batch."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]
        """Schedule the rows of one task."""
        return self._job.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """When all tasks are done."""
        self._job.commit(messages, lambda one: f"part-{one.partition:05d}-{self._job.id}.parquet")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """When one has failed for good."""
        self._job.abort()
