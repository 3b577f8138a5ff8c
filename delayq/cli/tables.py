"""The options that describe a table and how its rows become messages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import typer

from delayq.cli.options import BadUse, NoRouteCheck, RedisUrl, duration, option, settings_of
from delayq.clock import SystemClock

if TYPE_CHECKING:
    from delayq.client.client import Client
    from delayq.config import Settings
    from delayq.spark.rows.tables import Table

__all__ = [
    "Again", "Conf", "DelayColumn", "DelayLevel", "DelayTime", "Format", "LevelColumn", "Master", "ReaderOptions", "Source",
    "TableOptions", "conf_of", "pairs", "takes_table",
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
Rejects = Annotated[
    str, option("--rejects", metavar="DIR", help="A folder for rejected rows, to correct them and run again.")
]
Run = Annotated[str, option("--run", metavar="RUN", help="The run's name, to undo it by; one is made without.")]


@dataclass
class TableOptions:
    """The options that `backfill` and `reconcile` share; see `takes_table`."""

    source: Source
    format: Format = "parquet"
    topic: Topic = ""
    tags: Tags = ""
    expect_date_column: DateColumn = None
    id_column: IdColumn = None
    id_columns: IdColumns = None
    map: Map = None
    reader_options: ReaderOptions = None
    past: Past = "reject"
    rate: Rate = 0
    window: Window = None
    rejects: Rejects = ""
    run: Run = ""
    master: Master = ""
    conf: Conf = None
    no_route_check: NoRouteCheck = False
    redis_url: RedisUrl = None

    @cached_property
    def settings(self) -> Settings:
        """The settings of the environment, with the Redis that was named; raises ConfigError."""
        return settings_of(self.redis_url)

    @cached_property
    def run_name(self) -> str:
        """The name of this run, which is new unless --run gives one."""
        return self.run or new_run()

    def client(self) -> Client:
        """A client for these settings."""
        from delayq.client.client import Client

        return Client(settings=self.settings, check_routes=not self.no_route_check)

    def table(
        self, columns: Mapping[str, str | None], *, delay_time: str | None = None, delay_level: int | None = None
    ) -> Table:
        """The table that the options describe; `columns` names further ones by field. Raises BadUse and ConfigError."""
        from delayq.spark.rows.tables import Table

        named = {"expect_date": self.expect_date_column, **columns, "id": self.id_column}
        taken = {field: column for field, column in named.items() if column is not None}
        for column, field in pairs("--map", "COLUMN=FIELD", self.map, last=True):
            if field in taken:
                raise BadUse(f"--map: {field} is said to be {taken[field]} and {column}; one column is one field")
            taken[field] = column
        table = Table(
            source=self.source,
            format=self.format,
            topic=self.topic,
            tags=self.tags,
            columns=taken,
            options=dict(pairs("--option", "NAME=VALUE", self.reader_options)),
            id_columns=tuple(name for part in (self.id_columns or "").split(",") if (name := part.strip())),
            delay_time=duration("--delay-time", delay_time),
            delay_level=delay_level,
        )
        table.check()
        return table

    def write_options(self, table: Table, *, again: bool = False) -> dict[str, str]:
        """The options of Spark's data source; raises BadUse and ConfigError."""
        from delayq.spark.options import WriteOptions

        spread = duration("--window", self.window)
        given = {
            "redisUrl": self.settings.redis_url, "topic": table.topic, "tags": table.tags,
            "idColumns": ",".join(table.id_columns), "past": self.past, "run": self.run_name, "rejects": self.rejects,
            "rate": str(self.rate) if self.rate else "", "window": "" if spread is None else str(spread),
            "again": "true" if again else "", "checkRoutes": "false" if self.no_route_check else "",
            "rejectsAs": msgspec.json.encode(table.rejects).decode(),
        }  # fmt: skip
        options = {name: text for name, text in given.items() if text}
        WriteOptions.parse(options)
        return options


def takes_table(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the first parameter of a command, a `TableOptions`, by an option for each field, because Typer needs these."""
    hints = get_type_hints(command, include_extras=True) | get_type_hints(TableOptions, include_extras=True)
    shared = signature(TableOptions).parameters
    _, *own = signature(command).parameters.values()
    parameters = [
        one.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[one.name]) for one in (*shared.values(), *own)
    ]

    @wraps(command)
    def call(**given: Any) -> int:
        return command(TableOptions(**{name: given.pop(name) for name in shared}), **given)

    shown: Any = call  # Typer reads the signature and the annotations of a command
    del shown.__wrapped__
    shown.__signature__ = Signature(parameters)
    shown.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def pairs(option: str, form: str, given: Sequence[str] | None, *, last: bool = False) -> list[tuple[str, str]]:
    """Split options such as 'a=b' at the first '=', or at the last; raises BadUse."""
    found = []
    for pair in given or ():
        left, equals, right = pair.rpartition("=") if last else pair.partition("=")
        if not equals or not left or (last and not right):
            raise BadUse(f"{option}: write it as {form}, not {pair!r}")
        found.append((left, right))
    return found


def conf_of(given: Sequence[str] | None) -> dict[str, str]:
    """The settings of Spark; raises BadUse."""
    return dict(pairs("--conf", "NAME=VALUE", given))


def new_run() -> str:
    """A new, unique name for a run; names sort by time."""
    now = datetime.fromtimestamp(SystemClock().now() / 1000, UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
