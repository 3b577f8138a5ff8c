"""The table of a command: how it is read, and which of its columns are which fields of a message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from delayq.base.errors import ConfigError
from delayq.spark.options import WriteOptions
from delayq.spark.rows import csv_lines, json_lines
from delayq.spark.rows.columns import DUES, FIELDS, check_columns, field_names
from delayq.spark.rows.origin import CARRIED, FILE, LINE, OWN, ROW, Rejects, camel

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

FORMATS: Final = ("parquet", "csv", "json", "jdbc", "table")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The table to read, and its options. `columns` are fields by name, and the column of each; `options` are for Spark's reader.

    Columns that are named like fields are these fields. `delay_time` (ms) and `delay_level` are for all rows.
    """

    source: str
    format: str
    options: Mapping[str, str] = {}
    columns: Mapping[str, str] = {}
    id_columns: tuple[str, ...] = ()
    topic: str = ""
    tags: str = ""
    delay_time: int | None = None
    delay_level: int | None = None

    def check(self) -> None:
        """Raise ConfigError for options that are invalid for every table."""
        if self.format not in FORMATS:
            raise ConfigError(f"--format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        for field in self.columns:
            if field not in FIELDS:
                raise ConfigError(f"no message has a field {field}; the fields are {', '.join(FIELDS)}")
        if self.id_columns and "id" in self.columns:
            raise ConfigError("--id-column and --id-columns exclude each other; use one of them")
        whens = [name for name in DUES if name in self.columns]
        if len(whens) + (self.delay_time is not None) + (self.delay_level is not None) > 1:
            raise ConfigError(
                "the due time is given in several ways; use one column of dates, delays or levels, "
                "or one value for all rows"
            )

    @property
    def rejects(self) -> Rejects:
        """Return the format of refused rows: like the table, if one of delayq's own readers has read it."""
        of_row = {"id": ", ".join(self.id_columns), "topic": "--topic" if self.topic else "", **self.columns}
        named = {camel(field): column for field, column in of_row.items() if column}
        if self.is_csv:
            separator, escape = csv_lines.dialect(self.options)
            return Rejects(format="csv", separator=separator, escape=escape, columns=named)
        return Rejects(format="json" if self.is_json else "parquet", columns=named)

    @property
    def is_json(self) -> bool:
        """Whether it is JSON for delayq's own reader."""
        return self.format == "json" and not self.options

    @property
    def is_csv(self) -> bool:
        """Whether it is CSV for delayq's own reader."""
        return self.format == "csv" and all(name in csv_lines.OPTIONS for name in self.options)

    @property
    def relative(self) -> bool:
        """Whether an option counts due times from the moment when a row is scheduled."""
        named = "delay_time" in self.columns or "delay_level" in self.columns
        return named or self.delay_time is not None or self.delay_level is not None


def messages_table(spark: SparkSession, table: Table, options: WriteOptions) -> DataFrame:
    """Return the table with the names of messages' fields. Raises ConfigError for columns that no message can have."""
    from delayq.spark.rows.types import arrow_schema

    frame = mapped(read(spark, table, rows=bool(options.rejects)), table)
    check_columns(arrow_schema(frame.schema), options.id_columns, options.topic)
    return frame


def read(spark: SparkSession, table: Table, *, rows: bool = False) -> DataFrame:
    """Return the table unchanged; with `rows`, also the place of each row and the row itself."""
    if table.is_json:
        return _read_json_lines(spark, table, rows=rows)
    if table.is_csv:
        return _read_csv_lines(spark, table, rows=rows)
    frame = _read(spark, table)
    frame = frame.drop(*(name for name in frame.columns if name.lower() in OWN))
    return _with_rows(frame, table.format) if rows else frame


def _with_rows(frame: DataFrame, format: str) -> DataFrame:
    """The columns of a table, and all of them again as one column. Files add their name and perhaps the row number."""
    from pyspark.sql import functions

    from delayq.spark.rows.types import arrow_schema

    alike = Counter(name.lower() for name in frame.columns)
    kept = []
    for field in frame.schema.fields:
        if alike[field.name.lower()] == 1:
            with suppress(ConfigError):  # a column that no message can have, such as a variant, is dropped
                arrow_schema(type(frame.schema)([field]))
                kept.append(frame[_quoted(field.name)])
    own = [functions.struct(*kept).alias(ROW)]
    if format in ("csv", "json", "parquet"):
        own.append(functions.col("_metadata.file_name").alias(FILE))
    if format == "parquet":
        own.append((functions.col("_metadata.row_index") + 1).alias(LINE))
    return frame.select("*", *own)


def _read(spark: SparkSession, table: Table) -> DataFrame:
    if table.format == "table":
        return spark.table(table.source)
    reader = spark.read.format(table.format)
    if table.format == "csv":
        reader = reader.option("header", "true")
    elif table.format == "parquet":
        reader = reader.option("mergeSchema", "true")  # a column that only some files have is a column too
    for name, value in table.options.items():
        reader = reader.option(name, value)
    if table.format == "jdbc":
        return reader.option("dbtable", table.source).load()
    return reader.load(table.source)


def mapped(frame: DataFrame, table: Table) -> DataFrame:
    """Return only the fields of messages, by the fields' names, and the columns that ids are made of.

    Raises ConfigError for unknown columns.
    """
    columns, others = taken([name for name in frame.columns if name not in CARRIED], table)
    fields = [frame[_quoted(column)].alias(name) for name, column in (columns | others).items()]
    return frame.select(*fields, *_for_all(table), *(frame[name] for name in carried(frame.columns)))


def carried(names: Iterable[str]) -> list[str]:
    """Return the columns with the origin of rows."""
    return [name for name in names if name in CARRIED]


def taken(names: Sequence[str], table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """The used columns of a table: the columns of fields, by the fields' names, and the columns that form the ids.

    Raises ConfigError for unknown columns.
    """
    there = {name.lower(): name for name in names}
    for option, name in _named(table):
        if name.lower() not in there:
            raise ConfigError(f"{option}: unknown column {name}; the columns are {', '.join(names)}")
    columns = {name: there[name] for name in FIELDS if name in there and _is_wanted(name, table)}
    columns |= {name: there[column.lower()] for name, column in table.columns.items()}
    if table.topic:
        columns = {name: column for name, column in columns.items() if name != "topic" or name in table.columns}
    others = {name: there[name.lower()] for name in field_names(table.id_columns) if name not in columns}
    counts = Counter(name.lower() for name in names)
    for column in (*columns.values(), *others.values()):
        if counts[column.lower()] > 1:
            alike = [name for name in names if name.lower() == column.lower()]
            raise ConfigError(f"columns differ only in upper and lower case: {', '.join(alike)}; rename all but one")
    return columns, others


def _named(table: Table) -> list[tuple[str, str]]:
    return [*((f"the column of {field}", name) for field, name in table.columns.items())] + [
        ("--id-columns", name) for name in table.id_columns
    ]


def _is_wanted(name: str, table: Table) -> bool:
    """Whether a column with the name of a field is that field, without an option."""
    if name in DUES:
        return not table.relative and not any(one in table.columns for one in DUES)
    return name != "id" or not table.id_columns


def _for_all(table: Table) -> list[Column]:
    from pyspark.sql import functions

    given = {"delay_time": table.delay_time, "delay_level": table.delay_level}
    return [functions.lit(value).cast("bigint").alias(name) for name, value in given.items() if value is not None]


#: The place of a line of a text: its file, the part of the file, and the file's name.
_PLACE: Final = ("file_path", "file_block_start", "file_name")


def _read_text(spark: SparkSession, source: str) -> tuple[DataFrame, list[StructField]]:
    """Return the lines of a text with their places, and the partitions of its folder, which are columns."""
    from pyspark.sql import functions

    text = spark.read.text(source)
    partitions = text.schema.fields[1:]
    return text.select("*", *(functions.col(f"_metadata.{name}").alias(f"_{name}") for name in _PLACE)), partitions


def _schema_beside(schema: pa.Schema, row: pa.DataType | None) -> pa.Schema:
    """Return the columns of a table, and those that are carried beside a row of this type."""
    return schema if row is None else pa.schema([*schema, (FILE, pa.string()), (LINE, pa.int64()), (ROW, row)])


def _read_json_lines(spark: SparkSession, table: Table, *, rows: bool) -> DataFrame:
    """Read one object per line, by the reader that also works without Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    text, partitions = _read_text(spark, table.source)
    shape, counts = json_lines.NULL, _Counts()
    for row in text.mapInArrow(_shapes_in_task, "found binary").collect():
        found = msgspec.json.decode(bytes(row.found), type=_JsonLooked)
        shape = json_lines.merged(shape, found.shape)
        counts.add(found.counts)
    if shape.kind == "null":
        raise no_json(table.source)
    names = {field.name for field in partitions} | {name for name in shape.fields if name.lower() in OWN}
    shape = json_lines.Shape("object", {name: one for name, one in shape.fields.items() if name not in names})
    schema = _schema_beside(json_lines.schema_of(shape), pa.binary() if rows else None)
    before = counts.before()

    def rows_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch, numbers in _numbered(batches, before):
            found = json_lines.batch_of(_lines(batch), shape)
            lines = batch.take(pa.array(found.lines, pa.int64()))
            columns = [*found.batch.columns]
            if rows:
                at = pa.array([numbers[line] for line in found.lines], pa.int64())
                columns += [lines.column("_file_name").cast(pa.string()), at, pa.array(found.texts, pa.binary())]
            columns += (lines.column(field.name) for field in partitions)
            yield pa.RecordBatch.from_arrays(columns, [*schema.names, *(field.name for field in partitions)])

    return text.mapInArrow(rows_in_task, StructType([*from_arrow_schema(schema).fields, *partitions]))


def _read_csv_lines(spark: SparkSession, table: Table, *, rows: bool) -> DataFrame:
    """Read one row per line, by the reader that also works without Spark. Each file has its own first line."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    separator, escape = csv_lines.dialect(table.options)
    text, partitions = _read_text(spark, table.source)

    def look_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _look_at_csv(batches, separator, escape)
        yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found)]})

    heads, counts, wrong = dict[str, _Head](), _Counts(), list[_Wrong]()
    for row in text.mapInArrow(look_in_task, "found binary").collect():
        looked = msgspec.json.decode(bytes(row.found), type=_CsvLooked)
        heads |= {head.file: head for head in looked.heads}
        counts.add(looked.counts)
        wrong += looked.wrong
    before = counts.before()
    if wrong:
        file, start, number, why = min(wrong)
        raise ConfigError(f"{_path_of(file)}: line {before[file][start] + number} {why}")
    if not heads:
        raise ConfigError(f"{table.source} is empty; its first line must have the names of the columns")
    partition_names = [field.name for field in partitions]
    names_of = {file: csv_lines.names_of(head.cells) for file, head in sorted(heads.items())}
    names = list(dict.fromkeys(name for some in names_of.values() for name in some))
    names = [name for name in names if name.lower() not in OWN and name not in partition_names]
    texts = pa.schema([(name, pa.string()) for name in names])
    schema = _schema_beside(texts, pa.struct([*texts]) if rows else None)
    places = {file: [some.index(name) if name in some else None for name in names] for file, some in names_of.items()}

    def rows_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch, numbers in _numbered(batches, before):
            kept: list[int] = []
            found: list[list[str | None]] = []
            for place, (line, file) in enumerate(
                zip(_lines(batch), batch.column("_file_path").to_pylist(), strict=True)
            ):
                decoded = line.decode()
                if file in heads and numbers[place] > heads[file].line and not csv_lines.is_blank(decoded):
                    cells = csv_lines.cells(decoded, separator, escape)
                    kept.append(place)
                    found.append([cells[at] if at is not None and at < len(cells) else None for at in places[file]])
            lines = batch.take(pa.array(kept, pa.int64()))
            columns = [pa.array([row[at] for row in found], pa.string()) for at in range(len(names))]
            if rows:
                struct = pa.StructArray.from_arrays(columns, fields=[*texts])
                at = pa.array([numbers[place] for place in kept], pa.int64())
                columns += [lines.column("_file_name").cast(pa.string()), at, struct]
            columns += (lines.column(name) for name in partition_names)
            yield pa.RecordBatch.from_arrays(columns, [*schema.names, *partition_names])

    return text.mapInArrow(rows_in_task, StructType([*from_arrow_schema(schema).fields, *partitions]))


