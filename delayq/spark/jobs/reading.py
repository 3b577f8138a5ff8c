"""Reading: the messages of each queue, page by page, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from delayq.base.clock import SystemClock
from delayq.base.errors import ConfigError
from delayq.config import Settings
from delayq.spark.options import ReadOptions
from delayq.spark.rows.records import COLUMNS, batch_of
from delayq.spark.writing.retrying import Patience
from delayq.store import commands
from delayq.store.commands import Command, Found
from delayq.store.connect.store import Store
from delayq.store.keys import Keys, Layouts

T = TypeVar("T")
#: With more queues than that, a task reads several of them.
MOST_TASKS: Final = 256
#: Dead letters are read with their bodies, however large, in pages of this size.
MOST_DEAD: Final = 100


class QueuePartition(InputPartition):
    """Some queues."""

    def __init__(self, queues: Sequence[int]) -> None:
        super().__init__(tuple(queues))


class MessageReader(DataSourceReader):
    """Reads pending messages, or dead letters, queue by queue.

    It is no snapshot. A message that is rescheduled meanwhile may appear twice or not at all. An unchanged message appears
    once.
    """

    def __init__(self, schema: StructType, options: ReadOptions, settings: Settings) -> None:
        unknown = [name for name in schema.names if name not in COLUMNS]
        if unknown:
            raise ConfigError(f"unknown column {', '.join(unknown)}; the columns are {', '.join(COLUMNS)}")
        if options.state != "pending" and (options.due_from is not None or options.due_to is not None):
            raise ConfigError("dueFrom and dueTo need state 'pending': dead letters have no due time")
        self._schema = schema
        self._options = options
        self._settings = settings

    def _ask(self, store: Store, command: Command[T]) -> T:
        return Patience(SystemClock(), self._options.retry_for).through(lambda: store.run(command))

    def _store(self) -> Store:
        return Store(
            self._settings.redis_url,
            keys=Keys(self._settings.namespace),
            timeout=self._settings.redis_timeout / 1000,
        )

    # -- on the driver ---------------------------------------------------------------------------------------------------

    def partitions(self) -> list[InputPartition]:
        """The queues of all layouts."""
        store = self._store()
        try:
            listed = self._ask(store, commands.layouts(store.keys))
        finally:
            store.close()
        queues = Layouts(listed).queues if listed else []
        wanted = self._options.queues
        unknown = [queue for queue in wanted if queue not in queues]
        if unknown:
            raise ConfigError(
                f"option queues: there is no queue {unknown[0]}; there are {len(queues)}: {_span(queues)}"
            )
        queues = [queue for queue in queues if queue in wanted or not wanted]
        tasks = min(len(queues), MOST_TASKS)
        return [QueuePartition(queues[n::tasks]) for n in range(tasks)]

    # -- in a task -------------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The messages of some queues as Arrow batches."""
        if partition.value is None:  # there is no queue, because this Redis is unused
            return
        schema = _arrow(self._schema)
        store = self._store()
        try:
            for queue in partition.value:
                for page in self._pages(store, queue):
                    if page:
                        yield batch_of(page, schema)
        finally:
            store.close()

    def _pages(self, store: Store, queue: int) -> Iterator[list[Found]]:
        options = self._options
        if options.state != "dead":
            wanted = commands.Filter(topic=options.topic, due_from=options.due_from, due_to=options.due_to)
            stats = self._ask(store, commands.stats(store.keys.queue(queue)))
            for parked in ("", *stats.parked_sets):
                after: tuple[int, bytes] | None = None
                while True:
                    page = self._ask(
                        store,
                        commands.page(store.keys.queue(queue), parked, wanted, after=after, look=options.page),
                    )
                    yield page.messages
                    after = page.after
                    if after is None:
                        break
        if options.state != "pending":
            yield from self._dead(store, queue)

    def _dead(self, store: Store, queue: int) -> Iterator[list[Found]]:
        most = min(self._options.page, MOST_DEAD)
        after: tuple[int, str] | None = None
        while True:
            letters = self._ask(store, commands.dead_letters(store.keys.queue(queue), most, after))
            topic = self._options.topic
            yield [one for one in letters if not topic or (one.record is not None and one.record.topic == topic)]
            if len(letters) < most:
                return
            after = (letters[-1].ended or 0, letters[-1].id)


def _span(queues: list[int]) -> str:
    return f"{queues[0]} to {queues[-1]}" if queues else "this Redis is unused"


def _arrow(schema: StructType) -> pa.Schema:
    """Return the filter exactly as Spark compares it (nulls, widths of numbers), by the parameter of its version."""
    try:
        return to_arrow_schema(schema, timezone="UTC")  # type: ignore[call-arg, unused-ignore]  # before 4.1 it has none
    except TypeError:
        return to_arrow_schema(schema)


class PushingReader(MessageReader):
    """A reader to which Spark passes filters. Spark refuses a reader with this method unless the session allows it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Accept the filters that the options can express. Spark checks the filters again that are only narrowed down."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        options = self._options
        match one:
            case EqualTo(("topic",), str(topic)) if options.topic in ("", topic):
                self._options = msgspec.structs.replace(options, topic=topic)
                return True
            case EqualTo(("queue",), int(queue)) if not options.queues or queue in options.queues:
                return self._narrow({queue})
            case In(("queue",), queues):
                wanted = {queue for queue in queues if isinstance(queue, int)}
                return self._narrow(wanted & set(options.queues or wanted))
            case GreaterThan(("due",), datetime() as due) | GreaterThanOrEqual(("due",), datetime() as due):
                self._from(due)
            case LessThan(("due",), datetime() as due) | LessThanOrEqual(("due",), datetime() as due):
                self._to(due)
            case EqualTo(("due",), datetime() as due):
                self._from(due)
                self._to(due)
        return False

    def _narrow(self, queues: set[int]) -> bool:
        there = {queue for partition in super().partitions() for queue in partition.value or ()}
        if not queues & there:
            return False  # nothing is left, which Spark finds out
        self._options = msgspec.structs.replace(self._options, queues=tuple(sorted(queues & there)))
        return True

    def _from(self, due: datetime) -> None:
        ms, options = _ms(due), self._options
        if ms is not None and options.state == "pending":
            self._options = msgspec.structs.replace(options, due_from=max(ms, options.due_from or 0))

    def _to(self, due: datetime) -> None:
        ms, options = _ms(due), self._options
        if ms is not None and options.state == "pending":
            end = ms + 1 if options.due_to is None else min(ms + 1, options.due_to)
            self._options = msgspec.structs.replace(options, due_to=end)


def _ms(due: datetime) -> int | None:
    """Unix ms, rounded down; None for a time without a zone, or before 1970."""
    if due.tzinfo is None:
        return None
    ms = (due - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return ms if ms >= 0 else None
