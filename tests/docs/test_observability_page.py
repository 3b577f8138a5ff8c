"""docs/observability.md, compared with the code in both directions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from delayq import Client
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.events import SOURCES, Event, calls
from tests.observability.exported import exported
from tests.support.servers import ServerUnderTest

PAGE: Final = ROOT / "docs" / "observability.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")


def rows(mark: str) -> Iterator[list[str]]:
    """The rows of the table behind a mark, cell by cell."""
    table = TEXT.split(f"<!-- {mark}: ")[1].split("\n\n")[1]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def names(cell: str) -> frozenset[str]:
    return frozenset(re.findall(r"`([^`]+)`", cell))


# -- metrics -------------------------------------------------------------------------------------------------------------


def test_the_table_of_metrics_is_what_the_code_exports(valkey: ServerUnderTest) -> None:
    written = {cells[0].strip("`"): (cells[1], names(cells[2])) for cells in rows("metrics")}
    assert written.pop("process_…") == ("", frozenset())
    found = exported(valkey.url)
    own = {name: (one.kind, one.labels) for name, one in found.items() if not name.startswith("process_")}
    assert any(name.startswith("process_") for name in found)
    assert written == own


# -- events --------------------------------------------------------------------------------------------------------------


def test_the_table_of_events_is_what_the_code_logs() -> None:
    found: dict[str, set[Event]] = defaultdict(set)
    for path in SOURCES:
        for name, event in calls(path):
            found[name].add(event)
    levels = {name: {one.level for one in events} for name, events in found.items()}
    assert {name: one for name, one in levels.items() if len(one) > 1} == {}, "an event has one level"
    logged = {
        name: Event(min(levels[name]), frozenset().union(*(one.fields for one in events)))
        for name, events in found.items()
    }
    table = list(rows("events"))
    written = {cells[0].strip("`"): Event(cells[1], names(cells[2])) for cells in table}
    assert len(written) == len(table), "an event has one row"
    assert written == logged


def test_loggers_have_names_that_the_scan_knows() -> None:
    made = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:structlog\.get_logger|logging\.getLogger)\(", re.MULTILINE)
    for path in SOURCES:
        for name in made.findall(path.read_text(encoding="utf-8")):
            assert name.strip("_").endswith("log"), f"{path}: {name}"


def test_each_event_happens_in_one_place_but_for_trouble_with_redis() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        for name, _ in calls(path):
            counts[name] += 1
    assert {name for name, count in counts.items() if count > 1} == {"redis_trouble"}


# -- the example ---------------------------------------------------------------------------------------------------------


def test_the_example_of_the_client_runs(valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYQ_ROUTES", raising=False)
    (block,) = (one for one in blocks_of(PAGE) if one.note.endswith("test_observability_page.py"))
    url = "redis://127.0.0.1:6389/0"
    assert url in block.text
    exec(compile(block.text.replace(url, valkey.url), str(block), "exec"), {})
    with Client(valkey.url) as client:
        assert sum(one.scheduled for one in client.stats()) == 1
