"""Tests in several processes: those of a file stay together, those on one broker, and those in one Spark."""

from __future__ import annotations

import pytest

from tests.support.processes_of_tests import scope_of


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
    ],
)  # fmt: skip
def test_a_broker_and_a_session_of_spark_are_shared(test: str, scope: str) -> None:
    assert scope_of(test) == scope
