"""Which tests run in the same process when they run in several: a file's, and those that share a broker or a Spark."""

from __future__ import annotations

import re

from xdist.scheduler import LoadFileScheduling

__all__ = ["Scheduling", "scope_of"]

_BROKER = re.compile(r"(kafka|rabbitmq|rocketmq)")
#: Those that need a session of Spark, which takes long to start.
_SPARK = re.compile(r"tests/(spark/test_spark|backfill/test_(?!standalone|own_spark|submit)\w+)\.py")


def scope_of(test: str) -> str:
    """The broker that a test of a target names, in its file or its parameters; Spark's session; else the test's file."""
    file = test.partition("::")[0]
    if _SPARK.fullmatch(file):
        return "spark"
    found = _BROKER.search(test) if file.startswith("tests/targets/") else None
    return found[1] if found else file


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but for that."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
