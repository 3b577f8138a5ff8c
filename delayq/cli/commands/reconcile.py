"""The command reconcile."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from delayq.base.terminal import Output, say
from delayq.cli import tables
from delayq.cli.commands.backfill import schedule_rows
from delayq.cli.forecast import counts_rows, counts_shape
from delayq.cli.options import AsJson, option

if TYPE_CHECKING:
    from delayq.spark.jobs.reconcile import Compared, Comparison
    from delayq.spark.writing.counts import Counts


@tables.takes_table
def reconcile(
    given: tables.TableOptions,
    report: Annotated[str, option("--report", metavar="DIR", help="New folder for the differences, as Parquet.")] = "",
    fix: Annotated[bool, option("--fix", help="Schedule missing messages.")] = False,
    json: AsJson = False,
) -> int:
    """Compare a table with the pending messages, by Spark.

    Exit 1 unless both are the same, or --fix has made them the same.
    """
    from delayq.spark.session import need_spark, session

    need_spark("delayq reconcile")
    from delayq.spark.jobs.reconcile import compare
    from delayq.spark.options import WriteOptions
    from delayq.spark.rows.tables import messages_table
    from delayq.spark.steps import step

    table, run = given.table({}), given.run_name
    options = given.write_options(table)
    wanted = WriteOptions.parse(options)
    counts: Counts | None = None
    with given.client() as client:
        client.context() if fix else client.reading()  # so that an unreachable Redis is reported before Spark starts
        if fix:
            client.warn_without_worker()
        with session("delayq reconcile", master=given.master, conf=tables.conf_of(given.conf)) as spark:
            with step(spark, "opening the table"):
                frame = messages_table(spark, table, wanted)
            with ExitStack() as kept:
                with step(spark, "comparing the table with Redis"):
                    found = kept.enter_context(compare(frame, wanted, client))
                if report:
                    with step(spark, "writing the report"):
                        _save(found, report)
                if fix and (found.compared.missing or found.compared.past or found.compared.wrong):
                    say(f"missing messages are scheduled as run {run}; delayq backfill undo {run} cancels them.")
                    counts = schedule_rows(client, found.rows("missing", "past", "wrong"), options)
                compared = found.compared
    _print(compared, run, counts, report, json)
    return 0 if _is_good(compared, counts) else 1


def _is_good(compared: Compared, fixed: Counts | None) -> bool:
    """Return whether exactly the messages of the table are pending."""
    if compared.different or compared.dead or compared.extra:
        return False
    if fixed is None:
        return not (compared.missing or compared.past or compared.wrong)
    return not fixed.rejected


def _save(found: Comparison, folder: str) -> None:
    parts = {"missing": found.rows("missing"), "past": found.rows("past"), "wrong": found.rows("wrong")}
    parts |= {"dead": found.rows("dead"), "different": found.different(), "extra": found.extra()}
    from delayq.spark.rows.origin import CARRIED

    for name, rows in parts.items():
        rows.drop(*CARRIED).write.mode("errorifexists").parquet(f"{folder.rstrip('/')}/{name}")


def _print(compared: Compared, run: str, fixed: Counts | None, report: str, json: bool) -> None:
    found: dict[str, Any] = msgspec.to_builtins(compared)
    if json:
        done = {"run": run, **counts_shape(fixed)} if fixed is not None else None
        Output().json({**found, "fixed": done, "report": report or None})
        return
    rows = [*found.items()]
    if fixed is not None:
        rows += [("run", run), *((f"fix: {name}", count) for name, count in counts_rows(fixed))]
    Output().fields([*rows, ("report", report)] if report else rows)
