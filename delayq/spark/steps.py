"""Shows the progress of a step of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delayq.base.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def step(spark: SparkSession, what: str) -> Iterator[None]:
    """Show the number of finished tasks of the running stages, while the block runs."""
    tracker = spark.sparkContext.statusTracker()

    def look(progress: Progress) -> None:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]  # None: it has ended meanwhile
        if known:
            done, total = sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
            progress.show(f"{done} of {total} tasks")

    with Progress(what, look=look):
        yield
