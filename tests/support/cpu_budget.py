"""A pytest plugin that keeps each test within its CPU time: 3 s in the default layer, 15 s in the others.

It counts the test's process and all processes below it, without fixtures of a wider scope than one test, builds and
generators. A test above the limit is listed at the end. A test above twice the limit fails the run, since load alone
inflates CPU time by less than that. `./dev test --all` tries many more examples, so it only lists.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator
from typing import Any, Final, cast

import pytest

from tests.support.amounts import ALL

DEFAULT_SECONDS: Final = 3.0
LONG_SECONDS: Final = 15.0
#: A test above this multiple of its limit fails the run.
INFLATION: Final = 2.0

#: What may take more, with the reason. A path that begins like this is listed no more and fails no run.
EXCEPTIONS: Final = {
    "tests/reliability/": "a run of chaos is worth the faults that it sees, and the models search every state",
    "tests/benchmarks/test_smoke.py": "a benchmark loads servers as heavily as it can",
    "tests/deploy/test_image_build.py": "the image is built, and runs an API and a worker",
    "tests/house/test_release_parts.py": "the parts of a release are built and installed",
    "tests/docs/test_blocks.py::test_the_page_is_a_story_that_works[docs/cli.md]": "the page has some forty commands, "
    "and each is a process",
    "tests/clients/test_generators.py": "compilers read tens of thousands of generated lines",
    "tests/backfill/test_away.py": "the first jobs of the Spark session, whose JVM compiles its classes meanwhile",
    "tests/backfill/test_backfill.py": "jobs of Spark over tables of up to a million rows",
    "tests/backfill/test_own_spark.py": "each test starts a Spark",
    "tests/backfill/test_page.py": "eight jobs of Spark, one after the other",
    "tests/backfill/test_standalone.py": "a cluster of Spark",
}

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PROPERTY: Final = "cpu_seconds"


class ProcessTree:
    """The CPU time of this process and of all below it, those that have ended included."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}

    def seconds(self) -> float:
        mine = resource.getrusage(resource.RUSAGE_SELF)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = mine.ru_utime + mine.ru_stime + ended.ru_utime + ended.ru_stime
        return total + sum(_seconds_of(pid) for pid in self._descendants())

    def _descendants(self) -> list[int]:
        live = {int(name) for name in os.listdir("/proc") if name.isdecimal()} if os.path.isdir("/proc") else set()
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in live}
        for pid in live - self._parents.keys():
            self._parents[pid] = _parent_of(pid)
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        found: list[int] = []
        waiting = [os.getpid()]
        while waiting:
            below = children.get(waiting.pop(), [])
            found += below
            waiting += below
        return found


def _fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def _parent_of(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _seconds_of(pid: int) -> float:
    """Own time and that of children that have ended."""
    fields = _fields(pid)
    return sum(int(field) for field in fields[11:15]) / _TICK if fields else 0.0


class CpuBudget:
    """Measures in the processes that run tests, and judges in the one that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._tree = ProcessTree()
        self._uncounted = 0.0
        self._over: list[tuple[float, float, str]] = []
        self._reports = not hasattr(config, "workerinput")
        self.began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before, uncounted = self._tree.seconds(), self._uncounted
        try:
            return (yield)
        finally:
            # A fixture may set up others inside of it, which are counted by then.
            self._uncounted = uncounted + self._tree.seconds() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._uncounted = 0.0
        self._before = self._tree.seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "call":
            used = self._tree.seconds() - self._before - self._uncounted
            limit = LONG_SECONDS if any(map(item.get_closest_marker, ("long", "release"))) else DEFAULT_SECONDS
            report.user_properties.append((_PROPERTY, (round(used, 2), limit)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._reports or report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY and not report.nodeid.startswith(tuple(EXCEPTIONS)):
                used, limit = cast("tuple[float, float]", value)
                if used > limit:
                    self._over.append((used, limit, report.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        too_much = not ALL and any(used > INFLATION * limit for used, limit, _ in self._over)
        if self._reports and too_much and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._over:
            return
        terminalreporter.section("CPU time")
        for used, limit, test in sorted(self._over, reverse=True):
            verdict = "FAILED: more than twice the limit of" if used > INFLATION * limit else "above the limit of"
            terminalreporter.write_line(f"{used:6.1f} s, {verdict} {limit:.0f} s: {test}")
