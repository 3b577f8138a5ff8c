"""The writers of the data source, as Spark calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from delayq.spark.writing.task import Done, Job, Place


class Written(WriterCommitMessage):
    """The result of a task."""

    def __init__(self, done: Done) -> None:
        self.done = done


def _place() -> Place:
    context = TaskContext.get()
    if context is None:
        return Place()
    session = context.getLocalProperty("spark.sql.session.timeZone") or ""
    return Place(context.partitionId(), context.taskAttemptId(), session)


def _done(messages: Sequence[WriterCommitMessage | None]) -> list[Done]:
    return [message.done for message in messages if isinstance(message, Written)]


class _Writer:
    """The common part of both writers, in a task and after a final failure."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Schedule the rows of one task."""
        return Written(self._job.write(iterator, _place()))

    def abort(self, *_: object) -> None:
        """After a final failure."""
        self._job.abort()


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit after all tasks."""
        self._job.commit(_done(messages))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The micro-batches of a stream. A replayed batch has the same rows, so the same ids: nothing is sent twice."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit after all tasks of a micro-batch."""
        self._job.commit(_done(messages), batchId)
