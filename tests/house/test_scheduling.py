"""Which tests are long, which share a process, and which begin."""

from __future__ import annotations

import re

import pytest

from tests.support.processes_of_tests import BEGIN, LONG, is_long, next_scope, scope_of
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
        ("tests/console/test_pages.py::test_a", "console"),
        ("tests/deploy/test_compose.py::test_a", "tests/deploy/test_compose.py"),
    ],
)  # fmt: skip
def test_a_broker_a_spark_a_stack_and_what_the_console_shows_are_shared(test: str, scope: str) -> None:
    assert scope_of(test) == scope


def test_what_takes_longest_begins_and_the_rest_keeps_its_order() -> None:
    waiting = ["tests/a.py", BEGIN[2], "tests/b.py", BEGIN[1]]
    order = []
    while waiting:
        order.append(next_scope(waiting))
        waiting.remove(order[-1])
    assert order == [BEGIN[1], BEGIN[2], "tests/a.py", "tests/b.py"]


def test_what_is_listed_as_to_begin_is_there() -> None:
    shared = {"compose", "console", "kafka", "rabbitmq", "rocketmq", "spark"}
    assert [scope for scope in BEGIN if scope not in shared and not (ROOT / scope).is_file()] == []


@pytest.mark.parametrize(
    ("test", "fixtures", "long"),
    [
        ("tests/chaos/test_commandline.py::test_a", (), True),
        ("tests/chaos/test_checker.py::test_a", (), False),
        ("tests/console/test_pages.py::test_a", ("pages", "chromium"), True),
        ("tests/deploy/test_chart_notes.py::test_a", (), True),
        ("tests/house/test_brokers.py::test_a_real_kafka_goes_on", (), True),
        ("tests/house/test_brokers.py::test_up_starts_all", ("tmp_path",), False),
        ("tests/targets/test_conformance.py::test_a[kafka]", ("request",), True),
        ("tests/targets/test_conformance.py::test_a[webhook]", ("request",), False),
        ("tests/targets/test_kafka_node.py::test_a", ("valkey", "kafka"), True),
        ("tests/targets/test_kafka_target.py::test_a", ("valkey",), False),
    ],
)  # fmt: skip
def test_real_brokers_browsers_spark_chart_and_chaos_are_long(test: str, fixtures: tuple[str, ...], long: bool) -> None:
    assert is_long(test, fixtures) is long


@pytest.mark.parametrize("pattern", LONG)
def test_what_is_listed_as_long_is_there(pattern: str) -> None:
    tests = (
        f"{path.relative_to(ROOT)}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    )
    assert any(re.match(pattern, f"{test}[{broker}]") for test in tests for broker in ("kafka", "rocketmq"))
