"""Encodes plain rows column by column: they are almost all rows, and this takes a fraction of the time.

Plain is a row with an id, a date, at most a topic, tags and a small body, and nothing wrong with it. A topic with
its tags is encoded once by `codec.encode`, for an empty body. The body and its length (the last of the lengths) are put in.
All other rows use the slower `messages_of`, which also reports their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import tzinfo
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delayq.base.errors import InvalidMessage
from delayq.client.plan import CHUNK, Context
from delayq.client.scheduling.schedule import Ready
from delayq.domain.codec import LENGTH_BYTES, UNMARKED, around_body_length, encode
from delayq.domain.message import MAX_DUE, RUN_PROPERTY, Message
from delayq.spark.options import WriteOptions
from delayq.spark.rows.columns import RARE, field_names, is_bytes
from delayq.spark.rows.ids import row_ids
from delayq.spark.rows.json_values import is_text
from delayq.spark.rows.origin import fields_of
from delayq.spark.rows.values import dues
from delayq.store.keys import spread

#: Larger bodies take the general path, which bounds a script's size in bytes.
SMALL: Final = 4_096
#: From here on (2001) a due time has all its digits.
_OLD: Final = 10**12
_ID: Final = r"\A[A-Za-z0-9._:-]{1,128}\z"
_NO_ID: Final = r"\A\.{1,2}\z"  # a copy for RE2, which has no look-ahead and look-behind


class Plain(NamedTuple):
    """The plain rows of a batch in script calls, their number, and the places of the other rows."""

    batches: Iterator[Ready]
    rows: int
    others: list[int]


def plain_rows(
    batch: pa.RecordBatch, options: WriteOptions, context: Context, now: int, zone: Callable[[], tzinfo]
) -> Plain | None:
    """The plain rows; None if there are none by their columns. `now` (Unix ms) bounds the due times."""
    batch = fields_of(batch)
    columns = dict(zip(field_names(batch.schema.names, options.id_columns), batch.columns, strict=True))
    when, body = columns.get("expect_date"), columns.get("body")
    types = pa.types
    if not options.id_columns and not (is_text(columns["id"].type) or types.is_integer(columns["id"].type)):
        return None
    if when is None or not (types.is_integer(when.type) or types.is_timestamp(when.type)):
        return None
    if body is not None and not (is_text(body.type) or is_bytes(body.type)):
        return None
    try:
        batch.validate(full=True)  # texts may not be UTF-8
    except pa.ArrowInvalid:
        return None
    payload = _payload(body, batch.num_rows)
    empty = b"" if body is not None and is_bytes(body.type) else ""
    codes, before, after = _heads(columns, options, context, now, empty, batch.num_rows)
    ids, at = _ids(columns, options), _dues(when, zone)
    good = pc.and_(codes.is_valid(), payload.is_valid())
    window = options.window or 0
    latest = min(now + context.limits.horizon, MAX_DUE) - window
    for test in (
        pc.match_substring_regex(ids, _ID),
        pc.invert(pc.match_substring_regex(ids, _NO_ID)),
        pc.and_(pc.greater_equal(at, _OLD), pc.less_equal(at, latest)),
        pc.less_equal(pc.binary_length(payload), min(SMALL, context.limits.body)),
        *(columns[name].is_null() for name in RARE if name in columns),
    ):
        good = pc.and_(good, test.fill_null(False))
    places = pc.indices_nonzero(good)
    if len(places) == 0:
        return None
    if len(places) == batch.num_rows:
        others: list[int] = []
    else:
        others = pc.indices_nonzero(pc.invert(good)).to_pylist()
        ids, at, payload, codes = (one.filter(good) for one in (ids, at, payload, codes))
    if window:
        at = pc.add(at, pa.array([spread(id, window) for id in ids.to_pylist()], pa.int64()))
    bodies = pc.binary_join_element_wise(
        at.cast(pa.string()).cast(pa.binary()), before.take(codes), _lengths(payload), after.take(codes), payload, b""
    )
    return Plain(_by_queue(context, ids, bodies, at, places, options.window), len(places), others)


def _payload(body: pa.Array | None, rows: int) -> pa.Array:
    """Return the bodies as bytes; null where there are none but bytes are expected."""
    if body is None:
        return pa.repeat(pa.scalar(b""), rows)
    payload = body.cast(pa.binary())
    return payload if is_bytes(body.type) else payload.fill_null(b"")


def _ids(columns: dict[str, pa.Array], options: WriteOptions) -> pa.Array:
    if not options.id_columns:
        return columns["id"].cast(pa.string())
    names = field_names(options.id_columns)
    rows = len(columns[names[0]])
    return pa.array(
        row_ids([columns[name] for name in names], _topics(columns, options, rows).to_pylist()),
        pa.string(),
    )


def _topics(columns: dict[str, pa.Array], options: WriteOptions, rows: int) -> pa.Array:
    return _or(columns.get("topic"), options.topic or None, rows)


def _or(column: pa.Array | None, constant: str | None, rows: int) -> pa.Array:
    if column is None:
        return pa.repeat(pa.scalar(constant, pa.string()), rows)
    column = column.cast(pa.string())
    return column if constant is None else column.fill_null(constant)


def _dues(column: pa.Array, zone: Callable[[], tzinfo]) -> pa.Array:
    """Return Unix ms as `dues` has them, or a value below `_OLD`."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64(), safe=False)
    if column.type.tz is None or column.type.unit != "us":
        return pa.array(dues(column, zone, {}), pa.int64())
    return pc.divide(pc.add(column.cast(pa.int64()), 999), 1000)


