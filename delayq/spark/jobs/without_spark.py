"""A backfill without Spark: a table of this machine is read by Arrow, and goes the way of Spark's tasks in this process.

What Spark makes of a file is made of it here, so that whoever repeats a run by the other way schedules nothing twice:
texts of CSV stay texts, JSON's numbers are numbers, its objects have their names in order, and a timestamp that Spark
wrote as INT96 is an instant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from delayq.config import Settings
from delayq.errors import ConfigError
from delayq.spark.jobs.forecast import Forecast, digests, look
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows.columns import check_columns
from delayq.spark.rows.tables import WHOLE, Table, taken
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.handed import Handed
from delayq.spark.writing.task import Job, Place, RowsRejected, windows

__all__ = ["LocalTable"]

#: Options of Spark's reader that are known here.
_SEPARATORS: Final = ("sep", "delimiter")


class LocalTable:
    """The rows of a file, or of the files of a folder, under the names of messages' fields; raises ConfigError."""

    def __init__(self, table: Table, options: WriteOptions, settings: Settings) -> None:
        self._options = options
        self._handed = Handed.of(settings)
        self._rows = _mapped(_read(table), table)
        check_columns(self._rows.schema, options.id_columns, options.topic)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        names: list[str] = self._rows.schema.names
        return names

    def _batches(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self._rows.to_batches()
        return found

    def forecast(self) -> Forecast:
        """Look at every row."""
        return look(self._batches(), self._options, self._handed, self._here())

    def twice(self) -> int:
        """How many ids stand in several rows that are different messages."""
        first: dict[str | None, bytes] = {}
        differ: set[str | None] = set()
        for batch in windows(self._batches()):
            for id, digest in digests(batch, self._options, self._here()):
                if first.setdefault(id, digest) != digest:
                    differ.add(id)
        return len(differ)

    def schedule(self) -> Counts:
        """Schedule the rows; what became of them."""
        job = Job(self._options, self._handed)
        job.begin(stream=False)
        try:
            done = job.write(self._batches(), Place(zone=_zone_of_this_machine()))
        except BaseException:
            job.abort()
            raise
        with suppress(RowsRejected):  # nobody asked for a folder of them: their counts are the answer
            job.commit([done])
        return done.counts

    def _here(self) -> tzinfo:
        return zone(self._options.time_zone or _zone_of_this_machine())


def _zone_of_this_machine() -> str:
    """Its name, as Java takes it for the zone of a session: that of TZ, or of /etc/localtime."""
    if name := os.environ.get("TZ", "").removeprefix(":"):
        return name
    try:
        return os.readlink("/etc/localtime").partition("zoneinfo/")[2] or "UTC"
    except OSError:
        return "UTC"


# -- reading -------------------------------------------------------------------------------------------------------------


def _read(table: Table) -> pa.Table:
    readers: dict[str, Callable[[Path, Table], pa.Table]] = {"csv": _csv, "json": _json, "parquet": _parquet}
    reader = readers.get(table.format)
    if reader is None or "://" in table.source:
        raise ConfigError(
            "--local reads files of this machine, as csv, json (an object a line) or parquet; without it Spark reads "
            "other tables, too"
        )
    for name in table.options:
        if table.format != "csv" or name not in (*_SEPARATORS, "escape"):
            raise ConfigError(
                f"--local knows no option {name} of a reader: for csv it knows sep and escape; Spark knows the others"
            )
    parts = [reader(path, table) for path in _files(Path(table.source).expanduser())]
    try:
        whole: pa.Table = pa.concat_tables(parts, promote_options="permissive")
        return whole
    except pa.ArrowException as error:
        raise ConfigError(f"the files of {table.source} have different columns: {error}") from None


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a folder, but for the hidden ones that Spark passes over, too."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"there is no file {path}")
    found = sorted(one for one in path.iterdir() if not one.name.startswith(("_", ".")))
    if folder := next((one for one in found if one.is_dir()), None):
        raise ConfigError(f"{folder} is a folder in the table's: --local reads no partitioned tables, Spark does")
    if not found:
        raise ConfigError(f"{path} has no files in it")
    return found


def _csv(path: Path, table: Table) -> pa.Table:
    """All texts; nothing between two separators is null, too few values are, and too many are left out."""
    separator = next((table.options[name] for name in _SEPARATORS if name in table.options), ",")
    escape = table.options.get("escape", "\\")
    if len(separator) != 1 or len(escape) != 1 or separator in ('"', escape):
        raise ConfigError("--option: sep and escape are one character each, and not the same")
    rows: list[list[str | None]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line := line.removesuffix("\n"):
                    try:
                        rows.append(_cells(line, separator, escape))
                    except ValueError as error:
                        raise ConfigError(f"{path}: line {number} {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as csv: {error}") from None
    if not rows:
        raise ConfigError(f"{path} is empty; its first line names the columns")
    head, *rows = rows
    names = [name if name is not None else f"_c{place}" for place, name in enumerate(head)]
    columns = [[row[place] if place < len(row) else None for row in rows] for place in range(len(names))]
    return pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], names)


