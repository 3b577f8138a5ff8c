"""A backfill without Spark: a table of this machine is read by Arrow, and handled like in Spark's tasks, in this
process.

This module reads a file as Spark does, so that a run that is repeated with the other one schedules nothing twice. Texts of
CSV stay texts, and a timestamp that Spark wrote as INT96 is an instant. JSON and the meaning of columns have the same code
with Spark and without (`json_lines`, `columns`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from delayq.base.errors import ConfigError
from delayq.base.progress import Progress
from delayq.config import Settings
from delayq.spark.jobs.forecast import Forecast, digests, look
from delayq.spark.options import WriteOptions, zone
from delayq.spark.rows import csv_lines, json_lines
from delayq.spark.rows.columns import check_columns, no_message
from delayq.spark.rows.origin import CARRIED, FILE, LINE, OWN, ROW
from delayq.spark.rows.tables import Table, carried, no_json, taken
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.handed import Handed
from delayq.spark.writing.task import Job, Place, RowsRejected, windows

#: The ends of lines in Spark's reader of texts.
_ENDS: Final = re.compile(rb"\r\n|\r|\n")


class LocalTable:
    """The rows of a file, or of the files of a folder, with columns named like messages' fields. Raises ConfigError."""

    def __init__(self, table: Table, options: WriteOptions, settings: Settings, api: str = "") -> None:
        self._options = options
        self._handed = Handed.of(settings, api)
        self._rows = _mapped(_read(table, rows=bool(options.rejects)), table)
        check_columns(self._rows.schema, options.id_columns, options.topic)

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [name for name in self._rows.schema.names if name not in CARRIED]

    def _batches(self) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = self._rows.to_batches()
        return found

    def _followed(self, what: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows in pieces, one after the other, and show the progress."""
        with Progress(what, "rows") as progress:
            done, total = 0, self._rows.num_rows
            for batch in windows(self._batches()):
                progress.count(done, total)
                yield batch
                done += batch.num_rows

    def forecast(self) -> Forecast:
        """Check every row."""
        return look(self._followed("checking the rows"), self._options, self._handed, self._here)

    def twice(self) -> int:
        """Return the number of ids that repeat in rows with different messages."""
        first: dict[str | None, bytes] = {}
        differ: set[str | None] = set()
        for batch in self._followed("searching for repeated ids"):
            for id, digest in digests(batch, self._options, self._here):
                if first.setdefault(id, digest) != digest:
                    differ.add(id)
        return len(differ)

    def schedule(self) -> Counts:
        """Schedule the rows and return their outcome."""
        job = Job(self._options, self._handed)
        job.begin(stream=False)
        try:
            done = job.write(self._followed("scheduling"), Place(zone=_zone_of_this_machine()))
        except BaseException:
            job.abort()
            raise
        with suppress(RowsRejected):  # without a folder, their counts are the answer
            job.commit([done])
        return done.counts

    def _here(self) -> tzinfo:
        if self._options.time_zone:
            return zone(self._options.time_zone)
        try:
            return zone(_zone_of_this_machine())
        except ConfigError as error:
            raise ConfigError(f"TZ, the zone of times without one: {error}") from None


def _zone_of_this_machine() -> str:
    """Return the name that Java uses for the zone of a session: that of TZ, which may be a file, or of /etc/localtime."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if name and not name.startswith("/"):
        return name
    found = str(Path(name or "/etc/localtime").resolve()).partition("zoneinfo/")[2]
    return found or ("UTC" if name in ("", "/etc/localtime") else name)


# -- reading -------------------------------------------------------------------------------------------------------------


def _read(table: Table, *, rows: bool) -> pa.Table:
    """Return the table, with the place of each row; with `rows`, also the row itself."""
    readers: dict[str, Callable[[Sequence[Path], Table, bool], pa.Table]] = {
        "csv": _csv, "json": _json, "parquet": _parquet,
    }  # fmt: skip
    reader = readers.get(table.format)
    if reader is None or "://" in table.source:
        raise ConfigError(
            "--local reads files of this machine: csv, json (one object per line) or parquet; use Spark for "
            "other tables"
        )
    for name in table.options:
        if table.format != "csv" or name not in csv_lines.OPTIONS:
            raise ConfigError(f"--local does not support the reader option {name}; for csv, it supports sep and escape")
    return reader(_files(Path(table.source).expanduser()), table, rows)


def _beside(found: pa.Table, path: Path, lines: Sequence[int], row: pa.Array | None) -> pa.Table:
    """Return a table of one file without columns of an earlier refusal, with the place of each row and the row itself."""
    columns = {name: found.column(name) for name in found.schema.names if name.lower() not in OWN}
    beside = {FILE: pa.repeat(pa.scalar(path.name), len(lines)), LINE: pa.array(lines, pa.int64())}
    return pa.table(columns | beside | ({} if row is None else {ROW: row}))


def _structs(found: pa.Table) -> pa.Array:
    """Return each row of a table as one value."""
    kept = [place for place, name in enumerate(found.schema.names) if name.lower() not in OWN]
    fields = [found.schema.field(place) for place in kept]
    return pa.StructArray.from_arrays([found.column(place).combine_chunks() for place in kept], fields=fields)


def _joined(parts: Sequence[pa.Table], source: str) -> pa.Table:
    """The files of a folder together. A column that a file does not have is null there."""
    try:
        whole: pa.Table = pa.concat_tables(parts, promote_options="permissive")
        return whole
    except pa.ArrowException as error:
        raise ConfigError(f"the files of {source} have different columns: {error}") from None


def _files(path: Path) -> list[Path]:
    """Return the file itself, or those of a folder, except hidden ones, which Spark ignores too."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"the file {path} does not exist")
    found = sorted(one for one in path.iterdir() if not one.name.startswith(("_", ".")))
    if folder := next((one for one in found if one.is_dir()), None):
        raise ConfigError(f"{folder} is a folder in the table's: --local reads no partitioned tables, but Spark does")
    if not found:
        raise ConfigError(f"{path} has no files in it")
    return found


def _csv(paths: Sequence[Path], table: Table, rows: bool) -> pa.Table:
    return _joined([_csv_file(path, table, rows) for path in paths], table.source)


def _csv_file(path: Path, table: Table, with_rows: bool) -> pa.Table:
    """Return all texts. Nothing between two separators is null, missing values are null, and extra ones are ignored."""
    separator, escape = csv_lines.dialect(table.options)
    rows: list[list[str | None]] = []
    places: list[int] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not csv_lines.is_blank(line := line.removesuffix("\n")):
                    try:
                        rows.append(csv_lines.cells(line, separator, escape))
                        places.append(number)
                    except ValueError as error:
                        raise ConfigError(f"{path}: line {number} {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path} as csv: {error}") from None
    if not rows:
        raise ConfigError(f"{path} is empty; its first line must have the names of the columns")
    head, *rows = rows
    names = csv_lines.names_of(head)
    columns = [[row[place] if place < len(row) else None for row in rows] for place in range(len(names))]
    found = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], names)
    return _beside(found, path, places[1:], _structs(found) if with_rows else None)


def _json(paths: Sequence[Path], table: Table, with_rows: bool) -> pa.Table:
    """Read all files together, because the type of a column follows from all its values."""
    try:
        files = [(path, _ENDS.split(path.read_bytes())) for path in paths]
    except OSError as error:
        raise ConfigError(f"cannot read {table.source} as JSON: {error}") from None
    shape = json_lines.shape_of(line for _, lines in files for line in lines)
    if shape.kind == "null":
        raise no_json(table.source)
    parts = []
    for path, lines in files:
        found = json_lines.batch_of(lines, shape)
        texts = pa.array(found.texts, pa.binary()) if with_rows else None
        parts.append(_beside(pa.Table.from_batches([found.batch]), path, [line + 1 for line in found.lines], texts))
    return pa.concat_tables(parts)


def _parquet(paths: Sequence[Path], table: Table, with_rows: bool) -> pa.Table:
    """Return the used columns, with the types that Spark gives them."""
    files = [_opened(path) for path in paths]
    names = dict.fromkeys(name for file in files for name in file.schema_arrow.names)
    columns, others = taken([*names], table)
    wanted = {column: name for name, column in (others | columns).items()}
    parts = [_part(file, path, wanted, with_rows) for file, path in zip(files, paths, strict=True)]
    try:
        return _joined(parts, table.source)
    except ConfigError:
        if not with_rows:
            raise
    return _joined([part.drop_columns([ROW]) for part in parts], table.source)  # unused columns may differ


def _opened(path: Path) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"cannot read {path} as parquet: {error}") from None


def _part(file: pyarrow.parquet.ParquetFile, path: Path, wanted: Mapping[str, str], with_rows: bool) -> pa.Table:
    try:
        found = file.read(columns=[name for name in file.schema_arrow.names if name in wanted])
        found = found.select([name for name in found.schema.names if name in wanted])  # a.b is a part of a, too
        columns = (file.schema.column(number) for number in range(len(file.schema)))
        instants = {column.path for column in columns if column.physical_type == "INT96"}
        written = _written_by_spark(file)
        types = [
            (one.name, _type(one.type, one.name, wanted[one.name], instants, written.get(one.name)))
            for one in found.schema
        ]
        row = _structs(file.read()) if with_rows else None
        return _beside(found.cast(pa.schema(types)), path, range(1, found.num_rows + 1), row)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"cannot read {path} as parquet: {error}") from None


def _written_by_spark(file: pyarrow.parquet.ParquetFile) -> Mapping[str, Any]:
    """Return the types of a file's columns as Spark has them. Parquet itself has no intervals, only their numbers."""
    text = (file.metadata.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata", b"{}")
    return {field["name"]: field["type"] for field in json.loads(text).get("fields", ())}


#: Spark has no unsigned numbers; and a column of nothing but null is one of numbers in Parquet.
_OF_NUMBERS: Final = {
    pa.null(): pa.int32(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}  # fmt: skip


def _type(type: pa.DataType, path: str, shown: str, instants: Collection[str], spark: Any = None) -> pa.DataType:
    """Return Spark's type of a column: an INT96 is an instant, and there is one kind of text, bytes and list.

    `path` is its place in the file, `shown` its place in a message, `spark` its type if Spark has written the file.
    """
    types, inner = pa.types, spark if isinstance(spark, dict) else {}
    if isinstance(spark, str) and (spark == "variant" or spark.startswith("interval")):
        if spark == "variant" or "year" in spark or "month" in spark:
            raise no_message(shown, spark)
        return pa.duration("us")
    if isinstance(type, pa.BaseExtensionType):
        return _type(type.storage_type, path, shown, instants, spark)
    if types.is_dictionary(type):
        return _type(type.value_type, path, shown, instants, spark)
    if types.is_struct(type):
        known = {field["name"]: field["type"] for field in inner.get("fields", ())}
        fields = [(one, f"{path}.{one.name}", f"{shown}.{one.name}") for one in type]
        return pa.struct(
            [(one.name, _type(one.type, inside, told, instants, known.get(one.name))) for one, inside, told in fields]
        )
    if types.is_map(type):
        key = _type(type.key_type, f"{path}.key_value.key", f"the key of {shown}", instants, inner.get("keyType"))
        item = _type(type.item_type, f"{path}.key_value.value", f"{shown}{{}}", instants, inner.get("valueType"))
        return pa.map_(key, item)
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        element = _type(type.value_type, f"{path}.list.element", f"{shown}[]", instants, inner.get("elementType"))
        return pa.list_(element)
    if types.is_large_string(type) or types.is_string_view(type):
        return pa.string()
    if types.is_large_binary(type) or types.is_binary_view(type) or types.is_fixed_size_binary(type):
        return pa.binary()
    if types.is_timestamp(type) and type.unit != "ns" and path not in instants:
        return pa.timestamp("us", tz=None if type.tz is None else "UTC")
    if types.is_time(type):
        return pa.time64("ns")
    return pa.timestamp("us", tz="UTC") if path in instants else _OF_NUMBERS.get(type, type)


# -- columns -------------------------------------------------------------------------------------------------------------


def _mapped(found: pa.Table, table: Table) -> pa.Table:
    """Return only the fields of messages, by the fields' names, and the columns that ids are made of."""
    columns, others = taken([name for name in found.schema.names if name not in CARRIED], table)
    fields = {name: found.column(column) for name, column in (columns | others).items()}
    fields |= {name: found.column(name) for name in carried(found.schema.names)}
    for name, value in (("delay_time", table.delay_time), ("delay_level", table.delay_level)):
        if value is not None:
            fields[name] = pa.repeat(pa.scalar(value, pa.int64()), found.num_rows)
    return pa.table(fields).combine_chunks()
