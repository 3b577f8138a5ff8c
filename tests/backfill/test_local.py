"""A backfill without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest

from delayq import Message
from delayq.config import load_settings
from delayq.errors import ConfigError, InvalidMessage
from delayq.spark.jobs.without_spark import LocalTable
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows.rows import messages_of
from delayq.spark.rows.tables import Table
from tests.backfill.conftest import ORDERS
from tests.cli.conftest import Cli, Given

FAR = 2_000_000_000_000
CSV = """\
order,due,note,level,props,plain
7001,2033-05-18T03:33:20Z,cancel if unpaid,,,a
7002,2000000000000,"a, b",3,"{\\"a\\": \\"1\\", \\"b\\": 2}",b
7003,soon,"",x,nonsense,"she said \\"no\\""
7005,2000000000001,C:\\dir,,,"C:\\\\dir"
7006,2000000000002,a"b

7008,2000000000003,x,,,d,too,many
7004,,ü ☃,-1,{},\\
7001,2033-05-18T03:33:20Z,cancel if unpaid,,,a
"""
JSON = [
    {"id": "a", "expect_date": FAR, "body": {"b": 1, "a": {"z": None, "y": [1, 2]}}, "keys": ["k1", "k2"]},
    {"id": "b", "expect_date": FAR + 1, "body": {"c": 2.5}, "properties": {"p": "1"}, "max_attempts": 3},
    {"id": "c", "expect_date": FAR + 2, "tags": "paid", "ordering_key": "shop-1"},
    {"id": "d", "expect_date": None, "note": "left out"},
]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_text("\n".join(map(json.dumps, JSON)) + "\n\n")
    return path


def table_of_csv(path: Path) -> Table:
    return Table(
        source=str(path),
        format="csv",
        topic="orders",
        id_columns=("order", "plain"),
        columns={"expect_date": "due", "body": "note", "max_attempts": "level", "properties": "props"},
    )


def messages(rows: Any, table: Table) -> list[Any]:
    options = WriteOptions(topic=table.topic, id_columns=table.id_columns)
    found = [one for batch in rows for one in messages_of(batch, options, lambda: zone("UTC"))]
    return [(one.field, one.reason) if isinstance(one, InvalidMessage) else comparable(one) for one in found]


def comparable(message: Message) -> Message:
    """The message with its nested values as one text: what is JSON already compares by nothing else."""
    if isinstance(message.body, (str, bytes)):
        return message
    return msgspec.structs.replace(message, body=json.loads(msgspec.json.encode(message.body)))


def local(table: Table) -> list[Any]:
    options = WriteOptions(topic=table.topic, id_columns=table.id_columns)
    return messages(LocalTable(table, options, load_settings())._rows.to_batches(), table)


def test_csv_and_json_become_messages(csv: Path, lines: Path) -> None:
    found = [one for one in local(table_of_csv(csv)) if isinstance(one, Message)]
    bodies = ["cancel if unpaid", "a, b", "C:\\dir", 'a"b', "x", "ü ☃", "cancel if unpaid"]
    assert [one.body for one in found] == bodies
    by_id = {one.id: one for one in local(Table(source=str(lines), format="json", topic="orders"))}
    assert by_id["b"].body == {"a": None, "b": None, "c": 2.5}


def test_each_row_becomes_a_message_and_the_same_again_schedules_nothing(
    cli: Cli, given: Given, tmp_path: Path
) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    rows = 3_000
    table = pa.table(
        {
            "nr": [f"order-{number}" for number in range(rows)],
            "due_at": [due + timedelta(seconds=number) for number in range(rows)],
            "text": [f"order {number}" for number in range(rows)],
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "orders.parquet")
    ran = cli("backfill", tmp_path / "orders.parquet", *ORDERS, "--run", "r1", "--local", "--json")
    counts = {"read": rows, "scheduled": rows, "alreadyThere": 0, "skipped": 0, "rejected": 0}
    assert (ran.code, json.loads(ran.out)) == (0, {"run": "r1", **counts, "reasons": {}, "rejects": None})
    assert ran.sentence() == "this is run r1: delayq backfill undo r1 takes it back."
    found = given.client.get("order-7")
    assert found is not None and found.record is not None
    message = found.record.message("order-7")
    assert (message.topic, message.body, message.properties) == ("orders.unpaid", "order 7", {"backfill": "r1"})
    again = json.loads(cli("backfill", tmp_path / "orders.parquet", *ORDERS, "--local", "--json").out)
    assert (again["scheduled"], again["alreadyThere"]) == (0, rows)


def test_rejected_rows_have_their_reasons_and_go_into_a_folder(cli: Cli, given: Given, csv: Path) -> None:
    words = ["--format", "csv", "--topic", "orders", "--id-columns", "order,plain", "--expect-date-column", "due"]
    words += ["--map", "props=properties", "--local"]
    folder = csv.parent / "rejected"
    ran = cli("backfill", csv, *words)
    assert (ran.code, dict(ran.rows)["rejected: due"], "--rejects" in ran.err) == (1, "2", True)
    ran = cli("backfill", csv, *words, "--rejects", folder, "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["reasons"] == {"due": 2}
    found = pyarrow.parquet.read_table(folder)
    assert found["order"].to_pylist() == ["7003", "7004"]
    assert found["reject_reason"].to_pylist() == ["due", "due"]
    assert [path.name for path in folder.iterdir() if path.name.startswith("_")] == []


def test_a_dry_run_schedules_nothing_and_strict_nothing_unless_all_is_well(cli: Cli, given: Given, lines: Path) -> None:
    words = ("backfill", lines, "--format", "json", "--topic", "orders", "--local")
    shape = json.loads(cli(*words, "--dry-run", "--json").out)
    assert (shape["dryRun"], shape["read"], shape["scheduled"], shape["reasons"]) == (True, 4, 3, {"due": 1})
    ran = cli(*words, "--strict")
    assert ran.code == 1
    assert "nothing was scheduled" in ran.err
    assert given.client.get("a") is None


def test_ids_that_stand_in_different_rows_are_told_before(cli: Cli, given: Given, tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    rows = [
        {"id": id, "expect_date": FAR, "body": body} for id, body in (("a", "1"), ("a", "2"), ("b", "1"), ("b", "1"))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    shape = json.loads(cli("backfill", path, "--format", "json", "--topic", "t", "--local", "--dry-run", "--json").out)
    assert shape["reasons"] == {"conflict": 1}


def test_the_same_row_twice_is_no_conflict_whatever_its_body_is(cli: Cli, given: Given, tmp_path: Path) -> None:
    path = tmp_path / "twice.jsonl"
    bodies = ('{"n": 12345678901234567890}', '{"n":  12345678901234567890}', '{"n": 1}')
    for row, body in (("a", bodies[0]), ("a", bodies[1]), ("b", bodies[0]), ("b", bodies[2])):
        with path.open("a") as file:
            file.write(json.dumps({"id": row, "expect_date": FAR, "body": body, "body_type": "json"}) + "\n")
    shape = json.loads(cli("backfill", path, "--format", "json", "--topic", "t", "--local", "--dry-run", "--json").out)
    assert shape["reasons"] == {"conflict": 1}


def test_json_lines_may_have_different_properties_and_lines_that_are_none(
    cli: Cli, given: Given, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = ['{"ID": "a", "expect_date": 2000000000000, "properties": {"p": 1}, "keys": ["k", null]}', "{", ""]
    rows += ['{"ID": "b", "expect_date": 2000000000000, "properties": {"q": true}}', "[]", '{"expect_date": 1.5}']
    path.write_text("\n".join(rows[:5]))
    words = ("backfill", path, "--format", "json", "--topic", "t", "--local", "--json")
    for more in (("--dry-run",), ("--strict",), ()):
        shape = json.loads(cli(*words, *more).out)
        assert (shape["read"], shape["reasons"]) == (3, {"id": 1, "keys": 1}), more
    found = given.client.get("b")
    assert found is not None and found.record is not None and found.record.message("b").properties["q"] == "true"
    path.write_text("\n".join(rows))  # one value makes another type of the column
    assert "the column expect_date is double" in cli(*words, "--dry-run").err


@pytest.mark.parametrize("zone", ["Asia/Tokyo", ":Asia/Tokyo", ":/usr/share/zoneinfo/Asia/Tokyo"])
def test_a_date_begins_in_the_zone_of_the_machine(
    cli: Cli, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    path = tmp_path / "dates.parquet"
    pyarrow.parquet.write_table(pa.table({"id": ["a"], "expect_date": [date(2033, 5, 18)]}), path)
    words = ("backfill", str(path), "--local", "--topic", "t")
    assert json.loads(cli(*words, "--dry-run", "--json").out)["buckets"][0]["dueFrom"] == "2033-05-17T15:00:00.000Z"
    cli(*words)
    found = given.client.get("a")
    assert found is not None and found.due == 1_999_954_800_000


@pytest.mark.parametrize("words", [("--dry-run",), ("--strict",), ()])
def test_only_dates_need_the_zone_of_the_machine(
    cli: Cli, given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    path = tmp_path / "dates.parquet"
    for due, said in ((FAR, ""), (date(2033, 5, 18), "is no time zone that this machine knows")):
        pyarrow.parquet.write_table(pa.table({"id": ["a"], "expect_date": [due]}), path)
        ran = cli("backfill", str(path), "--local", "--topic", "t", *words)
        assert (ran.code, said in ran.err) == (2 if said else 0, True), ran.err


def test_it_needs_no_spark(csv: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None\n"
        "from delayq.cli import main\n"
        f"sys.exit(main(['backfill', {str(csv)!r}, '--local', '--format', 'csv', '--redis-url', 'redis://127.0.0.1:1/0',"
        " '--topic', 'orders', '--id-columns', 'order', '--expect-date-column', 'due']))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Redis is away" in ran.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--format", "jdbc"), "--local reads files of this machine"),
        (("--format", "csv", "--option", "inferSchema=true"), "--local knows no option inferSchema"),
        (("--format", "csv", "--master", "local[2]"), "leave --master and --conf out"),
        (("--format", "parquet"), "cannot be read as parquet"),
        (("--format", "json"), "cannot be read as JSON"),
        (("--format", "csv", "--id-column", "nr"), "there is no column nr"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(cli: Cli, given: Given, csv: Path, words: tuple[str, ...], why: str) -> None:
    ids = () if "--id-column" in words else ("--id-columns", "order")
    ran = cli("backfill", csv, "--topic", "orders", *ids, "--expect-date-column", "due", "--local", *words)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.sentence()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            '1,"say ""hi"" you"',
            "line 2 has a quote within a quoted value that nothing escapes; if it writes a quote twice",
        ),
        ('1,"two', "line 2 ends within a quoted value; a value is one line"),
    ],
)
def test_what_readers_of_csv_take_for_different_things_is_refused(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(f'id,body\n{line}\nlines"\n')
    with pytest.raises(ConfigError, match=why):
        local(Table(source=str(path), format="csv", topic="orders", delay_time=1))


def test_with_an_option_a_quote_may_be_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text('id;body\n1;"say ""hi"" you\\"\n')
    options = {"sep": ";", "escape": '"'}
    (one,) = local(Table(source=str(path), format="csv", topic="orders", delay_time=1, options=options))
    assert (one.id, one.body) == ("1", 'say "hi" you\\')


def test_a_folder_is_read_file_by_file_and_a_partitioned_one_refused(tmp_path: Path, csv: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    for number in range(2):
        (folder / f"part-{number}.csv").write_text(CSV)
    (folder / "_SUCCESS").write_text("")
    table = table_of_csv(folder)
    assert len(local(table)) == 16
    (folder / "day=1").mkdir()
    with pytest.raises(ConfigError, match="reads no partitioned tables, Spark does"):
        local(table)
