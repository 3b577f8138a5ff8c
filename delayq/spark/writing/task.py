"""The work of each task on its rows, and of the driver when all tasks are done. It does not need Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import tzinfo
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from delayq import http
from delayq.base.clock import Clock, SystemClock, pause
from delayq.base.errors import DelayqError, PastDue
from delayq.client.client import Client
from delayq.client.scheduling.schedule import Scheduled
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows.origin import place_of
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.handed import Handed
from delayq.spark.writing.rejects import RejectsFile, RejectsFolder
from delayq.spark.writing.report import begun_line, task_line, total_line
from delayq.spark.writing.retrying import GivenUp, Patience
from delayq.spark.writing.sending import Sender, Sent, reason_of
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.keys import Keys

#: The rows, or bytes, of a task that are grouped by queue at a time: its memory does not grow with its rows.
WINDOW_ROWS: Final = 32_000
WINDOW_BYTES: Final = 16 * 1024 * 1024
#: With a rate, a batch has the messages of this many ms, so that live traffic never waits long. With 50, its p99 was 3
#: times that without a backfill; with 10, less than twice.
STEP: Final = 10
#: The shortest time between two reports of a task, in ms.
REPORT_EVERY: Final = 1_000


class RowsRejected(DelayqError):
    """Rows were rejected, and there is no folder for them. The others are scheduled."""


class Place(NamedTuple):
    """The place of a task: its partition, its attempt, and the zone of its session ('': unknown)."""

    partition: int = 0
    attempt: int = 0
    zone: str = ""


class Done(NamedTuple):
    """The result of a task: its counts, and the file of its rejected rows ('' for none) in the job's own folder."""

    job: str
    partition: int
    counts: Counts
    file: str


