"""The pure parts: options, columns, values and ids, without Spark and without Redis."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from delayq.base.errors import ConfigError, InvalidMessage
from delayq.domain.codec import encode
from delayq.domain.message import Limits, Message
from delayq.spark.options import ReadOptions, WriteOptions, zone
from delayq.spark.rows.columns import check_columns
from delayq.spark.rows.ids import row_id, row_ids
from delayq.spark.rows.rows import messages_of

FAR = 2_000_000_000_000


def no_zone() -> tzinfo:
    raise AssertionError("nobody needs a zone here")


def read(batch: pa.RecordBatch, *, here: tzinfo | None = None, **options: Any) -> list[Message | InvalidMessage]:
    """The rows as messages."""
    given = WriteOptions.parse({"topic": "t", **options})
    check_columns(batch.schema, given.id_columns, given.topic)
    return list(messages_of(batch, given, (lambda: here) if here is not None else no_zone))


def one(values: dict[str, Any], types: dict[str, pa.DataType] | None = None) -> Message | InvalidMessage:
    """One row as a message."""
    row = {"id": "a", "expect_date": FAR, **values}
    for name in {name.lower() for name in values} - {*values}:  # in other letters, it takes the place
        row.pop(name, None)
    arrays = [pa.array([value], (types or {}).get(name)) for name, value in row.items()]
    (message,) = read(pa.RecordBatch.from_arrays(arrays, names=list(row)))
    return message


def test_the_columns_win_over_the_constants_which_fill_in_for_null() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"id": ["a", "b"], "topic": ["x", None], "tags": [None, "y"], "expect_date": [1, 2]}
    )
    assert read(batch, tags="z") == [
        Message(id="a", topic="x", tags="z", expect_date=1),
        Message(id="b", topic="t", tags="y", expect_date=2),
    ]


@pytest.mark.parametrize(
    ("values", "types", "expected"),
    [
        ({"body": None}, {"body": pa.string()}, {"body": ""}),
        ({"body": b"\0"}, {}, {"body": b"\0"}),
        ({"body": {"n": 1, "d": [None]}}, {}, {"body": {"n": 1, "d": [None]}}),
        ({"body": [("k", 1)]}, {"body": pa.map_(pa.string(), pa.int64())}, {"body": {"k": 1}}),
        ({"body": [1, 2]}, {}, {"body": [1, 2]}),
        ({"id": 7}, {}, {"id": "7"}),
        ({"keys": "order-1  user-7"}, {}, {"keys": ("order-1", "user-7")}),
        ({"keys": ["a b"]}, {}, {"keys": ("a b",)}),
        ({"expect_date": "2033-05-18T03:33:20Z"}, {}, {"expect_date": FAR}),
        ({"expect_date": str(FAR)}, {}, {"expect_date": FAR}),
        ({"expect_date": None, "delay_time": "1h30m"}, {"expect_date": pa.int64()},
         {"expect_date": None, "delay_time": 5_400_000}),
        ({"expire_after": timedelta(microseconds=1)}, {}, {"expire_after": 1}),
        ({"properties": [("b", "2")]}, {"properties": pa.map_(pa.string(), pa.string())}, {"properties": {"b": "2"}}),
        ({"properties": [("b", None)]}, {"properties": pa.map_(pa.string(), pa.string())}, {}),
        ({"properties": [(1, 2.5)]}, {"properties": pa.map_(pa.int64(), pa.float64())}, {"properties": {"1": "2.5"}}),
        ({"properties": {"a": "1", "b": None, "c": True, "d": [1], "e": date(2030, 1, 1), "f": Decimal("1.50")}}, {},
         {"properties": {"a": "1", "c": "true", "d": "[1]", "e": "2030-01-01", "f": "1.50"}}),
        ({"properties": '{"a": "x", "b": 1.50, "c": null}'}, {}, {"properties": {"a": "x", "b": "1.50"}}),
        ({"ID": "b", "Expect_Date": FAR + 1, "BODY": "x"}, {}, {"id": "b", "expect_date": FAR + 1, "body": "x"}),
        ({"id": Decimal(2**70)}, {}, {"id": str(2**70)}),
        ({"id": Decimal("7.00")}, {}, {"id": "7"}),
        ({"expect_date": Decimal(f"{FAR}.001")}, {}, {"expect_date": FAR + 1}),  # rounded up, as of timestamps
        ({"expire_after": Decimal(5)}, {}, {"expire_after": 5}),
        ({"max_attempts": Decimal("3.0")}, {}, {"max_attempts": 3}),
        ({"max_attempts": " 3 "}, {}, {"max_attempts": 3}),
        ({"tags": None, "keys": None, "body": None, "properties": None, "window": None}, {}, {}),  # void
        ({"keys": [], "body": [[]]}, {}, {"body": [[]]}),
        ({"body": "aGk=", "body_type": "base64"}, {}, {"body": b"hi"}),
        ({"body": "hi", "body_type": "text"}, {}, {"body": "hi"}),
    ],
)  # fmt: skip
def test_a_value_becomes_the_field_of_the_message(
    values: dict[str, Any], types: dict[str, Any], expected: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"id": "a", "topic": "t", "expect_date": FAR} | expected
    assert one(values, types) == Message(**fields)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"expect_date": "tomorrow"}, "expectDate"),
        ({"expect_date": "2033-05-18T03:33:20"}, "expectDate"),
        ({"delay_time": "soon"}, "delayTime"),
        ({"expire_after": "x"}, "expireAfter"),
        ({"body": "%", "body_type": "base64"}, "body"),
        ({"body": "x", "body_type": "xml"}, "bodyType"),
        ({"body": b"x", "body_type": "json"}, "bodyType"),
        ({"id": Decimal("7.50")}, "id"),
        ({"max_attempts": "3.0"}, "maxAttempts"),
        ({"max_attempts": "1_0"}, "maxAttempts"),
        ({"delay_level": Decimal("1.5")}, "delayLevel"),
        ({"properties": "[]"}, "properties"),
        ({"properties": ""}, "properties"),
        ({"properties": {"a": float("nan")}}, "properties"),
        ({"body": [float("inf")]}, "body"),
    ],
)
def test_a_value_that_cannot_be_read_is_wrong_in_its_row_alone(values: dict[str, Any], field: str) -> None:
    wrong = one(values)
    assert isinstance(wrong, InvalidMessage) and wrong.field == field


def test_nested_values_of_every_kind_are_json() -> None:
    moment, day = datetime(2030, 1, 1, 0, 0, 0, 5, tzinfo=UTC), pa.duration("us")
    cases: list[tuple[pa.DataType, Any, str]] = [
        (pa.null(), None, "null"),
        (pa.bool_(), True, "true"),
        (pa.int64(), 2**62, str(2**62)),
        (pa.float32(), 0.5, "0.5"),
        (pa.decimal128(38, 10), Decimal("1.0000000001"), "1.0000000001"),
        (pa.string(), "é", '"é"'),
        (pa.binary(), b"hi", '"aGk="'),
        (pa.date32(), date(2030, 1, 1), '"2030-01-01"'),
        (pa.timestamp("us", tz="+09:00"), moment, '"2030-01-01T00:00:00.000005Z"'),
        (pa.timestamp("s"), moment.replace(tzinfo=None), '"2030-01-01T00:00:00"'),
        (pa.timestamp("ns"), 5, '"1970-01-01T00:00:00.000000005"'),
        (pa.time64("ns"), 1_000_000, '"00:00:00.001000"'),
        (day, timedelta(hours=1.5), '"PT5400S"'),
        (pa.map_(pa.date32(), pa.int64()), [(date(2030, 1, 1), 1)], '{"2030-01-01":1}'),
        (pa.map_(pa.float64(), pa.struct([("a", pa.null())])), [(1.5, {"a": None})], '{"1.5":{"a":null}}'),
        (pa.struct([]), {}, "{}"),
    ]
    inner = pa.struct([(f"f{number}", type) for number, (type, _, _) in enumerate(cases)])
    values = {f"f{number}": value for number, (_, value, _) in enumerate(cases)}
    wanted = ",".join(f'"f{number}":{json}' for number, (_, _, json) in enumerate(cases))
    for body, type, around in (
        (values, inner, ("{", "}")),
        ([None, values], pa.list_(inner), ("[null,{", "}]")),
        ([("k", values)], pa.map_(pa.string(), inner), ('{"k":{', "}}")),
    ):
        column = pa.array([None, body, body], type).slice(1)  # as a part of a table is
        batch = pa.RecordBatch.from_arrays(
            [pa.array(["a", "b"]), pa.array([FAR] * 2), column], ["id", "expect_date", "body"]
        )
        for message in read(batch):
            assert isinstance(message, Message)
            assert encode(message, Limits()).endswith((around[0] + wanted + around[1]).encode())


def test_a_value_without_json_is_wrong_in_its_row_alone() -> None:
    year_10000 = 253_402_300_800_000_000
    wrong: list[tuple[pa.DataType, Any]] = [
        (pa.timestamp("us", tz="Asia/Tokyo"), year_10000),
        (pa.date32(), 2**31 - 1),
        (pa.duration("s"), 2**62),
        (pa.map_(pa.int64(), pa.int64()), [(1, 1), (1, 2)]),
        (pa.float64(), float("nan")),
    ]
    for type, value in wrong:
        body = pa.array([{"x": None}, {"x": value}, None], pa.struct([("x", type)]))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(["a", "b", "c"]), pa.array([FAR] * 3), body], ["id", "expect_date", "body"]
        )
        first, bad, last = read(batch)
        assert isinstance(first, Message) and first.body == {"x": None}, type
        assert isinstance(bad, InvalidMessage) and bad.field == "body", type
        assert isinstance(last, Message) and last.body == "", type


def test_a_day_begins_in_the_zone_of_the_session() -> None:
    day, far = date(2030, 3, 31), date.max
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), pa.array([day, far])], names=["id", "expect_date"])
    first, last = read(batch, here=ZoneInfo("Asia/Beirut"))  # where midnight is left out on this day
    assert isinstance(first, Message) and isinstance(last, Message)
    assert first.expect_date == round(datetime(2030, 3, 30, 22, tzinfo=UTC).timestamp() * 1000)


def test_ids_of_columns_take_days_that_python_does_not_have() -> None:
    days = pa.array([2**30], pa.int32()).cast(pa.date32())
    (id,) = row_ids([days, pa.nulls(1)], ["t"])
    assert id is not None
    batch = pa.RecordBatch.from_pydict({"Order": ["7"], "expect_date": [FAR]})
    for written in ("ORDER", "EXPECT_DATE,order"):
        (message,) = read(batch, idColumns=written)
        assert isinstance(message, Message) and message.id == row_id("t", ["7"] if written == "ORDER" else [FAR, "7"])


def test_a_text_that_is_no_utf_8_is_wrong_in_its_row_alone() -> None:
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), texts, pa.array([FAR] * 3)], ["id", "body", "expect_date"]
    )
    first, wrong, last = read(batch)
    assert first == Message(id="a", topic="t", body="a", expect_date=FAR)
    assert isinstance(wrong, InvalidMessage) and wrong.field == "body"
    assert isinstance(last, Message) and last.body == "c"


def test_nested_instants_are_in_utc_and_numbers_keep_their_digits() -> None:
    tokyo = pa.timestamp("us", tz="Asia/Tokyo")
    body = pa.struct([("at", tokyo), ("price", pa.decimal128(20, 10)), ("day", pa.date32())])
    value = {"at": datetime(2030, 1, 1, tzinfo=UTC), "price": Decimal("1.0000000001"), "day": date(2030, 1, 1)}
    message = one({"body": value}, {"body": body})
    assert isinstance(message, Message)
    assert encode(message, Limits()).endswith(b'{"at":"2030-01-01T00:00:00Z","price":1.0000000001,"day":"2030-01-01"}')


def test_json_text_is_json_and_what_is_none_is_refused_when_it_is_encoded() -> None:
    good, bad = (one({"body": text, "body_type": "json"}) for text in ('{"n": 1e3}', "{"))
    assert isinstance(good, Message) and encode(good, Limits()).endswith(b'{"n":1e3}')
    assert isinstance(bad, Message)
    with pytest.raises(InvalidMessage, match="JSON"):
        encode(bad, Limits())


@pytest.mark.parametrize(
    ("wall", "utc"),
    [
        ("2030-07-01T12:00:00.000001", "2030-07-01T10:00:00.001"),  # rounded up
        ("2030-03-31T02:30:00", "2030-03-31T01:30:00"),  # left out: as much later
        ("2030-10-27T02:30:00", "2030-10-27T00:30:00"),  # comes twice: the first
        ("1969-12-31T23:00:00", "1969-12-31T22:00:00"),
    ],
)
def test_a_timestamp_without_a_zone_is_one_of_the_session(wall: str, utc: str) -> None:
    column = pa.array([datetime.fromisoformat(wall)], pa.timestamp("us"))
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), column], names=["id", "expect_date"])
    (message,) = read(batch, here=ZoneInfo("Europe/Berlin"))
    assert isinstance(message, Message)
    assert message.expect_date == round(datetime.fromisoformat(utc + "+00:00").timestamp() * 1000)


def test_an_id_of_columns_is_the_same_for_the_same_values_however_they_are_kept() -> None:
    day, moment = date(2030, 1, 2), datetime(2030, 1, 2, 3, tzinfo=UTC)
    numbers = row_ids([pa.array([7, None]), pa.array([day, None])], ["t", "t"])
    texts = row_ids([pa.array(["7", None]), pa.array(["2030-01-02", None])], ["t", "t"])
    assert numbers == texts == [row_id("t", ["7", "2030-01-02"]), None]
    assert numbers[0] == row_id("t", [7, day])
    ids = [
        row_id("t", ["a", "b"]), row_id("t", ["ab", ""]), row_id("t", ["", "ab"]), row_id("t", ["ab"]),
        row_id("t", ["ab", None]), row_id("u", ["a", "b"]), row_id("t", ["1:b"]), row_id("t", ["-"]), row_id("t", [None, "-"]),
    ]  # fmt: skip
    assert len(set(ids)) == len(ids)
    for zone_name in ("UTC", "Asia/Tokyo"):
        (same,) = row_ids([pa.array([moment], pa.timestamp("us", tz=zone_name))], ["t"])
        assert same == row_id("t", [int(moment.timestamp()) * 1_000_000])


def test_ids_of_columns_never_change() -> None:
    assert row_id("orders", [42, None, "é"]) == "c49265bd74acecae77050445440e3148"


@pytest.mark.parametrize(
    ("columns", "id_columns", "complaint"),
    [
        ({"id": pa.string(), "expect_date": pa.int64(), "when": pa.int64()}, (), "no message has a field when"),
        ({"id": pa.string(), "expect_date": pa.float64()}, (), "the column expect_date is double"),
        ({"id": pa.string(), "expect_date": pa.bool_()}, (), "the column expect_date is bool"),
        ({"id": pa.string(), "Id": pa.string()}, (), "the column id is there twice"),
        ({"a": pa.int64(), "A": pa.int64()}, ("a",), "the column a is there twice"),
        (
            {"id": pa.string(), "expect_date": pa.int64(), "body": pa.map_(pa.struct([]), pa.int64())},
            (),
            "the column body cannot become JSON: a key of the map body is struct",
        ),
        (
            {"id": pa.string(), "expect_date": pa.int64(), "body": pa.list_(pa.map_(pa.binary(), pa.int64()))},
            (),
            r"a key of the map body\[\] is binary",
        ),
        (
            {"id": pa.string(), "expect_date": pa.int64(), "body": pa.struct([("a", pa.month_day_nano_interval())])},
            (),
            "body.a is month_day_nano_interval",
        ),
        (
            {"id": pa.string(), "expect_date": pa.int64(), "body": pa.struct([("a", pa.int8()), ("a", pa.int8())])},
            (),
            "body has the field a twice",
        ),
        (
            {"id": pa.string(), "expect_date": pa.int64(), "properties": pa.list_(pa.string())},
            (),
            "a map, a struct, or",
        ),
        ({"id": pa.string(), "expect_date": pa.int64(), "body": pa.int64()}, (), "cast it to a string"),
        ({"id": pa.string(), "expect_date": pa.int64(), "keys": pa.list_(pa.int64())}, (), "an array of strings"),
        ({"expect_date": pa.int64(), "a": pa.list_(pa.int64())}, ("a",), "not nested ones"),
        ({"id": pa.string(), "expect_date": pa.int64(), "a": pa.int64()}, ("a",), "remove one of them"),
        ({"id": pa.string()}, (), "no column has the due time"),
    ],
)
def test_columns_are_checked_as_a_whole(columns: dict[str, Any], id_columns: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_columns(pa.schema(list(columns.items())), id_columns, "t")


def test_options_are_read_whatever_the_case_of_their_names() -> None:
    given = {"REDISURL": "redis://x", "idcolumns": "a, b", "past": "now", "rate": "1000", "retryfor": "5s"}
    expected = WriteOptions(redis_url="redis://x", id_columns=("a", "b"), past="now", rate=1_000, retry_for=5_000)
    assert WriteOptions.parse(given | {"checkpointLocation": "/x"}) == expected
    read_options = ReadOptions.parse({"dead": "true", "queues": "7,1-3", "dueFrom": "5"})
    assert (read_options.state, read_options.queues, read_options.due_from) == ("dead", (1, 2, 3, 7), 5)


def test_a_url_can_be_kept_out_of_sight(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SECRET_URL", "redis://:secret@x")
    (tmp_path / "url").write_text("redis://:other@x\n")
    assert WriteOptions.parse({"redisUrl": "env:SECRET_URL"}).redis_url == "redis://:secret@x"
    assert WriteOptions.parse({"redisUrl": f"file:{tmp_path}/url"}).redis_url == "redis://:other@x"
    with pytest.raises(ConfigError, match="NOBODY"):
        WriteOptions.parse({"redisUrl": "env:NOBODY"})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("past", "never", "reject, skip, now"), ("rate", "-1", "or 0 for no limit"), ("rate", "fast", "option rate"),
        ("timeZone", "Mars/Base", "is not a time zone"), ("topic", "a b", "option topic"), ("run", "a b", "option run"),
        ("retryFor", "long", "option retryFor"), ("nonsense", "1", "there are redisUrl, namespace, topic, tags"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_told_by_its_name(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        WriteOptions.parse({name: value})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("queues", "a", "0,3,5-7"), ("page", "0", "1 to 10000"), ("state", "alive", "pending, dead, all"),
        ("dueFrom", "tomorrow", "option dueFrom"), ("topik", "x", "there is no such option"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_read_is_told_by_its_name(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        ReadOptions.parse({name: value})
    with pytest.raises(ConfigError, match="use one of them"):
        ReadOptions.parse({"dead": "true", "state": "pending"})


def test_zones_are_known_as_spark_writes_them() -> None:
    moment = datetime(2030, 1, 1)  # noqa: DTZ001 - each zone is put in
    hours = {"UTC": 0, "Z": 0, "+09:00": 9, "GMT-3": -3, "UTC+05:30": 5.5, "Asia/Tokyo": 9}
    for name, offset in hours.items():
        assert moment.replace(tzinfo=zone(name)).utcoffset() == timedelta(hours=offset), name