def _heads(
    columns: dict[str, pa.Array], options: WriteOptions, context: Context, now: int, empty: str | bytes, rows: int
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the head of each row (null: none fits), and its parts before and after the body's length."""
    topics = _topics(columns, options, rows).dictionary_encode()
    tags = _or(columns.get("tags"), options.tags, rows).dictionary_encode()
    width = max(1, len(tags.dictionary))
    pairs = pc.add(
        pc.multiply(topics.indices.cast(pa.int64()), width), tags.indices.cast(pa.int64())
    ).dictionary_encode()
    all_topics, all_tags = topics.dictionary.to_pylist(), tags.dictionary.to_pylist()
    run = {RUN_PROPERTY: options.run} if options.run else {}
    before: list[bytes] = []
    after: list[bytes] = []
    good: list[int | None] = []
    for pair in pairs.dictionary.to_pylist():
        topic, tag = all_topics[pair // width], all_tags[pair % width]
        try:
            message = Message(topic=topic, tags=tag, body=empty, expect_date=now, properties=run)
            message.validate(context.limits, now)
            context.routes.check(message)
        except InvalidMessage:
            good.append(None)
            continue
        if context.routes.reads_body(topic):  # each row may be another case
            good.append(None)
            continue
        good.append(len(before))
        head, tail = around_body_length(encode(message, context.limits))
        before.append(UNMARKED + head)
        after.append(tail)
    codes = pa.array(good, pa.int32()).take(pairs.indices)
    return codes, pa.array(before, pa.binary()), pa.array(after, pa.binary())


def _lengths(payload: pa.Array) -> pa.Array:
    """Return the lengths of bodies, as the codec writes them."""
    numbers = pc.binary_length(payload).to_numpy(zero_copy_only=False).astype(">u4")
    kind = pa.binary(LENGTH_BYTES)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.tobytes())]).cast(pa.binary())


def _by_queue(
    context: Context, ids: pa.Array, bodies: pa.Array, at: pa.Array, places: pa.Array, window: int | None
) -> Iterator[Ready]:
    """Yield the script calls, of all queues in turn."""
    place = context.layouts.known[0].queue_of
    queues = np.fromiter(map(place, ids.to_pylist()), np.int32, len(ids))
    order = np.argsort(queues, kind="stable")
    numbers, firsts = np.unique(queues[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(queues)]
    spans = list(zip(numbers.tolist(), firsts.tolist(), ends, strict=True))
    sorted_columns: list[Any] = [column.take(pa.array(order)) for column in (ids, bodies, places, at)]
    for step in range(0, max(end - first for _, first, end in spans), CHUNK):
        for queue, first, end in spans:
            if (start := first + step) < end:
                some = [column.slice(start, min(CHUNK, end - start)).to_pylist() for column in sorted_columns]
                yield Ready(queue, some[0], some[1], list(zip(some[2], some[3], repeat(window))))
