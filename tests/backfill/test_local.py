"""A backfill without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as some

from delayq import Message
from delayq.base.errors import ConfigError, InvalidMessage
from delayq.config import load_settings
from delayq.spark.jobs.without_spark import LocalTable, _csv
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows.rows import messages_of
from delayq.spark.rows.tables import Table
from delayq.spark.writing.rejects import RejectsFile
from tests.backfill.conftest import ORDERS
from tests.cli.conftest import Cli, Given

FAR = 2_000_000_000_000
#: What is special in CSV, and what is not.
CELL = some.text(some.sampled_from([*'a1 "\\,;\t#{}^', "é", "\u2003", "\x00", "\x0b", "\u2028", "\ufeff"]), max_size=5)
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
    bodies = ["cancel if unpaid", "a, b", "C:\\dir", 'a"b', "x", "cancel if unpaid"]
    assert [one.body for one in found] == bodies
    of_json = local(Table(source=str(lines), format="json", topic="orders"))
    by_id = {one.id: one for one in of_json if isinstance(one, Message)}
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
    assert ran.sentence() == "this is run r1; delayq backfill undo r1 cancels it."
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
    (file,) = folder.iterdir()
    assert file.suffix == ".csv"
    head, first, second = file.read_text().splitlines()
    assert head == "order,due,note,level,props,plain,reject_file,reject_line,reject_reason,reject_detail"
    assert first.startswith('7003,soon,,x,nonsense,"she said \\"no\\"",orders.csv,4,due,"due: use a date such as ')
    assert second == '7004,,ü ☃,-1,{},"\\\\",orders.csv,9,due,due: is null: every row needs its time'


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a file of the format that the name of its folder says."""
    path.mkdir()
    if path.name == "json":
        (path / "r.json").write_text("\n".join(["", *map(json.dumps, rows), "{"]))
    elif path.name == "csv":
        lines = [";".join(map(str, row.values())) for row in rows]
        (path / "r.csv").write_text("\n".join([";".join(rows[0]), "", *lines]))
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path / "r.parquet")
    return path


def corrected(folder: Path) -> list[dict[str, Any]]:
    """Where the refused rows stand and why they were refused; then their mistakes are corrected in the files."""
    (file,) = folder.iterdir()
    if file.suffix == ".parquet":
        table = pyarrow.parquet.read_table(file)
        rows: list[dict[str, Any]] = table.to_pylist()
        wrong = {"soon": str(FAR), "a b": "ab"}
        for name in ("nr", "when"):
            column = pa.array([wrong.get(one, one) for one in table[name].to_pylist()])
            table = table.set_column(table.schema.get_field_index(name), name, column)
        pyarrow.parquet.write_table(table, file)
        return rows
    text = file.read_text()
    file.write_text(text.replace("soon", str(FAR)).replace("a b", "ab"))
    if file.suffix == ".json":
        return [json.loads(line) for line in text.splitlines()]
    head, *lines = [line.split(";") for line in text.splitlines()]
    return [dict(zip(head, line, strict=True)) for line in lines]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_refused_rows_are_like_the_table_and_the_same_command_takes_them_once_they_are_corrected(
    cli: Cli, given: Given, tmp_path: Path, form: str
) -> None:
    check_correcting(cli, given, tmp_path, form, "--local")


