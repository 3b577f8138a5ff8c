"""The options that describe a table and how its rows become messages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import UTC, datetime
from functools import cached_property, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import typer

from delayq.base.clock import SystemClock
from delayq.cli.options import BadUse, NoRouteCheck, RedisUrl, duration, option, settings_of

if TYPE_CHECKING:
    from delayq.client.client import Client
    from delayq.config import Settings
    from delayq.spark.rows.tables import Table

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Path or URI, or the name for jdbc and table.")]
Format = Annotated[str, typer.Option("--format", metavar="F", help="Format: parquet, csv, json, jdbc or table.")]
Topic = Annotated[str, option("--topic", metavar="TOPIC", help="Topic of all rows; default: the column topic.")]
Tags = Annotated[str, option("--tags", metavar="TAG", help="Tag of rows without a tag in the column tags.")]
DateColumn = Annotated[
    str | None,
    option("--expect-date-column", metavar="C", help="Column: timestamps, Unix ms, or RFC 3339."),
]
DelayColumn = Annotated[
    str | None, option("--delay-time-column", metavar="C", help="Column with delays from now: ms, or 30m.")
]
LevelColumn = Annotated[
    str | None, option("--delay-level-column", metavar="C", help="Column with delay levels, 1 to 18.")
]
DelayTime = Annotated[str | None, option("--delay-time", metavar="DURATION", help="Delay from now, for all rows.")]
DelayLevel = Annotated[
    int | None,
    typer.Option("--delay-level", metavar="N", min=1, help="Delay level for all rows.", show_default=False),
]
IdColumn = Annotated[str | None, option("--id-column", metavar="C", help="Column with ids; default: id.")]
IdColumns = Annotated[
    str | None, option("--id-columns", metavar="A,B", help="Make ids from the columns that identify a row.")
]
Map = Annotated[list[str] | None, option("--map", metavar="C=FIELD", help="Use column C as this field; repeatable.")]
ReaderOptions = Annotated[
    list[str] | None, option("--option", metavar="K=V", help="Option of Spark's reader; repeatable.")
]
Master = Annotated[str, option("--master", metavar="URL", help="Spark's master; default: local[*].")]
Conf = Annotated[list[str] | None, option("--conf", metavar="K=V", help="Setting of Spark; repeatable.")]
Past = Annotated[str, typer.Option("--past", metavar="HOW", help="Late rows: reject, skip, or now.")]
Rate = Annotated[int, typer.Option("--rate", metavar="N", min=0, help="Maximum messages/s in all; 0: no limit.")]
Window = Annotated[
    str | None,
    option("--window", metavar="DURATION", help="Spread due times over this time, by id."),
]
Again = Annotated[bool, option("--again", help="Also schedule ids that were certainly cancelled.")]
Rejects = Annotated[str, option("--rejects", metavar="DIR", help="Folder for rejected rows.")]
Run = Annotated[str, option("--run", metavar="RUN", help="Name of the run; default: generated.")]


@dataclass
class TableOptions:
    """The options that `backfill` and `reconcile` share. See `takes_table`."""

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
    #: The URL of the HTTP API that takes the place of Redis.
    api: str = field_of(default="", init=False)

    @cached_property
    def settings(self) -> Settings:
        """Return the settings of the environment, with the named Redis. Raises ConfigError."""
        if self.api:
            from delayq.config import load_settings

            return load_settings()
        return settings_of(self.redis_url)

    @cached_property
    def run_name(self) -> str:
        """Return the name of this run. A new name is made unless --run gives one."""
        return self.run or new_run()

    def client(self) -> Client:
        """Return a client for these settings."""
        from delayq.client.client import Client

        return Client(settings=self.settings, check_routes=not self.no_route_check)

    def table(
        self, columns: Mapping[str, str | None], *, delay_time: str | None = None, delay_level: int | None = None
    ) -> Table:
        """Return the table that the options describe. `columns` names more columns by field. Raises BadUse and
        ConfigError.
        """
        from delayq.spark.rows.tables import Table

        named = {"expect_date": self.expect_date_column, **columns, "id": self.id_column}
        taken = {field: column for field, column in named.items() if column is not None}
        for column, field in pairs("--map", "COLUMN=FIELD", self.map, last=True):
            if field in taken:
                raise BadUse(f"--map: {field} is mapped to both {taken[field]} and {column}; map one column to a field")
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
        """Return the options of Spark's data source. Raises BadUse and ConfigError."""
        from delayq.spark.options import WriteOptions

        spread = duration("--window", self.window)
        given = {
            "redisUrl": self.settings.redis_url, "namespace": self.settings.namespace, "topic": table.topic, "tags": table.tags,
            "idColumns": ",".join(table.id_columns), "past": self.past, "run": self.run_name, "rejects": self.rejects,
            "rate": str(self.rate) if self.rate else "", "window": "" if spread is None else str(spread),
            "again": "true" if again else "", "checkRoutes": "false" if self.no_route_check else "",
            "rejectsAs": msgspec.json.encode(table.rejects).decode(),
        }  # fmt: skip
        options = {name: text for name, text in given.items() if text}
        WriteOptions.parse(options)
        return options


def takes_table(command: Callable[..., int]) -> Callable[..., int]:
    """Replace the first parameter of a command, a `TableOptions`, by one option for each field, because Typer needs
    them.
    """
    hints = get_type_hints(TableOptions, include_extras=True) | get_type_hints(command, include_extras=True)
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
    """Split options such as 'a=b' at the first '=', or at the last one. Raises BadUse."""
    found = []
    for pair in given or ():
        left, equals, right = pair.rpartition("=") if last else pair.partition("=")
        if not equals or not left or (last and not right):
            raise BadUse(f"{option}: use {form}, not {pair!r}")
        found.append((left, right))
    return found


def conf_of(given: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of Spark. Raises BadUse."""
    return dict(pairs("--conf", "NAME=VALUE", given))


def new_run() -> str:
    """Return a new, unique name for a run. Names sort by time."""
    now = datetime.fromtimestamp(SystemClock().now() / 1000, UTC)
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
