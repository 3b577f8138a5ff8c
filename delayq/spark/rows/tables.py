"""The table that a command is given: how it is read, and which of its columns are which fields of a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from delayq.errors import ConfigError
from delayq.spark.options import WriteOptions
from delayq.spark.rows import json_lines
from delayq.spark.rows.columns import DUES, FIELDS, check_columns, field_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FORMATS", "Table", "mapped", "messages_table", "no_json", "read", "taken"]

FORMATS: Final = ("parquet", "csv", "json", "jdbc", "table")


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What to read and how. `columns` are fields by name, and the column of each; `options` are for Spark's reader.

    Columns that are named as fields are these fields. `delay_time` (ms) and `delay_level` are for all rows.
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
        """Raise ConfigError for what makes no sense whatever the table has."""
        if self.format not in FORMATS:
            raise ConfigError(f"--format is one of {', '.join(FORMATS)}, not {self.format!r}")
        for field in self.columns:
            if field not in FIELDS:
                raise ConfigError(f"no message has a field {field}; the fields are {', '.join(FIELDS)}")
        if self.id_columns and "id" in self.columns:
            raise ConfigError("an id is one column, or made of some: not --id-column and --id-columns")
        whens = [name for name in DUES if name in self.columns]
        if len(whens) + (self.delay_time is not None) + (self.delay_level is not None) > 1:
            raise ConfigError("say when in one way: a column of dates, of delays or of levels, or one of these for all")

    @property
    def relative(self) -> bool:
        """Whether it says by option that dues are counted from the moment when a row is scheduled."""
        named = "delay_time" in self.columns or "delay_level" in self.columns
        return named or self.delay_time is not None or self.delay_level is not None


def messages_table(spark: SparkSession, table: Table, options: WriteOptions) -> DataFrame:
    """The table under the names of messages' fields; raises ConfigError for columns that no message can have."""
    from delayq.spark.rows.types import arrow_schema

    frame = mapped(read(spark, table), table)
    check_columns(arrow_schema(frame.schema), options.id_columns, options.topic)
    return frame


def read(spark: SparkSession, table: Table) -> DataFrame:
    """The table as it is."""
    if table.format == "table":
        return spark.table(table.source)
    if table.format == "json" and not table.options:
        return _read_json_lines(spark, table)
    reader = spark.read.format(table.format)
    if table.format == "csv":
        reader = reader.option("header", "true")
    elif table.format == "parquet":
        reader = reader.option("mergeSchema", "true")  # a column that only some files have is a column
    for name, value in table.options.items():
        reader = reader.option(name, value)
    if table.format == "jdbc":
        return reader.option("dbtable", table.source).load()
    return reader.load(table.source)


def mapped(frame: DataFrame, table: Table) -> DataFrame:
    """Only what is a field of messages, under the fields' names, and the columns that ids are made of.

    Raises ConfigError for columns that are not there.
    """
    columns, others = taken(frame.columns, table)
    fields = [frame[_quoted(column)].alias(name) for name, column in (columns | others).items()]
    return frame.select(*fields, *_for_all(table))


def taken(names: Sequence[str], table: Table) -> tuple[dict[str, str], dict[str, str]]:
    """Which columns of a table are taken: those of fields, by the fields' names, and others that ids are made of.

    Raises ConfigError for columns that are not there.
    """
    there = {name.lower(): name for name in names}
    for option, name in _named(table):
        if name.lower() not in there:
            raise ConfigError(f"{option}: there is no column {name}; there are {', '.join(names)}")
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
    """Whether a column that is called as a field is that field, though nobody said so."""
    if name in DUES:
        return not table.relative and not any(one in table.columns for one in DUES)
    return name != "id" or not table.id_columns


def _for_all(table: Table) -> list[Column]:
    from pyspark.sql import functions

    given = {"delay_time": table.delay_time, "delay_level": table.delay_level}
    return [functions.lit(value).cast("bigint").alias(name) for name, value in given.items() if value is not None]


def _read_json_lines(spark: SparkSession, table: Table) -> DataFrame:
    """An object a line, by the reader that works without Spark, too; partitions of a folder are columns as ever."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructType

    text = spark.read.text(table.source)
    found = text.select("value").mapInArrow(_shapes_in_task, "shape binary").collect()
    shape = json_lines.NULL
    for row in found:
        shape = json_lines.merged(shape, msgspec.json.decode(bytes(row.shape), type=json_lines.Shape))
    if shape.kind == "null":
        raise no_json(table.source)
    partitions = text.schema.fields[1:]
    names = {field.name for field in partitions}
    shape = json_lines.Shape("object", {name: one for name, one in shape.fields.items() if name not in names})
    columns = from_arrow_schema(json_lines.schema_of(shape))

    def rows_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows, places = json_lines.batch_of(_lines(batch), shape)
            others = batch.take(pa.array(places, pa.int64())).columns[1:]
            yield pa.RecordBatch.from_arrays([*rows.columns, *others], [*rows.schema.names, *batch.schema.names[1:]])

    return text.mapInArrow(rows_in_task, StructType([*columns.fields, *partitions]))


def no_json(source: str) -> ConfigError:
    """The error for a source in which no line is JSON."""
    return ConfigError(f"{source} cannot be read as JSON: each line must be an object, and none is")


def _shapes_in_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    shape = json_lines.NULL
    for batch in batches:
        shape = json_lines.merged(shape, json_lines.shape_of(_lines(batch)))
    yield pa.RecordBatch.from_pydict({"shape": [msgspec.json.encode(shape)]})


def _lines(batch: pa.RecordBatch) -> list[bytes]:
    found: list[bytes] = batch.column(0).cast(pa.binary()).to_pylist()  # its texts may be no UTF-8
    return found


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