def check_correcting(cli: Cli, given: Given, tmp_path: Path, form: str, *more: str) -> None:
    """Refused rows are like the table. Once they are corrected, the same command schedules them, and no row twice."""
    rows: list[dict[str, Any]] = [
        {"nr": "fine", "when": str(FAR), "note": "1", "other": "kept"},
        {"nr": "late", "when": "soon", "note": '2 "quoted" \\', "other": "kept"},
        {"nr": "a b", "when": str(FAR), "note": "3", "other": "kept"},
        {"nr": "gone", "when": str(10**12), "note": "4", "other": "kept"},
    ]
    words = [
        "--format",
        form,
        "--topic",
        "orders",
        "--id-column",
        "nr",
        "--expect-date-column",
        "when",
        "--map",
        "note=body",
    ]
    words += [*more, "--json", *(["--option", "sep=;"] if form == "csv" else [])]
    ran = cli("backfill", write_rows(tmp_path / form, rows), *words, "--rejects", tmp_path / "rejects")
    bad_line = {"id": 1} if form == "json" else {}
    assert json.loads(ran.out)["reasons"] == {"due": 1, "id": 1, "past": 1} | ({"id": 2} if bad_line else {})
    lines = {"csv": [4, 5, 6], "json": [3, 4, 5], "parquet": [2, 3, 4]}[form]
    assert (
        f"repeat the command with {tmp_path}/rejects in place of {tmp_path}/{form}; the first rejected rows: r.{form}, line "
        in ran.err
    )
    found = corrected(tmp_path / "rejects")
    assert [(one["nr"], int(one["reject_line"]), one["reject_reason"], one["other"]) for one in found[:3]] == [
        ("late", lines[0], "due", "kept"), ("a b", lines[1], "id", "kept"), ("gone", lines[2], "past", "kept"),
    ]  # fmt: skip
    assert {one["reject_file"] for one in found} == {f"r.{form}"}
    details = [one["reject_detail"] for one in found[:3]]
    assert details[0].lstrip('"').startswith("when: use a date") and details[1].lstrip('"').startswith("nr: ")
    assert details[2] == "when: the time has passed"
    if bad_line:
        assert found[3] == {
            "reject_text": "{", "reject_file": "r.json", "reject_line": 6, "reject_reason": "id",
            "reject_detail": "nr: is null: every row needs its own id",
        }  # fmt: skip
    again = json.loads(cli("backfill", tmp_path / "rejects", *words, "--rejects", tmp_path / "more").out)
    assert (again["scheduled"], again["alreadyThere"], again["rejected"]) == (2, 0, 1 + len(bad_line))
    assert {one["nr"] for one in corrected(tmp_path / "more") if "nr" in one} == {"gone"}
    once_more = json.loads(cli("backfill", tmp_path / "rejects", *words).out)
    assert (once_more["scheduled"], once_more["alreadyThere"]) == (0, 2)
    message = given.client.get("late")
    assert message is not None and message.record is not None and message.record.body == '2 "quoted" \\'


@settings(max_examples=300, deadline=None)
@given_(
    some.lists(some.lists(CELL, min_size=3, max_size=3), min_size=1),
    some.sampled_from([{}, {"sep": ";"}, {"delimiter": "\t", "escape": '"'}, {"escape": "^"}]),
)
def test_cells_that_are_written_are_read_as_they_were(rows: list[list[str]], options: dict[str, str]) -> None:
    table = Table(source="", format="csv", options=options)
    named = pa.Table.from_pylist([{"id": one[0], "a": one[1] or None, "b": one[2] or None} for one in rows])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.csv")
        file = RejectsFile(path.open("wb"), path.name, table.rejects)
        (batch,) = named.to_batches()
        file.add(batch, range(len(rows)), ["x"] * len(rows), [" , why; "] * len(rows))
        file.close()
        found = _csv([path], table, False)
    assert found.select(["a", "b"]).to_pylist() == named.select(["a", "b"]).to_pylist()


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
    for due, said in ((FAR, ""), (date(2033, 5, 18), "is not a time zone of this machine")):
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
    assert "Redis is unreachable" in ran.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--format", "jdbc"), "--local reads files of this machine"),
        (("--format", "csv", "--option", "inferSchema=true"), "--local does not support the reader option inferSchema"),
        (("--format", "csv", "--master", "local[2]"), "remove --master and --conf"),
        (("--format", "parquet"), " as parquet: "),
        (("--format", "json"), " as JSON: "),
        (("--format", "csv", "--id-column", "nr"), "unknown column nr"),
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
        ('1,"two', "line 2 ends within a quoted value; a value must be one line"),
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
    with pytest.raises(ConfigError, match="reads no partitioned tables, but Spark does"):
        local(table)
