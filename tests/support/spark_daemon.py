"""Spark's parent of Python workers, with what each of them would import anew: a worker is forked for every read and write."""

from __future__ import annotations

import pandas  # noqa: F401 - so that workers have it
from pyspark.daemon import manager

import delayq.spark.reading
import delayq.spark.source
import delayq.spark.writing  # noqa: F401 - the same

if __name__ == "__main__":
    manager()
