"""Which tests run in the same process when they run in several, and which of them begin.

A file's tests stay together, and those that share what takes long to start: a broker, a session of Spark, or the stack of
docker-compose.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from xdist.scheduler import LoadFileScheduling

__all__ = ["LONG", "Scheduling", "next_scope", "scope_of"]

_BROKER = re.compile(r"(kafka|rabbitmq|rocketmq)")
#: Those that need a session of Spark, which takes long to start.
_SPARK = re.compile(r"tests/(spark/test_spark|backfill/test_(?!standalone|own_spark|submit)\w+)\.py")
#: Those on the stack of docker-compose.yml.
_COMPOSE = re.compile(r"tests/deploy/test_compose_\w+\.py")
#: What takes longest, longest first: begun last, it would be waited for by idle cores. The others go by their number of
#: tests.
LONG = (
    "tests/chaos/test_negative_controls.py",
    "spark",
    "kafka",
    "rocketmq",
    "tests/workers/test_resharding.py",
    "compose",
    "rabbitmq",
    "tests/protocol/test_state_machine.py",
    "tests/recovery/test_big_backlogs.py",
    "tests/model/test_protocol_model.py",
    "tests/deploy/test_image_build.py",
    "tests/store/test_sentinel.py",
    "tests/chaos/test_commandline.py",
)


def scope_of(test: str) -> str:
    """'spark', 'compose', or the broker that a test of a target names, in its file or its parameters; else the test's file."""
    file = test.partition("::")[0]
    for scope, files in {"spark": _SPARK, "compose": _COMPOSE}.items():
        if files.fullmatch(file):
            return scope
    found = _BROKER.search(test) if file.startswith("tests/targets/") else None
    return found[1] if found else file


def next_scope(waiting: Iterable[str]) -> str:
    """Which of these to begin with; what does not take long keeps its order."""
    places = {scope: place for place, scope in enumerate(LONG)}
    return min(waiting, key=lambda scope: places.get(scope, len(LONG)))


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but for that."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(next_scope(self.workqueue), last=False)
        super()._assign_work_unit(node)
