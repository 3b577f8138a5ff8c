"""A write by the data source, whose progress another thread watches."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from delayq.base.clock import SystemClock
from delayq.base.errors import DelayqError, StoreError
from delayq.client.client import Client
from delayq.spark.source import DefaultSource
from delayq.spark.writing.counts import Counts
from delayq.spark.writing.report import read_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_EVERY: Final = 500  # ms


def rows_in(frame: DataFrame) -> int:
    """Return the number of rows; for most formats, that reads them once more."""
    return frame.count()


def run_job(
    frame: DataFrame,
    options: Mapping[str, str],
    client: Client,
    show: Callable[[Counts], None],
) -> Counts:
    """Schedule the rows; another thread calls `show` now and then with the outcome so far."""
    name = secrets.token_hex(8)
    watch = _Watch(client, name, show)
    frame.sparkSession.dataSource.register(DefaultSource)  # also without an installed pyspark_delayq
    writer = frame.write.format("delayq").mode("append").option("report", name)
    # Tasks know the zone of a session only if it was set. The session itself always has one, which --dry-run uses.
    here = {"timeZone": frame.sparkSession.conf.get("spark.sql.session.timeZone") or ""}
    for option, value in (here | dict(options)).items():
        if value:
            writer = writer.option(option, value)
    watch.start()
    try:
        writer.save()
    except Exception:
        # Rejected rows without a folder fail a write at its end. Here, their counts are the answer.
        total = _total(client, name)
        if total is None or not total.rejected or options.get("rejects"):
            raise
        return total
    finally:
        watch.stop()
    total = _total(client, name)
    if total is None:
        raise DelayqError("Spark has finished, but its report cannot be read from Redis; repeat the command")
    return total


def _total(client: Client, name: str) -> Counts | None:
    try:
        return read_report(client, name).total
    except StoreError:
        return None


class _Watch:
    """A thread that reads the report now and then. An unreadable report is shown later."""

    def __init__(self, client: Client, name: str, show: Callable[[Counts], None]) -> None:
        self._client, self._name, self._show = client, name, show
        self._clock = SystemClock()
        self._condition = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="backfill progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._stopped:
                    self._clock.wait(self._condition, LOOK_EVERY)
                if self._stopped:
                    return
            try:
                report = read_report(self._client, self._name)
            except StoreError:
                continue
            self._show(report.total or report.running)
