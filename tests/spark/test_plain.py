"""What goes the short way is exactly what would have gone the long way."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from delayq.base.errors import InvalidMessage
from delayq.client.known_routes import KnownRoutes
from delayq.client.plan import CHUNK, Context
from delayq.client.scheduling.encoding import encode_all
from delayq.domain.message import Limits, Message
from delayq.domain.routes import Routes
from delayq.spark.options import WriteOptions
from delayq.spark.rows.column_encoder import SMALL, plain_rows
from delayq.spark.rows.rows import messages_of
from delayq.store.keys import Layout, Layouts

NOW: Final = 1_900_000_000_000
LIMITS: Final = Limits(body=100)
TYPES: Final = {
    "id": pa.string(), "topic": pa.string(), "tags": pa.string(), "body": pa.string(), "expect_date": pa.int64(),
    "keys": pa.list_(pa.string()), "delay_time": pa.int64(),
}  # fmt: skip
#: Of each column what is plain, and what is not.
VALUES: Final[dict[str, Any]] = {
    "id": some.sampled_from(
        ["a", "b.00ff", ".", "..", "...", "x" * 128, "é", "", "two words", "end\n", "x" * 129, None]
    ),
    "topic": some.sampled_from(["t", "u", "a b", "", "delayq:x", None]),
    "tags": some.sampled_from(["red", "é", "a\nb", "x" * 256, "", None]),
    "body": some.sampled_from(["", "é", "x" * 100, "é" * 51, None]),
    "expect_date": some.sampled_from([NOW, NOW + 1, 10**12, 10**12 - 1, 0, -1, 2**62, LIMITS.horizon + NOW + 1, None]),
    "keys": some.sampled_from([None, None, ["k"]]),
    "delay_time": some.sampled_from([None, None, 5]),
}


def utc() -> tzinfo:
    return UTC


def context(*layouts: Layout) -> Context:
    return Context(layouts=Layouts(layouts or (Layout(4),)), limits=LIMITS, routes=KnownRoutes(Routes()))


def both_ways(batch: pa.RecordBatch, options: WriteOptions) -> tuple[dict[int, tuple[int, str, bytes, int]], set[int]]:
    """The plain rows by their places: queue, id, what is sent, due. And all others."""
    plain = plain_rows(batch, options, context(), NOW, utc)
    if plain is None:
        return {}, set(range(batch.num_rows))
    short = {
        place: (ready.queue, id, body, due)
        for ready in plain.batches
        for id, body, (place, due, _) in zip(ready.ids, ready.bodies, ready.places, strict=True)
    }
    assert len(short) == plain.rows
    return short, set(plain.others)


def long_way(message: Message | InvalidMessage) -> tuple[int, str, bytes, int] | None:
    """The same of a row that nothing is wrong with."""
    if isinstance(message, InvalidMessage):
        return None
    (one,) = encode_all([message], LIMITS, KnownRoutes(Routes()), NOW)
    if isinstance(one, InvalidMessage) or one.kind != "A":
        return None
    assert one.id is not None
    return Layout(4).queue_of(one.id), one.id, one.body, one.when


@given(
    some.lists(some.fixed_dictionaries(VALUES), min_size=1, max_size=30),
    some.booleans(),
    some.sampled_from(["", "r"]),
    some.sampled_from([None, 1, 600_000]),
)
def test_a_plain_row_is_sent_as_the_long_way_would_send_it(
    rows: list[Any], constant: bool, run: str, window: int | None
) -> None:
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(TYPES))
    options = WriteOptions(topic="all" if constant else "", tags="some" if constant else "", run=run, window=window)
    short, others = both_ways(batch, options)
    assert short.keys() | others == set(range(len(rows))) and not short.keys() & others
    messages = list(messages_of(batch, options, utc))
    for place, found in short.items():
        assert found == long_way(messages[place])
    for place in others:  # it has something that is not plain, or is wrong
        row = rows[place]
        rare = row["keys"] is not None or row["delay_time"] is not None or (row["expect_date"] or 0) < 10**12
        assert rare or long_way(messages[place]) is None


def row(**changes: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": "a", "topic": "t", "expect_date": NOW} | changes])


def test_bodies_may_be_bytes_and_ids_numbers_and_of_columns() -> None:
    for batch, options in (
        (row(body=b"\0\xff"), WriteOptions()),
        (row(id=7), WriteOptions()),
        (row(shop=1), WriteOptions(id_columns=("shop", "id"))),
    ):
        (found,) = both_ways(batch, options)[0].values()
        assert found == long_way(next(messages_of(batch, options, utc)))


def test_timestamps_are_rounded_up_as_the_long_way_rounds_them() -> None:
    for type in (pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ms", "UTC")):
        instant = pa.array([NOW * (1000 if type.unit == "us" else 1) + 1]).cast(type)
        batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["t"]), instant], ["id", "topic", "expect_date"])
        (found,) = both_ways(batch, WriteOptions())[0].values()
        assert found[3] == NOW + 1 and found == long_way(next(messages_of(batch, WriteOptions(), utc)))


@pytest.mark.parametrize(
    "changes", [{"body": ["x"]}, {"expect_date": "2033-05-18T03:33:20Z"}, {"body": "x" * (SMALL + 1)}]
)
def test_what_the_columns_alone_tell_apart_goes_the_long_way(changes: dict[str, Any]) -> None:
    assert plain_rows(row(**changes), WriteOptions(), context(), NOW, utc) is None


def test_a_script_takes_so_many_of_one_queue() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"id": [f"m-{n}" for n in range(5_000)], "topic": ["t"] * 5_000, "expect_date": [NOW + n for n in range(5_000)]}
    )
    plain = plain_rows(batch, WriteOptions(), context(Layout(4, 7)), NOW, utc)
    assert plain is not None and plain.others == []
    calls = list(plain.batches)
    assert all(len(call.ids) <= CHUNK for call in calls) and len(calls) < 16
    assert [call.queue for call in calls[:4]] == [7, 8, 9, 10]
    assert all(Layout(4, 7).queue_of(id) == call.queue for call in calls for id in call.ids)
    assert sorted(place for call in calls for place, *_ in call.places) == list(range(5_000))
