"""The table that a command is given: how it is read, and which of its columns are which fields of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from delayq.errors import ConfigError
from delayq.spark.rows.columns import DUES, FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["FORMATS", "WHOLE", "Table", "mapped", "read", "taken"]

FORMATS: Final = ("parquet", "csv", "json", "jdbc", "table")
WHOLE: Final = ("delay_level", "max_attempts")


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


def read(spark: SparkSession, table: Table) -> DataFrame:
    """The table as it is."""
    if table.format == "table":
        return spark.table(table.source)
    reader = spark.read.format(table.format)
    if table.format == "csv":
        reader = reader.option("header", "true")
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
    fields = [_field(frame, name, column) for name, column in columns.items()]
    fields += [frame[_quoted(column)].alias(name) for name, column in others.items()]
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
    return columns, {name: there[name.lower()] for name in table.id_columns if name not in columns}


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


def _field(frame: DataFrame, name: str, column: str) -> Column:
    """A column as a field: texts, as a CSV file has them, become what the field is; so do days."""
    from pyspark.sql import functions
    from pyspark.sql.types import DateType, StringType

    found, type = frame[_quoted(column)], frame.schema[column].dataType
    # What cannot be read becomes what no message may have, so that the row is rejected.
    if isinstance(type, StringType) and name in WHOLE:
        number = functions.coalesce(found.try_cast("bigint"), functions.lit(-1))
        found = functions.when(found.isNotNull(), number)
    elif isinstance(type, StringType) and name == "properties":
        empty = functions.create_map(functions.lit(""), functions.lit(""))
        pairs = functions.coalesce(functions.from_json(found, "map<string,string>"), empty)
        found = functions.when(found.isNotNull(), pairs)
    elif isinstance(type, DateType) and name == "expect_date":
        found = found.cast("timestamp")
    return found.alias(name)


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
