"""backfill."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delayq.cli import tables
from delayq.cli.forecast import print_forecast
from delayq.cli.options import AsJson, BadUse, RedisUrl, option, settings_of
from delayq.cli.output import Output, say
from delayq.cli.progress import Bar
from delayq.client import Client
from delayq.config import Settings
from delayq.times import format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delayq.spark.counts import Counts

__all__ = ["backfill"]


def backfill(
    source: tables.Source,
    format: tables.Format = "parquet",
    topic: tables.Topic = "",
    tags: tables.Tags = "",
    expect_date_column: tables.DateColumn = None,
    delay_time_column: tables.DelayColumn = None,
    delay_level_column: tables.LevelColumn = None,
    delay_time: tables.DelayTime = None,
    delay_level: tables.DelayLevel = None,
    id_column: tables.IdColumn = None,
    id_columns: tables.IdColumns = None,
    map: tables.Map = None,
    reader_options: tables.ReaderOptions = None,
    past: tables.Past = "reject",
    rate: tables.Rate = 0,
    rejects: tables.Rejects = "",
    strict: Annotated[bool, option("--strict", help="Look first; schedule nothing if a row is rejected.")] = False,
    dry_run: Annotated[bool, option("--dry-run", help="Only say what would be done, when, and in how much memory.")] = False,
    run: tables.Run = "",
    master: tables.Master = "",
    conf: tables.Conf = None,
    redis_url: RedisUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule the rows of a table, by Spark.

    Exit 1 if a row is rejected. The same again schedules nothing twice; delayq backfill undo RUN takes it back.
    """
    tables.need_spark("delayq backfill")
    from delayq.spark.forecast import forecast, room, twice
    from delayq.spark.options import WriteOptions
    from delayq.spark.session import session
    from delayq.spark.tables import mapped, read

    table = tables.table_of(
        source, format, topic=topic, tags=tags, expect_date_column=expect_date_column,
        delay_time_column=delay_time_column, delay_level_column=delay_level_column, delay_time=delay_time,
        delay_level=delay_level, id_column=id_column, id_columns=id_columns, map=map, options=reader_options,
    )  # fmt: skip
    settings = settings_of(redis_url)
    run = run or tables.new_run()
    options = {
        "redisUrl": settings.redis_url, "topic": topic, "tags": tags, "idColumns": ",".join(table.id_columns),
        "past": past, "run": run, "rejects": rejects, "rate": str(rate),
    }  # fmt: skip
    wanted = WriteOptions.parse({name: text for name, text in options.items() if text})
    with Client(settings=settings) as client:
        client.context()  # a Redis that is away, or full of other things, is better known before Spark starts
        with session("delayq backfill", master=master, conf=dict(tables.pairs("--conf", "NAME=VALUE", conf))) as spark:
            frame = mapped(read(spark, table), table)
            _warn_if_relative(frame, settings)
            if dry_run or strict:
                found = forecast(frame, wanted, settings)
                if strict and not found.counts.rejected and (conflicts := twice(frame, wanted)):
                    found.counts.rejected["conflict"] = conflicts
                if dry_run:
                    print_forecast(found, room(client.store), json)
                    return 1 if found.counts.rejected else 0
                if found.counts.rejected:
                    _print(run, found.counts, "", json)
                    raise BadUse("nothing was scheduled, as --strict wants it of a table with rows that are rejected")
            if not json:
                say(f"this is run {run}; delayq backfill undo {run} takes it back.")
            ...
    return 0
