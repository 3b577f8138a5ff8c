"""An id from the columns that identify a row: the same row has the same id, in every task and every run.

The id is 32 hexadecimal digits: BLAKE2b (16 bytes) of the topic and the values in the order of `idColumns`. Each is text in
UTF-8 with its length in bytes and a colon before it; a null is a single '-'. The text is the same for a number in
Parquet and its digits in CSV; a timestamp is its Unix time in µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from hashlib import blake2b
from typing import Any

import pyarrow as pa


def hashable(type: pa.DataType) -> bool:
    """Return whether values of this type have a text that is always the same."""
    types = pa.types
    return any(
        is_one(type)
        for is_one in (
            types.is_string,
            types.is_large_string,
            types.is_integer,
            types.is_boolean,
            types.is_binary,
            types.is_large_binary,
            types.is_date,
            types.is_timestamp,
            types.is_decimal,
            types.is_floating,
            types.is_null,
        )
    )


def row_ids(columns: Sequence[pa.Array], topics: Iterable[str | None]) -> list[str | None]:
    """The ids of a batch; None for a row whose columns are all null, because two such rows cannot be distinguished."""
    values = [_plain(column).to_pylist() for column in columns]
    return [
        None if topic is None or all(one is None for one in row) else row_id(topic, row)
        for topic, row in zip(topics, zip(*values, strict=True), strict=False)
    ]


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return column.cast(pa.date32()).cast(pa.string())  # also of a year that Python does not support
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())


def row_id(topic: str, values: Iterable[Any]) -> str:
    """Return the id of the row with these values: texts, bytes, numbers, booleans, dates, and timestamps as Unix µs."""
    parts = [_part(topic.encode())]
    parts += [b"-" if value is None else _part(_text(value)) for value in values]
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _part(text: bytes) -> bytes:
    return b"%d:%s" % (len(text), text)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (date, datetime, time)):
        return value.isoformat().encode()
    return str(value).encode()
