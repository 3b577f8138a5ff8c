"""One write by the data source, watched from beside it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from delayq.clock import Clock, SystemClock
from delayq.errors import DelayqError, StoreError
from delayq.spark.counts import Counts
from delayq.spark.report import forget_report, read_report
from delayq.spark.source import DefaultSource
from delayq.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["rows_in", "run_job"]

LOOK_EVERY: Final = 500  # ms


def rows_in(frame: DataFrame) -> int:
    """How many rows there are; for most formats that means reading them once more."""
    return frame.count()


def run_job(
    frame: DataFrame, options: Mapping[str, str], store: Store, show: Callable[[Counts], None], clock: Clock | None = None
) -> Counts:
    """Schedule the rows; `show` is told now and then, from another thread, what has become of them so far."""
    name = secrets.token_hex(8)
    watch = _Watch(store, name, show, clock or SystemClock())
    frame.sparkSession.dataSource.register(DefaultSource)  # also where nobody has installed pyspark_delayq
    writer = frame.write.format("delayq").mode("append").option("report", name)
    for option, value in options.items():
        if value:
            writer = writer.option(option, value)
    watch.start()
    try:
        writer.save()
    finally:
        watch.stop()
    counts = read_report(store, name)
    forget_report(store, name)
    if counts is None:
        raise DelayqError("Spark says that all is done, but Redis has lost the report of what; run the same again")
    return counts


class _Watch:
    """A thread that looks at the report now and then; what it cannot read it shows later."""

    def __init__(self, store: Store, name: str, show: Callable[[Counts], None], clock: Clock) -> None:
        self._store, self._name, self._show, self._clock = store, name, show, clock
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
                counts = read_report(self._store, self._name)
            except StoreError:
                continue
            if counts is not None:
                self._show(counts)
