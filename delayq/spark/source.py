"""The data source `delayq`, as Spark requires it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.base.errors import ConfigError, MissingExtra
from delayq.config import Settings, load_settings
from delayq.spark.options import ReadOptions, WriteOptions
from delayq.spark.writing.handed import Handed

try:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType
except ImportError:
    raise MissingExtra("Spark", "spark") from None

if TYPE_CHECKING:
    from delayq.spark.jobs.reading import MessageReader
    from delayq.spark.writing.task import Job
    from delayq.spark.writing.writers import BatchWriter, StreamWriter

#: `due` is that of the next attempt, `asked_due` the requested one (docs/glossary.md), `first_due` the requested
#: one before it was moved. `body` is text, compact JSON, or bytes in base 64; `body_type` is its kind.
SCHEMA: Final = (
    "id STRING, topic STRING, tags STRING, keys ARRAY<STRING>, body STRING, body_type STRING, "
    "properties MAP<STRING, STRING>, ordering_key STRING, due TIMESTAMP, asked_due TIMESTAMP, first_due TIMESTAMP, "
    "attempts INT, queue INT, state STRING, max_attempts INT, expire_after BIGINT, reason STRING, dead_time TIMESTAMP"
)


class DefaultSource(DataSource):
    """`spark.read.format("delayq")`, `df.write.format("delayq")` and `df.writeStream.format("delayq")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "delayq"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of batches. Raises ConfigError before anything is written."""
        if overwrite:
            raise ConfigError(
                "mode 'overwrite' would have to cancel all existing messages: use .mode('append'); "
                "rows with a known id are not scheduled again"
            )
        _need_pyarrow()
        from delayq.spark.writing.writers import BatchWriter

        return BatchWriter(self._job(schema, stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a writer of micro-batches. Raises ConfigError before anything is written."""
        if overwrite:
            raise ConfigError("outputMode 'complete' would schedule everything again and again; use 'append'")
        _need_pyarrow()
        from delayq.spark.writing.writers import StreamWriter

        return StreamWriter(self._job(schema, stream=True))

    def _job(self, schema: StructType, *, stream: bool) -> Job:
        from delayq.spark.rows.columns import check_columns
        from delayq.spark.rows.types import arrow_schema
        from delayq.spark.writing.task import Job

        options = WriteOptions.parse(self.options)
        check_columns(arrow_schema(schema), options.id_columns, options.topic)
        job = Job(options, Handed.of(_settings(options)))
        job.begin(stream=stream)
        return job

    def schema(self) -> str:
        """The reader for `spark.read`."""
        return SCHEMA

    def reader(self, schema: StructType) -> MessageReader:
        """Return a reader. Raises ConfigError."""
        _need_pyarrow()
        from delayq.spark.jobs.reading import MessageReader, PushingReader

        options = ReadOptions.parse(self.options)
        settings = Handed.of(_settings(options)).settings
        return (PushingReader if options.push_filters else MessageReader)(schema, options, settings)


def _need_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401 - only whether it is there
    except ImportError:
        raise MissingExtra("the data source", "spark") from None


def _settings(options: WriteOptions | ReadOptions) -> Settings:
    given = {"redis_url": options.redis_url, "namespace": options.namespace}
    return load_settings(**{name: value for name, value in given.items() if value})
