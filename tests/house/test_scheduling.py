"""Tests in several processes: those of a file stay together, and those on one broker or Spark; what takes long begins."""

from __future__ import annotations

import pytest

from tests.support.processes_of_tests import LONG, next_scope, scope_of
from tests.support.service import ROOT


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        ("tests/targets/test_kafka_faults.py::test_a", "kafka"),
        ("tests/targets/test_conformance.py::test_a[kafka]", "kafka"),
        ("tests/targets/test_conformance.py::test_a[log]", "tests/targets/test_conformance.py"),
        ("tests/house/test_brokers.py::test_kafka", "tests/house/test_brokers.py"),
        ("tests/spark/test_spark.py::test_a", "spark"),
        ("tests/backfill/test_many.py::test_a", "spark"),
        ("tests/backfill/test_standalone.py::test_a", "tests/backfill/test_standalone.py"),
        ("tests/deploy/test_compose_runs.py::test_a", "compose"),
        ("tests/deploy/test_compose_brokers.py::test_a", "compose"),
        ("tests/deploy/test_compose.py::test_a", "tests/deploy/test_compose.py"),
    ],
)  # fmt: skip
def test_a_broker_a_spark_and_a_stack_are_shared(test: str, scope: str) -> None:
    assert scope_of(test) == scope


def test_what_takes_longest_begins_and_the_rest_keeps_its_order() -> None:
    waiting = ["tests/a.py", LONG[2], "tests/b.py", LONG[1]]
    order = []
    while waiting:
        order.append(next_scope(waiting))
        waiting.remove(order[-1])
    assert order == [LONG[1], LONG[2], "tests/a.py", "tests/b.py"]


def test_what_is_listed_as_long_is_there() -> None:
    shared = {"compose", "kafka", "rabbitmq", "rocketmq", "spark"}
    assert [scope for scope in LONG if scope not in shared and not (ROOT / scope).is_file()] == []
