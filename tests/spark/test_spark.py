"""The data source on a real Spark and a real Valkey."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest

from delayq import Client, Message
from delayq.base.errors import ConfigError
from delayq.config import load_settings
from delayq.spark.rows.columns import check_columns
from delayq.spark.writing.report import read_report
from delayq.store import commands
from delayq.store.keys import KEYS, Layout
from tests.spark.conftest import QUEUES
from tests.support.clusters import ClusterUnderTest
from tests.support.servers import ServerUnderTest

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]

FAR = 2_000_000_000_000
Append = Callable[..., None]


@pytest.fixture
def append(valkey: ServerUnderTest) -> Append:
    """Write a DataFrame."""

    def run(frame: Any, **options: str) -> None:
        frame.write.format("delayq").mode("append").options(redisUrl=valkey.url, **options).save()

    return run


@pytest.fixture
def messages(spark: Any, valkey: ServerUnderTest) -> Callable[..., Any]:
    """A DataFrame of what is there."""

    def load(**options: str) -> Any:
        return spark.read.format("delayq").options(redisUrl=valkey.url, **options).load()

    return load


def pool(client: Client) -> int:
    return sum(queue.pool for queue in client.queues())


def test_a_table_is_scheduled_once_however_often_it_is_written(spark: Any, append: Append, client: Client) -> None:
    frame = spark.range(2_000, numPartitions=2).selectExpr(
        "id as order",
        f"{FAR} + id as expect_date",
        "named_struct('order', id, 'at', timestamp'2030-01-01') as body",
        "array(concat('order-', id)) as keys",
        "map('source', 'table') as properties",
    )
    options = {"topic": "orders", "idColumns": "order", "report": "job"}
    append(frame, run="one", **options)
    report = read_report(client, "job")
    assert report.total is not None and (report.total.read, report.total.scheduled) == (2_000, 2_000)
    append(frame.repartition(1), run="two", **options)
    report = read_report(client, "job")
    assert report.total is not None and (report.total.scheduled, report.total.present) == (0, 2_000)
    assert pool(client) == 2_000
    (found,) = client.find("order-7")
    assert found.record is not None
    assert found.record.message(found.id) == Message(
        id=found.id,
        topic="orders",
        keys=("order-7",),
        expect_date=FAR + 7,
        body={"order": 7, "at": "2029-12-31T15:00:00Z"},
        properties={"backfill": "one", "source": "table"},
    )


def test_timestamps_of_every_kind_are_of_the_zone_of_the_session(spark: Any, append: Append, client: Client) -> None:
    noon = 1_909_191_600_000  # 2030-07-02T12:00 in Tokyo
    texts = {
        "zoned": "select 'zoned' id, timestamp'2030-07-02 12:00:00' expect_date",
        "plain": "select 'plain' id, timestamp_ntz'2030-07-02 12:00:00' expect_date",
        "number": f"select 'number' id, {noon}L expect_date",
        "text": "select 'text' id, '2030-07-02T05:00:00+02:00' expect_date",
    }
    for text in texts.values():
        append(spark.sql(text), topic="t")
    assert {id: found.due for id in texts if (found := client.get(id))} == dict.fromkeys(texts, noon)
    midnight = {"day": "date'2030-07-02'", "Decimal": f"cast({noon - 43_200_000} as decimal(38,3))"}
    for id, sql in midnight.items():
        append(
            spark.sql(f"select '{id}' ID, {sql} Expect_Date, map('a', 1.5D) Properties, 3.0 MAX_ATTEMPTS"), topic="t"
        )
    assert {id: found.due for id in midnight if (found := client.get(id))} == dict.fromkeys(midnight, noon - 43_200_000)
    append(spark.sql("select 'interval' id, interval '1' hour delay_time"), topic="t")
    append(spark.sql("select 'level' id, 18 delay_level"), topic="t")
    assert client.get("interval") is not None and client.get("level") is not None


#: What a value of each type becomes in JSON, wherever it is nested.
JSON_OF: Final = {
    "1Y": "1", "1S": "1", "1": "1", "9L": "9", "0.5F": "0.5", "0.5D": "0.5", "1.50BD": "1.50", "'x'": '"x"',
    "X'00ff'": '"AP8="', "true": "true", "null": "null", "date'2030-01-01'": '"2030-01-01"', "time'12:30:00'": '"12:30:00"',
    "timestamp'2030-01-01'": '"2029-12-31T15:00:00Z"', "timestamp_ntz'2030-01-01'": '"2030-01-01T00:00:00"',
    "interval '90' minute": '"PT5400S"', "array()": "[]", "array(1, null)": "[1,null]", "named_struct('a', 1)": '{"a":1}',
    "map(1, 'x')": '{"1":"x"}', "map(date'2030-01-01', map('b', 1))": '{"2030-01-01":{"b":1}}',
}  # fmt: skip
#: A place on a map, as databases keep it.
POINT: Final = "0101000000" + "00" * 16
#: What has none: the type by which the sentence names it.
NO_JSON: Final = {
    "parse_json('1')": "variant", "interval '1' year": "interval year", "make_interval(1, 1)": "interval",
    "map(named_struct('a', 1), 1)": "struct", "map(X'00', 1)": "binary", "map(interval '1' day, 1)": "duration",
    "named_struct('b', 1, 'b', 2)": "has the field b twice", f"st_geomfromwkb(X'{POINT}')": "geometry",
}  # fmt: skip


def test_nested_values_of_every_type_are_json_or_the_column_is_refused_by_name(
    spark: Any, append: Append, client: Client
) -> None:
    from pyspark.ml.linalg import Vectors

    from delayq.spark.rows.types import arrow_schema

    fields = ", ".join(f"'{number}', {sql}" for number, sql in enumerate(JSON_OF))
    inner = f"named_struct({fields})"
    bodies = {"struct": inner, "array": f"array({inner})", "map": f"map('k', {inner})"}
    wanted = "{" + ",".join(f'"{number}":{json}' for number, json in enumerate(JSON_OF.values())) + "}"
    around = {"struct": wanted, "array": f"[{wanted}]", "map": f'{{"k":{wanted}}}'}
    for kind, body in bodies.items():
        append(spark.sql(f"select '{kind}' id, {FAR}L expect_date, {body} body"), topic="t")
        found = client.get(kind)
        assert found is not None and found.record is not None and found.record.payload.decode() == around[kind]
    append(spark.createDataFrame([("udt", FAR, Vectors.dense([1.0]))], ["id", "expect_date", "body"]), topic="t")
    found = client.get("udt")
    assert found is not None and found.record is not None
    assert found.record.payload.decode() == '{"type":1,"size":null,"indices":null,"values":[1.0]}'
    for sql, why in NO_JSON.items():
        for body in (sql, f"named_struct('a', {sql})", f"array({sql})", f"map('k', array({sql}))"):
            frame = spark.sql(f"select 'a' id, {FAR}L expect_date, {body} body")
            with pytest.raises(ConfigError, match=f"body.*{why}"):
                check_columns(arrow_schema(frame.schema), (), "t")
    with pytest.raises(Exception, match=r"body\.a is variant, which no message can have"):
        append(spark.sql(f"select 'a' id, {FAR}L expect_date, named_struct('a', parse_json('1')) body"), topic="t")


def test_a_write_that_cannot_work_is_refused_before_it_begins(
    spark: Any, append: Append, valkey: ServerUnderTest
) -> None:
    for columns, options, complaint in (
        ("'a' id, 1L expect_date, 1 nonsense", {"topic": "t"}, "no message has a field nonsense"),
        ("1L expect_date", {"topic": "t"}, "every row needs its own id"),
        ("'a' id, 1L expect_date", {}, "give a column topic, or the option topic"),
        ("'a' id, 1L expect_date", {"topic": "t", "pasta": "now"}, "option pasta: there is no such option"),
    ):
        with pytest.raises(Exception, match=complaint):
            append(spark.sql(f"select {columns}"), **options)
    writer = spark.sql("select 'a' id, 1L expect_date").write.format("delayq").option("redisUrl", valkey.url)
    with pytest.raises(Exception, match="Append"):
        writer.option("topic", "t").save()
    with pytest.raises(Exception, match=r"use \.mode\('append'\)"):
        writer.option("topic", "t").mode("overwrite").save()
    assert valkey.admin.keys() == []


def test_messages_come_back_as_they_were_written(
    spark: Any, append: Append, messages: Callable[..., Any], valkey: ServerUnderTest, tmp_path: Path
) -> None:
    assert messages().count() == 0
    assert valkey.admin.keys() == []  # a look changes nothing
    client = Client(settings=load_settings(redis_url=valkey.url, queues=QUEUES))
    sent = [
        Message(id="text", topic="a", body="é", expect_date=FAR, tags="t", keys=("k1", "k2"), properties={"p": "v"}),
        Message(id="json", topic="a", body={"n": 1.5}, expect_date=FAR + 1, ordering_key="o", max_attempts=3),
        Message(id="bytes", topic="b", body=b"\0\xff", delay_time=3_600_000, expire_after=10),
    ]
    ids = [client.schedule(message).id for message in sent]
    rows = {row.id: row for row in messages().collect()}
    assert set(rows) == set(ids)
    text = rows["text"]
    assert (text.topic, text.tags, text["keys"], text.body, text.body_type) == ("a", "t", ["k1", "k2"], "é", "text")
    assert (text.properties, text.attempts, text.state, text.ordering_key) == ({"p": "v"}, 0, "scheduled", None)
    assert text.due.timestamp() * 1000 == text.asked_due.timestamp() * 1000 == FAR
    assert rows["bytes"].body == "AP8=" and rows["bytes"].body_type == "base64"

    fields = "id, topic, tags, `keys`, body, body_type, properties, ordering_key, max_attempts, expire_after"
    back = messages().selectExpr(*fields.split(", "), "asked_due as expect_date")
    append(back, report="again")
    again = read_report(client, "again").total
    assert again is not None and (again.scheduled, again.present, again.rejected) == (0, 3, {})
    back.write.parquet(str(tmp_path / "exported"))
    before = back.collect()
    valkey.flush()
    append(spark.read.parquet(str(tmp_path / "exported")), report="again")
    assert sorted(messages().selectExpr(*fields.split(", "), "asked_due as expect_date").collect()) == sorted(before)


def test_messages_are_narrowed_down_by_options_and_by_filters(
    spark: Any, messages: Callable[..., Any], client: Client
) -> None:
    client.schedule_many(Message(id=f"m-{n}", topic=f"t{n % 2}", expect_date=FAR + n) for n in range(400))
    assert messages(topic="t1").count() == 200
    assert messages(dueFrom=str(FAR + 100), dueTo="2033-05-18T03:33:20.150Z", page="7").count() == 50
    assert messages(queues="0,2-3").select("queue").distinct().count() == 3
    with pytest.raises(Exception, match="there is no queue 77; there are 4: 0 to 3"):
        messages(queues="77").count()
    due = "due >= timestamp'2033-05-18 12:33:20.100' and due < timestamp'2033-05-18 12:33:20.150'"
    narrow = f"topic = 't1' and {due} and queue in (0, 2)"
    expected = sorted(messages().where(narrow).select("id").collect())
    with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        messages(pushFilters="true").where(narrow).count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = messages(pushFilters="true").where(narrow)
        assert expected and sorted(frame.select("id").collect()) == expected
        assert frame.rdd.getNumPartitions() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_schedules_each_row_once_across_a_restart(
    spark: Any, client: Client, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    source, checkpoint, rejects = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "rejects"
    source.mkdir()

    def arrive(name: str, *numbers: int) -> None:
        lines = "".join(f'{{"id": "m-{n}", "expect_date": {FAR + n if n % 4 else 10**12}}}\n' for n in numbers)
        (tmp_path / name).write_text(lines)
        (tmp_path / name).rename(source / name)

    def run() -> None:
        stream = spark.readStream.schema("id STRING, expect_date BIGINT").json(str(source))
        writer = stream.writeStream.format("delayq").option("redisUrl", valkey.url).option("topic", "t")
        writer = writer.option("rejects", str(rejects)).option("report", "stream").option("run", "s")
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    arrive("one.json", 0, 1, 2)
    run()
    arrive("two.json", 3, 4, 5)
    run()
    # The commit of the last micro-batch is forgotten, as after a crash before it: the batch comes again.
    commits = sorted(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda p: p.name
    )
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink()
    run()
    assert commits[-1].exists()
    assert pool(client) == 4
    table = pyarrow.parquet.read_table(rejects)
    assert sorted(table["id"].to_pylist()) == ["m-0", "m-4"]
    assert [path.name for path in rejects.iterdir() if path.name.startswith("_")] == []
    total = read_report(client, "stream").total
    assert total is not None and (total.read, total.rejected) == (6, {"past": 2})


def test_a_cluster_and_two_layouts_are_written_to_and_read(spark: Any, cluster: ClusterUnderTest) -> None:
    frame = spark.range(300, numPartitions=2).selectExpr("concat('m-', id) id", f"{FAR} + id expect_date", "'t' topic")
    options = {"redisUrl": cluster.url}
    with Client(settings=load_settings(redis_url=cluster.url, queues=QUEUES)) as client:
        client.context()
    frame.write.format("delayq").mode("append").options(**options, rate="100000", report="r").save()
    with Client(cluster.url) as client:
        client.store.run_all([commands.close(KEYS.queue(queue)) for queue in range(QUEUES)])
        client.store.run(commands.set_layouts(KEYS, (Layout(QUEUES),), (Layout(QUEUES), Layout(2, QUEUES))))
    frame.unionAll(frame.selectExpr("concat('n-', id) id", "expect_date", "topic")).write.format("delayq").mode(
        "append"
    ).options(**options, report="r").save()
    table = spark.read.format("delayq").options(**options).load()
    assert table.count() == table.select("id").distinct().count() == 600
    assert table.where(f"queue >= {QUEUES}").count() == 300