#: A file, the beginning of a part of it, and the number of the part's lines.
_Lines = list[tuple[str, int, int]]
#: The same for a refused line, with its number and the reason.
_Wrong = tuple[str, int, int, str]


class _JsonLooked(msgspec.Struct, frozen=True):
    """The result of a task: the shape of its lines, and the number of lines in each part of a file, by its start."""

    shape: json_lines.Shape
    counts: _Lines


class _Head(msgspec.Struct, frozen=True):
    """The first line of a file that is not blank: the file, the number of the line, its cells."""

    file: str
    line: int
    cells: list[str | None]


class _CsvLooked(msgspec.Struct, frozen=True):
    """The result of a task: first lines of files, the number of lines in each part of a file, and refused lines."""

    heads: list[_Head]
    counts: _Lines
    wrong: list[_Wrong]


class _Counts:
    """Return the number of lines of each part of a file, by its beginning."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, int]] = {}

    def add(self, counts: _Lines) -> None:
        for file, start, count in counts:
            self._parts.setdefault(file, {})[start] = count

    def before(self) -> dict[str, dict[int, int]]:
        """Return the number of lines of its file before each part."""
        return {
            file: {start: sum(count for other, count in parts.items() if other < start) for start in parts}
            for file, parts in self._parts.items()
        }


def _parts_of(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Return the file of each line, and the beginning of its part of the file."""
    return zip(*(batch.column(name).to_pylist() for name in ("_file_path", "_file_block_start")), strict=True)


