"""The forecast of a backfill: it reads each row and looks up its id, and schedules nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from delayq.base.clock import SystemClock
from delayq.base.errors import Conflict, DelayqError, InvalidMessage, PastDue
from delayq.client.known_routes import KnownRoutes
from delayq.client.looking.messages import look_by_complete_id
from delayq.client.scheduling.encoding import asked_due, complete_id
from delayq.client.scheduling.schedule import Scheduled
from delayq.config import Settings
from delayq.domain.codec import encode, record_length
from delayq.domain.message import Limits, Message, State, level_delay
from delayq.spark.jobs.histogram import DueHistogram
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows.origin import place_of
from delayq.spark.rows.records import same_message
from delayq.spark.rows.rows import messages_of
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.handed import Handed
from delayq.spark.writing.sending import reason_of
from delayq.spark.writing.task import windows
from delayq.store import checks, commands
from delayq.store.checks import ServerSettings
from delayq.store.commands import Found
from delayq.store.connect.exchange import all_good
from delayq.store.connect.store import Store
from delayq.store.keys import spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The bytes that a server uses for a message besides its record, and for a business key, as `./dev bench footprint`
#: measures.
OVERHEAD: Final = {"valkey": (169, 111), "redis": (280, 155)}
#: The length of the ids of that measurement; an id is stored twice.
_ID_LENGTH: Final = 27


class Forecast(msgspec.Struct, kw_only=True):
    """The forecast outcome of rows, with the due times and the size of messages to schedule.

    Sizes are bytes: of the records, and of the parts of ids that exceed the usual length.
    """

    counts: Counts = msgspec.field(default_factory=Counts)
    dues: DueHistogram = msgspec.field(default_factory=DueHistogram)
    records: int = 0
    ids: int = 0
    keys: int = 0

    def merge(self, other: Forecast) -> None:
        """Add the results of another task."""
        self.counts = Counts.total([self.counts, other.counts])
        self.dues.merge(other.dues)
        self.records += other.records
        self.ids += other.ids
        self.keys += other.keys

    def memory(self, server: str) -> int:
        """Return about how many bytes of a server of this name the messages need."""
        message, key = OVERHEAD.get(server, OVERHEAD["redis"])
        return self.records + self.ids + self.counts.scheduled * message + self.keys * key


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The used memory of a Redis and its limit (0: no limit). A cluster reports its fullest primary."""

    server: str
    used: int
    most: int
    primaries: int

    def too_small_for(self, size: int) -> bool:
        """Return whether that many more bytes, spread over all primaries, would exceed the maximum."""
        return bool(self.most) and self.used + size // self.primaries > self.most


def room(store: Store) -> Room:
    """Ask the server; raises StoreError."""
    found: ServerSettings = store.run(checks.server())
    return Room(
        server=found.name, used=found.used_memory, most=found.max_memory or 0, primaries=max(1, found.primaries)
    )


def forecast(frame: DataFrame, options: WriteOptions, settings: Settings) -> Forecast:
    """Check every row, in Spark's tasks."""
    here = zone_of(frame, options)
    handed = Handed.of(settings)

    def look_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(look(batches, options, handed, lambda: here))]})

    whole = Forecast()
    for row in frame.mapInArrow(look_in_task, "found binary").toLocalIterator():
        whole.merge(msgspec.json.decode(bytes(row.found), type=Forecast))
    return whole


def twice(frame: DataFrame, options: WriteOptions) -> int:
    """Return the number of ids that repeat in rows with different messages: all except the first would be a conflict."""
    from pyspark.sql import functions

    here = zone_of(frame, options)

    def digests_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in windows(batches):
            found = digests(batch, options, lambda: here)
            ids = pa.array([id for id, _ in found], pa.string())
            yield pa.RecordBatch.from_arrays([ids, pa.array([one for _, one in found], pa.binary())], ["id", "digest"])

    ids = frame.mapInArrow(digests_in_task, "id string, digest binary").groupBy("id")
    return ids.agg((functions.min("digest") != functions.max("digest")).alias("differ")).where("differ").count()