def windows(
    batches: Iterable[pa.RecordBatch], rows: int = WINDOW_ROWS, size: int = WINDOW_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces of about this many."""
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
    """One write: the common data of driver and tasks. It is pickled for the tasks."""

    def __init__(self, options: WriteOptions, handed: Handed) -> None:
        self.options = options
        self.handed = handed
        self.id = uuid.uuid4().hex
        self.rejects = RejectsFolder(options.rejects, self.id, options.rejects_as) if options.rejects else None

    @property
    def _keys(self) -> Keys:
        return Keys(self.handed.settings.namespace)

    def begin(self, *, stream: bool) -> None:
        """Check the options, on the driver, before any task. Raises ConfigError or GivenUp."""
        if self.rejects is not None:
            self.rejects.make()
        if self.options.report and not stream:
            self._tell(begun_line(self._keys, self.options.report, self.id))
        elif not self.handed.api:  # whoever reads the report has done this
            with self.handed.client(check_routes=self.options.check_routes) as client:
                client.warn_without_worker()

    def _tell(self, lines: list[Command[Any]]) -> None:
        patience = Patience(SystemClock(), self.options.retry_for)
        with self.handed.client() as client:
            patience.through(lambda: client.store.run_all(lines))

    # -- in a task -------------------------------------------------------------------------------------------------------

    def write(self, batches: Iterable[pa.RecordBatch], place: Place | None = None) -> Done:
        """Schedule the rows of one task; raises GivenUp."""
        place = place if place is not None else Place()
        if self.handed.api:
            with self.handed.api_client() as api:
                task = _Task(self, api, SystemClock(), place)
                return Done(self.id, place.partition, task.write(batches), task.close())
        with self.handed.client_of_task(check_routes=self.options.check_routes) as client:
            task = _Task(self, client, SystemClock(), place)
            return Done(self.id, place.partition, task.write(batches), task.close())

    # -- on the driver ---------------------------------------------------------------------------------------------------

    def commit(self, written: Sequence[Done], batch: int | None = None) -> None:
        """Add up the results of the tasks. Raises RowsRejected if rows were rejected without a folder for them."""
        counts = Counts.total(one.counts for one in written)
        if self.options.report:
            self._tell(total_line(self._keys, self.options.report, self.id, counts, batch))
        if self.rejects is not None:
            # A micro-batch that is replayed replaces its files; a batch has files of its own.
            head, tail = ("", f"-{self.id}") if batch is None else (f"batch-{batch:010d}-", "")
            end = f"{tail}.{self.options.rejects_as.format}"
            names = {one.file: f"{head}part-{one.partition:05d}{end}" for one in written if one.file}
            # For a stream, another process than the sender of the tasks makes the commit, under another id.
            there = RejectsFolder(self.options.rejects, written[0].job) if written else self.rejects
            there.publish(names, instead_of=head)
            self.rejects.clear()
        elif counts.rejected:
            raise RowsRejected(
                f"{counts.sentence}. Scheduled messages stay. To keep the rejected rows with their reasons, set a folder: "
                f".option('rejects', DIR). The first of them: {'; '.join(counts.examples)}"
            )

    def abort(self) -> None:
        """Remove the files of a failed write. Scheduled messages stay."""
        if self.rejects is not None:
            self.rejects.clear()


class _Task:
    """One task's work on its rows."""

    def __init__(self, job: Job, client: Client | http.Client, clock: Clock, place: Place) -> None:
        self._job = job
        self._client = client
        self._clock = clock
        self._options = options = job.options
        self._place = place
        self._sender = Sender(client, clock, options)
        self._counts = Counts()
        self._told: int | None = None
        self._free_at = 0.0  # when the rate allows the next batch, if no Redis shares it among tasks
        self._file: RejectsFile | None = None
        self._zone: tzinfo | None = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> Counts:
        most = WINDOW_ROWS
        if self._options.rate:
            most = max(1, min(most, self._options.rate * STEP // 1000))
        for batch in windows(batches, most):
            self._keep_to_rate(batch.num_rows)
            self._count(batch, self._sender.send(batch, partial(self._zone_of, batch.schema)))
            self._tell()
        self._tell(at_once=True)
        return self._counts

    def _keep_to_rate(self, count: int) -> None:
        rate, client = self._options.rate, self._client
        if rate and not isinstance(client, Client):
            now = self._clock.precise()
            pause(self._clock, max(0.0, self._free_at - now))
            self._free_at = max(now, self._free_at) + count * 1000 / rate
        elif rate and isinstance(client, Client):
            name = self._options.run or self._job.id
            spend = commands.spend(client.store.keys, name, rate, count, count, whole=True)
            patience = Patience(self._clock, self._options.retry_for)
            while not (granted := patience.through(lambda: client.store.run(spend))).count:
                pause(self._clock, granted.wait)

    def _tell(self, at_once: bool = False) -> None:
        name, now = self._options.report, self._clock.monotonic()
        if (
            name
            and isinstance(self._client, Client)
            and (at_once or self._told is None or now - self._told >= REPORT_EVERY)
        ):
            self._told = now
            # Not every line is needed: the totals come from committed tasks.
            self._client.store.run_many(
                task_line(
                    self._client.store.keys,
                    name,
                    self._job.id,
                    self._place.partition,
                    self._place.attempt,
                    self._counts,
                )
            )

    def _count(self, batch: pa.RecordBatch, sent: Sent) -> None:
        counts, rejects = self._counts, self._options.rejects_as
        counts.read += batch.num_rows
        counts.scheduled += sent.scheduled
        places: list[int] = []
        reasons: list[str] = []
        details: list[str] = []
        for place, outcome in sorted(sent.others.items(), key=itemgetter(0)):
            if isinstance(outcome, Scheduled):
                if outcome.created:
                    counts.scheduled += 1
                else:
                    counts.present += 1
            elif isinstance(outcome, PastDue) and self._options.past == "skip":
                counts.skipped += 1
            else:
                reason, detail = reason_of(outcome), rejects.sentence_of(outcome)
                counts.reject(reason, place_of(batch, place) + detail)
                places.append(place)
                reasons.append(reason)
                details.append(detail)
        if places and self._job.rejects is not None:
            if self._file is None:
                self._file = self._job.rejects.begin(
                    f"part-{self._place.partition:05d}-{self._place.attempt}.{rejects.format}"
                )
            self._file.add(batch, places, reasons, details)

    def _zone_of(self, schema: pa.Schema) -> tzinfo:
        """Return the zone of timestamps without one: the option, that of the session, or that of another column."""
        if self._zone is None:
            others = [field.type.tz for field in schema if pa.types.is_timestamp(field.type) and field.type.tz]
            name = self._options.time_zone or self._place.zone or next(iter(others), "")
            if not name:
                raise GivenUp(
                    "the column expect_date has dates or timestamps without a time zone (TIMESTAMP_NTZ). Set "
                    "spark.sql.session.timeZone or the option timeZone, or cast them to TIMESTAMP"
                )
            self._zone = zone(name)
        return self._zone

    def close(self) -> str:
        if self._file is None:
            return ""
        self._file.close()
        return self._file.name
