"""The command backfill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from delayq.base.errors import MissingExtra
from delayq.base.progress import Progress
from delayq.base.terminal import Output, say
from delayq.cli import tables
from delayq.cli.forecast import counts_rows, counts_shape, print_forecast
from delayq.cli.options import ApiUrl, AsJson, BadUse, api_url_of, option
from delayq.client.client import Client
from delayq.config import Settings
from delayq.domain.words import counted

if TYPE_CHECKING:
    from delayq.spark.jobs.forecast import Forecast
    from delayq.spark.rows.tables import Table
    from delayq.spark.writing.counts import Counts


@tables.takes_table
def backfill(
    given: tables.TableOptions,
    delay_time_column: tables.DelayColumn = None,
    delay_level_column: tables.LevelColumn = None,
    delay_time: tables.DelayTime = None,
    delay_level: tables.DelayLevel = None,
    strict: Annotated[bool, option("--strict", help="If a row is invalid, schedule none.")] = False,
    dry_run: Annotated[bool, option("--dry-run", help="Only print what would happen, and the memory.")] = False,
    again: tables.Again = False,
    local: Annotated[bool, option("--local", help="Run without Spark, for some thousand rows.")] = False,
    api: ApiUrl = None,
    json: AsJson = False,
) -> int:
    """Schedule the rows of a table.

    Exit 1 if a row is rejected. Running the same command again schedules nothing twice. delayq backfill undo RUN
    cancels the rows.
    """
    if api is not None and not local:
        raise BadUse("--api needs --local: the tasks of Spark schedule in Redis")
    if local:
        given.api = api_url_of(given.redis_url, api) or ""
    _need(given, local)
    from delayq.spark.jobs.forecast import room

    columns = {"delay_time": delay_time_column, "delay_level": delay_level_column}
    table = given.table(columns, delay_time=delay_time, delay_level=delay_level)
    run, rejects = given.run_name, given.rejects
    options = given.write_options(table, again=again)
    with nullcontext() if given.api else given.client() as client:
        if client is not None:
            client.context()  # so that an unreachable Redis is reported before Spark starts
        with _rows(client, table, options, given, local=local) as rows:
            if client is not None:
                client.warn_without_worker()
            _warn_if_relative(rows.columns, given.settings)
            if dry_run or strict:
                found = rows.forecast()
                if not found.counts.rejected and (conflicts := rows.twice()):
                    found.counts.rejected["conflict"] = conflicts
                    found.counts.examples.append(
                        f"{counted(conflicts, 'id repeats', 'ids repeat')} in rows with different messages"
                    )
                if dry_run:
                    print_forecast(found, None if client is None else room(client.store), json)
                    return 1 if found.counts.rejected else 0
                if found.counts.rejected:
                    found.counts.scheduled = 0
                    _print(run, found.counts, "", json)
                    first = "; ".join(found.counts.examples)
                    say(f"nothing was scheduled because of --strict; the first rejected rows: {first}.")
                    return 1
            say(f"this is run {run}; delayq backfill undo {run} cancels it.")
            counts = rows.schedule()
    _print(run, counts, rejects if counts.rejected else "", json)
    if counts.rejected:
        kept = (
            _how_to_correct(table, rejects)
            if rejects
            else "--rejects DIR keeps rejected rows, so that you can correct them"
        )
        say(f"{kept}; the first rejected rows: {'; '.join(counts.examples)}.")
    return 1 if counts.rejected else 0


def _how_to_correct(table: Table, folder: str) -> str:
    same = "" if table.rejects.format == table.format else f" and --format {table.rejects.format} without --option"
    return f"correct the rows in {folder}, then repeat the command with {folder} in place of {table.source}{same}"


class _Rows(NamedTuple):
    """The rows of a table, read by Spark or by this process, and the operations on them."""

    columns: Sequence[str]
    forecast: Callable[[], Forecast]
    twice: Callable[[], int]
    schedule: Callable[[], Counts]


def _need(given: tables.TableOptions, local: bool) -> None:
    """Raise MissingExtra for a missing package, and BadUse for options of Spark beside --local."""
    if not local:
        from delayq.spark.session import need_spark

        need_spark("delayq backfill")
        return
    if given.master or given.conf:
        raise BadUse("--local runs without Spark; remove --master and --conf")
    if any(find_spec(name) is None for name in ("numpy", "pyarrow")):
        raise MissingExtra("delayq backfill --local", "backfill")


@contextmanager
def _rows(
    client: Client | None, table: Table, options: dict[str, str], given: tables.TableOptions, *, local: bool
) -> Iterator[_Rows]:
    from delayq.spark.options import WriteOptions

    wanted = WriteOptions.parse(options)
    if local:
        from delayq.spark.jobs.without_spark import LocalTable

        found = LocalTable(table, wanted, given.settings, given.api)
        yield _Rows(found.columns, found.forecast, found.twice, found.schedule)
        return
    assert client is not None, "only --local has no Redis"
    from delayq.spark.jobs.forecast import forecast, twice
    from delayq.spark.rows.tables import messages_table
    from delayq.spark.session import session
    from delayq.spark.steps import step

    with session("delayq backfill", master=given.master, conf=tables.conf_of(given.conf)) as spark:
        with step(spark, "opening the table"):
            frame = messages_table(spark, table, wanted)
        yield _Rows(
            frame.columns,
            step(spark, "checking the rows")(partial(forecast, frame, wanted, given.settings)),
            step(spark, "searching for repeated ids")(partial(twice, frame, wanted)),
            partial(schedule_rows, client, frame, options),
        )


def schedule_rows(client: Client, frame: Any, options: dict[str, str]) -> Counts:
    """Schedule the rows of a DataFrame whose columns are fields, show the progress, and return the counts."""
    from delayq.spark.jobs.watched_write import rows_in, run_job
    from delayq.spark.steps import step

    with step(frame.sparkSession, "counting the rows"):
        total = rows_in(frame)
    progress = Progress("scheduling", "rows")
    progress.count(0, total)
    with progress:

        def show(counts: Counts) -> None:
            progress.count(counts.read, total, f"{counts.all_rejected:,} rejected" if counts.rejected else "")

        return run_job(frame, options, client, show)


def _warn_if_relative(columns: Sequence[str], settings: Settings) -> None:
    if any(name in columns for name in ("delay_time", "delay_level")):
        say(
            "due times count from the scheduling of a row; repeat this run only within "
            f"{settings.final_window // 1000} s (DELAYQ_FINAL_WINDOW) after its messages ended."
        )


def _print(run: str, counts: Counts, rejects: str, json: bool) -> None:
    if json:
        Output().json({"run": run, **counts_shape(counts), "rejects": rejects or None})
        return
    rows = [("run", run), *counts_rows(counts)]
    Output().fields([*rows, ("rejects", rejects)] if rejects else rows)