def zone_of(frame: DataFrame, options: WriteOptions) -> tzinfo:
    """Return the zone of timestamps without one."""
    return zone(options.time_zone or frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC")


# -- in a task -----------------------------------------------------------------------------------------------------------


def digests(batch: pa.RecordBatch, options: WriteOptions, here: Callable[[], tzinfo]) -> list[tuple[str | None, bytes]]:
    """The id of each row that is a message, and the values that distinguish it from others of the same id."""
    rows = [one for one in messages_of(batch, options, here) if isinstance(one, Message)]
    return [(one.id, blake2b(_content(one), digest_size=16).digest()) for one in rows]


def _content(row: Message) -> bytes:
    body = row.body
    if not isinstance(body, (str, bytes)):
        encoded = msgspec.json.encode(body)
        with suppress(msgspec.MsgspecError):  # it is rejected for that, elsewhere
            encoded = msgspec.json.format(encoded, indent=-1)
        body = ("json", encoded)
    return repr(msgspec.structs.astuple(msgspec.structs.replace(row, body=body))).encode()


def look(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, handed: Handed, here: Callable[[], tzinfo]
) -> Forecast:
    """Check every row of a task."""
    found = Forecast()
    if handed.api:
        _look_by_api(found, batches, options, handed, here)
        return found
    with handed.client_of_task(check_routes=options.check_routes) as client:
        context = client.reading()
        for batch in windows(batches):
            now = client.store.run(commands.redis_now())
            client.learn_routes()
            rows = [_checked(row, context.limits, context.routes, now) for row in messages_of(batch, options, here)]
            ids = {complete_id(row.id, row.ordering_key) for row in rows if isinstance(row, Message)}
            looked = client.run(partial(look_by_complete_id, ids=[*ids]))
            there = dict(zip(looked, all_good([*looked.values()]), strict=True))
            for place, row in enumerate(rows):
                _count(found, row, there, context.limits, now, options, partial(place_of, batch, place))
    return found


def _look_by_api(
    found: Forecast,
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    handed: Handed,
    here: Callable[[], tzinfo],
) -> None:
    """Look at every row by the limits of this process, and ask the HTTP API for its id. Topics are not checked."""
    limits, clock = handed.settings.limits(), SystemClock()
    with handed.api_client() as client:
        for batch in windows(batches):
            now = clock.now()
            rows = [_checked(row, limits, None, now) for row in messages_of(batch, options, here)]
            ids = [*{complete_id(row.id, row.ordering_key) for row in rows if isinstance(row, Message)}]
            there = dict(zip(ids, client.get_many(ids), strict=True))
            for place, row in enumerate(rows):
                _count(found, row, there, limits, now, options, partial(place_of, batch, place))


def _checked(
    row: Message | InvalidMessage, limits: Limits, routes: KnownRoutes | None, now: int
) -> Message | InvalidMessage:
    """The row, or what is wrong with it."""
    if isinstance(row, InvalidMessage):
        return row
    try:
        row.validate(limits, now)
        if routes is not None:
            routes.check(row)
        encode(row, limits)
        complete_id(row.id, row.ordering_key)
    except InvalidMessage as error:
        return error
    return row


def _count(
    found: Forecast,
    row: Message | InvalidMessage,
    there: dict[str, Found | None],
    limits: Limits,
    now: int,
    options: WriteOptions,
    place: Callable[[], str],
) -> None:
    counts = found.counts
    counts.read += 1
    outcome = _outcome(row, there, limits, now, options.past)
    if isinstance(outcome, PastDue) and options.past == "skip":
        counts.skipped += 1
    elif isinstance(outcome, DelayqError):
        counts.reject(reason_of(outcome), place() + options.rejects_as.sentence_of(outcome))
    elif not outcome.created:
        counts.present += 1
    else:
        assert isinstance(row, Message)
        assert outcome.due is not None
        counts.scheduled += 1
        found.dues.add(outcome.due)
        found.records += record_length(encode(row, limits))
        found.ids += 2 * max(0, len(outcome.id) - _ID_LENGTH)
        found.keys += len(row.keys)


def _outcome(
    row: Message | InvalidMessage, there: dict[str, Found | None], limits: Limits, now: int, past: str
) -> Scheduled | DelayqError:
    if isinstance(row, InvalidMessage):
        return row
    id = complete_id(row.id, row.ordering_key)
    if (before := there.get(id)) is not None:
        if before.state in (State.CANCELLED, State.REMOVED_IN_FLIGHT, State.DISCARDED):
            return Conflict(id, before.state)
        if before.record is not None and not same_message(before.record, row):
            return Conflict(id)
        return Scheduled(id, before.queue, before.due, before.state, created=False)
    due = asked_due(row)
    if due is None:
        due = now + (
            row.delay_time if row.delay_time is not None else level_delay(limits.delay_levels, row.delay_level)
        )
        due += spread(id, row.window) if row.window is not None else 0
    if due < now and past != "now":
        return PastDue(id)
    return Scheduled(id, 0, max(due, now))
