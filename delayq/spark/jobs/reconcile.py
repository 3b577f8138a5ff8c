"""Compares the messages that should be pending with the pending ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from delayq.base.errors import ConfigError, InvalidMessage
from delayq.client.client import Client
from delayq.client.scheduling.encoding import asked_due, complete_id
from delayq.domain.message import Limits, Message
from delayq.domain.policies import Policies
from delayq.spark.jobs.forecast import zone_of
from delayq.spark.options import WriteOptions
from delayq.spark.rows.rows import messages_of
from delayq.spark.source import DefaultSource
from delayq.spark.writing.task import windows
from delayq.store import commands
from delayq.store.keys import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The largest number of topics that select the messages which the table should have.
TOPICS: Final = 1_000
#: The added columns of the table's rows: the stored id, the due time (Unix ms), the due time with a policy, and the error.
_ID, _DUE, _SPREAD, _WRONG, _TOPIC = "_id", "_due", "_spread", "_wrong", "_topic"


class Compared(msgspec.Struct, frozen=True):
    """The numbers of rows and messages of each kind.

    `same` are pending as they should be. `missing` do not exist, and are not due yet; `past` do not exist, and their due time
    has passed, so they may have been delivered. `different` are pending with another due time. `dead` are dead letters.
    `extra` are pending, of topics that the table has, and not in it. `wrong` rows are no messages.
    """

    same: int = 0
    missing: int = 0
    past: int = 0
    different: int = 0
    dead: int = 0
    extra: int = 0
    wrong: int = 0


class Comparison:
    """The rows of a table and the existing messages, side by side."""

    def __init__(self, sides: DataFrame, columns: list[str]) -> None:
        self._sides = sides
        self._columns = columns
        kinds = {row["kind"]: row["count"] for row in sides.groupBy("kind").count().collect()}
        kinds.pop("gone", None)
        self.compared = Compared(**kinds)

    def rows(self, *kinds: str) -> DataFrame:
        """Return the table's rows of these kinds, unchanged."""
        return self._of(kinds).select([f"row.`{name}`" for name in self._columns])

    def different(self) -> DataFrame:
        """Ids with the due time in the table, and the pending due time."""
        return self._of(("different",)).selectExpr(
            "id", "timestamp_millis(row._due) as expected_due", "found.asked_due as due"
        )

    def extra(self) -> DataFrame:
        """The pending messages that are not in the table."""
        return self._of(("extra",)).select("found.*")

    def _of(self, kinds: Iterable[str]) -> DataFrame:
        return self._sides.where(self._sides.kind.isin([*kinds]))


@contextmanager
def compare(frame: DataFrame, options: WriteOptions, client: Client) -> Iterator[Comparison]:
    """Compare a table of fields with the existing messages. Raises ConfigError for a table without dates."""
    from pyspark import StorageLevel
    from pyspark.sql import functions

    if "expect_date" not in frame.columns or {"delay_time", "delay_level"} & {*frame.columns}:
        raise ConfigError("only dates can be compared; use --expect-date-column, and no delays")
    store = client.store
    policies = Policies.read(store.run(commands.policies(store.keys)))
    expected = _expected(frame, options, client.reading().limits, policies, store.run(commands.redis_now()))
    found = _found(expected, options)
    sides = expected.select(functions.col(_ID).alias("id"), functions.struct("*").alias("row")).join(
        found.select(functions.col("id"), functions.struct("*").alias("found")), "id", "full_outer"
    )
    kept = sides.persist(StorageLevel.DISK_ONLY)
    try:
        kept.count()  # Redis is read once, and the time after that: a message that is due by then may be delivered meanwhile
        now = store.run(commands.redis_now())
        yield Comparison(kept.withColumn("kind", functions.expr(_KIND.format(now=now))), frame.columns)
    finally:
        kept.unpersist()


#: The first condition that holds applies.
_KIND: Final = """
case when row is null then (case when found.state = 'dead' then 'gone' else 'extra' end)
     when row._wrong is not null then 'wrong'
     when found is null then (case when row._spread >= {now} then 'missing' else 'past' end)
     when found.state = 'dead' then 'dead'
     when unix_millis(found.asked_due) not in (row._due, row._spread) then 'different'
     else 'same' end
"""


def _expected(frame: DataFrame, options: WriteOptions, limits: Limits, policies: Policies, now: int) -> DataFrame:
    """Return the table with the message that each row stands for."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    here = zone_of(frame, options)

    def identify(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in windows(batches):
            yield _identified(batch, messages_of(batch, options, lambda: here), limits, policies, now)

    more = (
        (_ID, StringType()),
        (_DUE, LongType()),
        (_SPREAD, LongType()),
        (_WRONG, StringType()),
        (_TOPIC, StringType()),
    )
    fields = [StructField(name, type) for name, type in more]
    return frame.mapInArrow(identify, StructType([*frame.schema.fields, *fields]))


def _identified(
    batch: pa.RecordBatch, rows: Iterable[Message | InvalidMessage], limits: Limits, policies: Policies, now: int
) -> pa.RecordBatch:
    told = [_told(row, limits, policies, now) for row in rows]
    ids, dues, spread_dues, wrong, topics = zip(*told, strict=True)
    more: list[Any] = [pa.array(ids, pa.string()), pa.array(dues, pa.int64()), pa.array(spread_dues, pa.int64())]
    more += [pa.array(texts, pa.string()) for texts in (wrong, topics)]
    names = [*batch.schema.names, _ID, _DUE, _SPREAD, _WRONG, _TOPIC]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], names)


def _told(
    row: Message | InvalidMessage, limits: Limits, policies: Policies, now: int
) -> tuple[str | None, int | None, int | None, str | None, str | None]:
    """Id, due time, due time with the policy of its topic, error, topic."""
    if isinstance(row, InvalidMessage):
        return None, None, None, str(row), None
    try:
        row.validate(limits, now)
        id, due, policy = complete_id(row.id, row.ordering_key), asked_due(row), policies.policy(row.topic)
        later = spread(id, policy.window) if policy is not None and policy.window and row.window is None else 0
        return id, due, None if due is None else due + later, None, row.topic
    except InvalidMessage as error:
        return row.id, None, None, str(error), row.topic


def _found(expected: DataFrame, options: WriteOptions) -> DataFrame:
    """The existing messages of the topics in the table."""
    spark = expected.sparkSession
    spark.dataSource.register(DefaultSource)
    where = {"redisUrl": options.redis_url, "namespace": options.namespace}
    reader = spark.read.format("delayq").options(**where).option("state", "all")
    if options.topic and "topic" not in expected.columns:
        return reader.option("topic", options.topic).load()
    topics = [
        row[0] for row in expected.select(_TOPIC).where(f"{_TOPIC} is not null").distinct().limit(TOPICS).collect()
    ]
    found = reader.load()
    return found if len(topics) == TOPICS else found.where(found.topic.isin(topics))
