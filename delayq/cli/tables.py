"""Options that say which table to read, and how its rows become messages."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from delayq.cli.options import BadUse, duration, option
from delayq.clock import SystemClock

if TYPE_CHECKING:
    from delayq.config import Settings
    from delayq.spark.rows.tables import Table

__all__ = [
    "Conf", "DateColumn", "DelayColumn", "DelayLevel", "DelayTime", "Format", "IdColumn", "IdColumns", "LevelColumn",
    "Map", "Master", "Past", "Rate", "ReaderOptions", "Rejects", "Run", "Source", "Tags", "Topic", "Window",
    "conf_of", "new_run", "pairs", "table_of", "write_options",
]  # fmt: skip

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The table: a path or URI, or its name for jdbc, table.")]
Format = Annotated[str, typer.Option("--format", metavar="F", help="parquet, csv, json, jdbc or table.")]
Topic = Annotated[str, option("--topic", metavar="TOPIC", help="The topic of all rows; else a column topic.")]
Tags = Annotated[str, option("--tags", metavar="TAG", help="The tag of rows that have none in a column tags.")]
DateColumn = Annotated[
    str | None, option("--expect-date-column", metavar="C", help="When: timestamps, Unix ms, or RFC 3339.")
]
DelayColumn = Annotated[str | None, option("--delay-time-column", metavar="C", help="How long from now: ms, or 30m.")]
LevelColumn = Annotated[str | None, option("--delay-level-column", metavar="C", help="Delay levels, 1 to 18.")]
DelayTime = Annotated[str | None, option("--delay-time", metavar="DURATION", help="From now, for all rows.")]
DelayLevel = Annotated[
    int | None,
    typer.Option("--delay-level", metavar="N", min=1, help="A delay level for all rows.", show_default=False),
]
IdColumn = Annotated[str | None, option("--id-column", metavar="C", help="The column of ids, if it is not id.")]
IdColumns = Annotated[
    str | None, option("--id-columns", metavar="A,B", help="Make ids of the columns that tell rows from one another.")
]
Map = Annotated[
    list[str] | None, option("--map", metavar="C=FIELD", help="Column C is this field of the message; more than once.")
]
ReaderOptions = Annotated[
    list[str] | None, option("--option", metavar="K=V", help="An option of Spark's reader; more than once.")
]
Master = Annotated[
    str, option("--master", metavar="URL", help="Spark's master; local[*] unless Spark is set otherwise.")
]
Conf = Annotated[list[str] | None, option("--conf", metavar="K=V", help="A setting of Spark; more than once.")]
Past = Annotated[
    str, typer.Option("--past", metavar="HOW", help="Rows whose date has passed: reject, skip, or schedule them now.")
]
Rate = Annotated[
    int, typer.Option("--rate", metavar="N", min=0, help="At most so many messages/s in all; 0: no bound.")
]
Window = Annotated[
    str | None, option("--window", metavar="DURATION", help="Spread the rows by their ids: due up to so much later.")
]
Again = Annotated[bool, option("--again", help="Also ids that were cancelled before they could be delivered.")]
Rejects = Annotated[str, option("--rejects", metavar="DIR", help="Where rejected rows are put, as Parquet.")]
Run = Annotated[str, option("--run", metavar="RUN", help="The run's name, to undo it by; one is made without.")]


def table_of(
    source: str,
    format: str,
    *,
    topic: str,
    tags: str = "",
    expect_date_column: str | None,
    delay_time_column: str | None = None,
    delay_level_column: str | None = None,
    delay_time: str | None = None,
    delay_level: int | None = None,
    id_column: str | None,
    id_columns: str | None,
    map: Sequence[str] | None,
    options: Sequence[str] | None,
) -> Table:
    """What the options say; raises BadUse and ConfigError."""
    from delayq.spark.rows.tables import Table

    named = {
        "expect_date": expect_date_column, "delay_time": delay_time_column, "delay_level": delay_level_column,
        "id": id_column,
    }  # fmt: skip
    columns = {field: column for field, column in named.items() if column is not None}
    for column, field in pairs("--map", "COLUMN=FIELD", map, last=True):
        if field in columns:
            raise BadUse(f"--map: {field} is said to be {columns[field]} and {column}; one column is one field")
        columns[field] = column
    table = Table(
        source=source,
        format=format,
        topic=topic,
        tags=tags,
        columns=columns,
        options=dict(pairs("--option", "NAME=VALUE", options)),
        id_columns=tuple(name for part in (id_columns or "").split(",") if (name := part.strip())),
        delay_time=duration("--delay-time", delay_time),
        delay_level=delay_level,
    )
    table.check()
    return table


def pairs(option: str, form: str, given: Sequence[str] | None, *, last: bool = False) -> list[tuple[str, str]]:
    """Options written as 'a=b', cut at the first '=' or the last; raises BadUse."""
    found = []
    for pair in given or ():
        left, equals, right = pair.rpartition("=") if last else pair.partition("=")
        if not equals or not left or (last and not right):
            raise BadUse(f"{option}: write it as {form}, not {pair!r}")
        found.append((left, right))
    return found


def conf_of(given: Sequence[str] | None) -> dict[str, str]:
    """Settings of Spark; raises BadUse."""
    return dict(pairs("--conf", "NAME=VALUE", given))


def write_options(
    table: Table,
    settings: Settings,
    *,
    past: str,
    rate: int,
    rejects: str,
    run: str,
    window: str | None,
    again: bool = False,
) -> dict[str, str]:
    """What the data source is told; raises BadUse."""
    spread = duration("--window", window)
    options = {
        "redisUrl": settings.redis_url, "topic": table.topic, "tags": table.tags,
        "idColumns": ",".join(table.id_columns), "past": past, "run": run, "rejects": rejects,
        "rate": str(rate) if rate else "", "window": "" if spread is None else str(spread),
        "again": "true" if again else "",
    }  # fmt: skip
    return {name: text for name, text in options.items() if text}


def new_run() -> str:
    """A name for a run that no other has, which sorts by its time."""
    now = datetime.fromtimestamp(SystemClock().now() / 1000, UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