def _cells(line: str, separator: str, escape: str) -> list[str | None]:
    """The values of a line; raises ValueError for what readers of CSV take for different things."""
    cells: list[str | None] = []
    at = 0
    while True:
        if line.startswith('"', at):
            value, at = _quoted(line, at + 1, escape)
            if at < len(line) and line[at] != separator:
                hint = "" if escape == '"' else "; if it writes a quote twice, say --option 'escape=\"'"
                raise ValueError(f"has a quote within a quoted value that nothing escapes{hint}")
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            value, at = line[at:end], end
        cells.append(value or None)
        if at >= len(line):
            return cells
        at += 1


def _quoted(line: str, at: int, escape: str) -> tuple[str, int]:
    """A value up to its closing quote, and where it goes on behind that."""
    value = []
    while at < len(line):
        one, next_one = line[at], line[at + 1 : at + 2]
        if one == escape and next_one and next_one in ('"', escape):
            value.append(next_one)
            at += 2
        elif one == '"':
            return "".join(value), at + 1
        else:
            value.append(one)
            at += 1
    raise ValueError("ends within a quoted value; a value is one line")


def _json(path: Path, _table: Table) -> pa.Table:
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ConfigError(f"{path}: line {number} is no JSON object; each line is one")
                rows.append(row)
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON, an object a line: {error}") from None
    names = sorted({name for row in rows for name in row})
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    """Of one type; where they have several, as their JSON."""
    try:
        found = pa.infer_type(values)
        return pa.array(values, pa.string() if pa.types.is_null(found) else _in_order(found))
    except (pa.ArrowException, OverflowError):
        texts = [
            one if one is None or isinstance(one, str) else json.dumps(one, separators=(",", ":"), ensure_ascii=False)
            for one in values
        ]
        return pa.array(texts, pa.string())


def _in_order(type: pa.DataType) -> pa.DataType:
    """The same type, with the names of objects in order."""
    if pa.types.is_struct(type):
        fields = sorted((type.field(number) for number in range(type.num_fields)), key=lambda field: str(field.name))
        return pa.struct([pa.field(field.name, _in_order(field.type)) for field in fields])
    if pa.types.is_list(type):
        return pa.list_(_in_order(type.value_type))
    return pa.string() if pa.types.is_null(type) else type


def _parquet(path: Path, _table: Table) -> pa.Table:
    try:
        file = pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
        found = file.read()
        columns = (file.schema.column(number) for number in range(len(file.schema)))
        instants = {column.path for column in columns if column.physical_type == "INT96"}
        return found.cast(pa.schema([pa.field(one.name, _type(one.type, one.name, instants)) for one in found.schema]))
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path} cannot be read as parquet: {error}") from None


def _type(type: pa.DataType, path: str, instants: set[str]) -> pa.DataType:
    """The type that Spark gives to a column: an INT96 is an instant, and nothing is a dictionary."""
    if pa.types.is_dictionary(type):
        return type.value_type
    if pa.types.is_struct(type):
        fields = (type.field(number) for number in range(type.num_fields))
        return pa.struct([pa.field(one.name, _type(one.type, f"{path}.{one.name}", instants)) for one in fields])
    if pa.types.is_list(type):
        return pa.list_(_type(type.value_type, f"{path}.list.element", instants))
    return pa.timestamp("us", tz="UTC") if path in instants else type


# -- columns -------------------------------------------------------------------------------------------------------------


def _mapped(found: pa.Table, table: Table) -> pa.Table:
    """Only what is a field of messages, under the fields' names, and the columns that ids are made of."""
    columns, others = taken(found.schema.names, table)
    fields = {name: _field(name, found.column(column)) for name, column in columns.items()}
    fields |= {name: found.column(column) for name, column in others.items()}
    for name, value in (("delay_time", table.delay_time), ("delay_level", table.delay_level)):
        if value is not None:
            fields[name] = pa.repeat(pa.scalar(value, pa.int64()), found.num_rows)
    return pa.table(fields).combine_chunks()


def _field(name: str, column: pa.ChunkedArray) -> Any:
    """A column as a field: texts, as a CSV file has them, become what the field is; so do days.

    What cannot be read becomes what no message may have, so that the row is rejected.
    """
    type = column.type
    if pa.types.is_string(type) and name in WHOLE:
        return pa.array([_whole(text) for text in column.to_pylist()], pa.int64())
    if pa.types.is_string(type) and name == "properties":
        return pa.array([_pairs(text) for text in column.to_pylist()], pa.map_(pa.string(), pa.string()))
    if pa.types.is_struct(type) and name == "properties":
        return pa.array([_texts(pairs) for pairs in column.to_pylist()], pa.map_(pa.string(), pa.string()))
    if pa.types.is_date(type) and name == "expect_date":
        return pc.cast(column, pa.timestamp("us"))
    return column


def _whole(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return -1
    return number if abs(number) < 2**63 else -1


def _pairs(text: str | None) -> list[tuple[str, str]] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return _texts(found) if isinstance(found, dict) else [("", "")]


def _texts(pairs: Mapping[str, Any] | None) -> list[tuple[str, str]] | None:
    if pairs is None:
        return None
    given: Iterator[tuple[str, Any]] = ((name, value) for name, value in pairs.items() if value is not None)
    return [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in given]
