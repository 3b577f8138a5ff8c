"""Where Spark looks for data sources: `format("delayq")` needs no registration."""

from __future__ import annotations

from delayq.spark.source import DefaultSource

__all__ = ["DefaultSource"]