def _numbered(
    batches: Iterable[pa.RecordBatch], before: Mapping[str, Mapping[int, int]]
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Return the lines of a task, each with its number in its file; `before` are the lines of a file before each part."""
    last: Counter[tuple[str, int]] = Counter()
    for batch in batches:
        numbers = []
        for part in _parts_of(batch):
            last[part] += 1
            numbers.append(before.get(part[0], {}).get(part[1], 0) + last[part])
        yield batch, numbers


def _look_at_csv(batches: Iterable[pa.RecordBatch], separator: str, escape: str) -> _CsvLooked:
    heads: dict[str, _Head] = {}
    counts = Counter[tuple[str, int]]()
    wrong: list[_Wrong] = []
    for batch in batches:
        for line, (file, start) in zip(_lines(batch), _parts_of(batch), strict=True):
            counts[file, start] += 1
            is_head = start == 0 and file not in heads
            if not is_head and b'"' not in line and line.isascii():
                continue
            try:
                decoded = line.decode().removeprefix("\ufeff" if is_head and counts[file, start] == 1 else "")
                if not csv_lines.is_blank(decoded):
                    cells = csv_lines.cells(decoded, separator, escape)
                    if is_head:
                        heads[file] = _Head(file, counts[file, start], cells)
            except ValueError as error:
                why = "is no UTF-8" if isinstance(error, UnicodeError) else str(error)
                wrong.append((file, start, counts[file, start], why))
    return _CsvLooked([*heads.values()], [(*part, count) for part, count in counts.items()], wrong[:1])


def _path_of(file: str) -> str:
    return unquote(re.sub("^file:(//)?", "", file))


def no_json(source: str) -> ConfigError:
    """Return the error for a source in which no line is JSON."""
    return ConfigError(f"cannot read {source} as JSON: each line must be an object, and none is")


def _shapes_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    shape, counts = json_lines.NULL, Counter[tuple[str, int]]()
    for batch in batches:
        shape = json_lines.merged(shape, json_lines.shape_of(_lines(batch)))
        counts.update(_parts_of(batch))
    found = _JsonLooked(shape, [(*part, count) for part, count in counts.items()])
    yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found)]})


def _lines(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = batch.column(0).cast(pa.binary()).to_pylist()  # its texts may not be UTF-8
    return found


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
