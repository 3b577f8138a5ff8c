"""Which tests are long, which run in the same process when they run in several, and which of them begin.

A file's tests stay together, and those that share what takes long to start: a broker, a session of Spark, the stack of
docker-compose.yml, or the messages that the console shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

__all__ = ["BEGIN", "Scheduling", "is_long", "next_scope", "scope_of"]

_BROKER: Final = re.compile(r"(kafka|rabbitmq|rocketmq)")
#: Those that need a session of Spark, which takes long to start.
_SPARK: Final = re.compile(r"tests/(spark/test_spark|backfill/test_(?!standalone|own_spark|submit)\w+)\.py")
#: Those on the stack of docker-compose.yml.
_COMPOSE: Final = re.compile(r"tests/deploy/test_compose_\w+\.py")

#: Those that look at the console by a browser.
_CONSOLE: Final = re.compile(r"tests/console/test_\w+\.py")

#: Fixtures that start what takes long. Who uses one is long.
STARTED: Final = frozenset({"chromium", "kafka", "rabbitmq", "rocketmq", "spark"})
#: What else is long: commands that start a Spark, its clusters, brokers of one's own, the image, the chart, the stack, chaos
#: and soak, whether the state machine fails as it should, and single tests that take ten seconds of CPU or half a minute.
LONG: Final = (
    r"tests/backfill/test_(?!local)\w+\.py",
    r"tests/faults/test_i_pauses\.py::test_i6_a_million",
    r"tests/benchmarks/test_steady_cost\.py::test_all_is_measured",
    r"tests/benchmarks/test_real_runs\.py::test_access_measures_",
    r"tests/bridges/test_rabbitmq_bridge\.py",
    r"tests/chaos/test_(commandline|negative_controls)\.py",
    r"tests/deploy/test_(chart|compose|image_build)\w*\.py",
    r"tests/docs/test_(kubernetes|migrating)\.py",
    r"tests/faults/test_d_limits\.py::test_d9_",
    r"tests/faults/test_i_pauses\.py::test_i2_",
    r"tests/house/test_dev_up\.py::test_the_demo_has_",
    r"tests/house/test_own_rabbitmq\.py",
    r"tests/model/test_protocol_model\.py::test_without_fencing_",
    r"tests/soak/test_commandline\.py",
    r"tests/spark/test_spark\.py",
    r"tests/targets/test_conformance\.py::.*\[(kafka|rabbitmq|rocketmq)",
    r"tests/targets/test_(kafka_cluster|kafka_faults|rabbitmq_node|rabbitmq_outages|rabbitmq_tls|rocketmq_broker)\.py",
    r"tests/workers/test_resharding\.py::test_twice_under_load_",
    r"tests/\w+/test_\w+\.py::test_a_real_(kafka|rocketmq)_",
)
_LONG: Final = re.compile("|".join(LONG))

#: What takes longest, longest first: begun last, it would be waited for by idle cores. The others keep the order of xdist:
#: files of many tests come first.
BEGIN: Final = (
    "tests/chaos/test_negative_controls.py",
    "tests/faults/test_i_pauses.py",
    "spark",
    "kafka",
    "rocketmq",
    "console",
    "compose",
    "rabbitmq",
    "tests/house/test_dev_up.py",
    "tests/faults/test_c_owners.py",
    "tests/faults/test_c_zookeeper.py",
    "tests/benchmarks/test_given.py",
    "tests/faults/test_a_disk.py",
    "tests/workers/test_resharding.py",
    "tests/benchmarks/test_real_runs.py",
    "tests/faults/test_d_kills.py",
    "tests/model/test_protocol_model.py",
    "tests/faults/test_b_partitions.py",
    "tests/faults/test_d_inside.py",
    "tests/faults/test_d_limits.py",
    "tests/targets/test_parking.py",
    "tests/deploy/test_image_build.py",
    "tests/store/test_sentinel.py",
    "tests/chaos/test_commandline.py",
)


def is_long(test: str, fixtures: Collection[str]) -> bool:
    """Whether a test is left to `./dev test --long`; `fixtures` are all that it uses."""
    return not STARTED.isdisjoint(fixtures) or _LONG.match(test) is not None


def scope_of(test: str) -> str:
    """'spark', 'compose', 'console', the broker that a test of a target names in its file or parameters, or the test's file."""
    file = test.partition("::")[0]
    for scope, files in {"spark": _SPARK, "compose": _COMPOSE, "console": _CONSOLE}.items():
        if files.fullmatch(file):
            return scope
    found = _BROKER.search(test) if file.startswith("tests/targets/") else None
    return found[1] if found else file


def next_scope(waiting: Iterable[str]) -> str:
    """Which of these to begin with; what does not take long keeps its order."""
    places = {scope: place for place, scope in enumerate(BEGIN)}
    return min(waiting, key=lambda scope: places.get(scope, len(BEGIN)))


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but for that."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(next_scope(self.workqueue), last=False)
        super()._assign_work_unit(node)
