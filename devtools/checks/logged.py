"""The events that the services log: docs/observability.md and devtools/sentences.py have each of them."""

from __future__ import annotations

import ast
import re
import string
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from devtools.pages import DOCS, ROOT, at, names_in, read, rows_after, tree
from devtools.sentences import SENTENCES

PAGE: Final = DOCS / "observability.md"
SENTENCES_FILE: Final = ROOT / "devtools" / "sentences.py"
SOURCES: Final = sorted(
    path for name in ("api", "coordinator", "delayq", "workers") for path in (ROOT / name).rglob("*.py")
)
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}
#: Events that several places log.
SHARED: Final = {"redis_trouble"}
_LOGGER: Final = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=\s*(?:structlog\.get_logger|logging\.getLogger)\(")


class Call(NamedTuple):
    """A call of a logger. `wrong` is the reason why the table cannot have it."""

    path: Path
    line: int
    event: str
    level: str
    fields: frozenset[str]
    wrong: str


@cache
def calls() -> tuple[Call, ...]:
    """All calls of loggers in the product."""
    return tuple(call for path in SOURCES for call in _calls_in(path))


def _calls_in(path: Path) -> Iterator[Call]:
    if "log" not in read(path):
        return
    for node in ast.walk(tree(path)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        logger = node.func.value
        if not (isinstance(logger, ast.Name) and logger.id.strip("_").endswith("log")):
            continue
        event, wrong = _event(node)
        fields = {one.arg for one in node.keywords if one.arg is not None}
        level = node.func.attr
        if level == "exception":
            level, fields = "error", fields | {"exception"}
        yield Call(path, node.lineno, event, level, frozenset(fields), wrong)


def _event(node: ast.Call) -> tuple[str, str]:
    """The event's name, and what is wrong with the call."""
    if len(node.args) != 1 or any(one.arg is None for one in node.keywords):
        return "", "a call of a logger has one event, and its fields by name: no other argument and no **"
    event = node.args[0]
    if not (isinstance(event, ast.Constant) and isinstance(event.value, str)):
        return "", "the event should be a literal"
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", event.value):
        return event.value, "an event is named by small letters and underscores"
    return event.value, ""


def complaints() -> Iterator[str]:
    """Each event has one place, one level, its row in the page, and a sentence that asks only for its fields."""
    by_event: dict[str, list[Call]] = defaultdict(list)
    for call in calls():
        if call.wrong:
            yield at(call.path, call.line, call.wrong)
        by_event[call.event].append(call)
    for event, found in by_event.items():
        last = found[-1]
        if len(found) > 1 and event not in SHARED:
            yield at(last.path, last.line, f"{event} is logged in {len(found)} places: an event has one place")
        if len({one.level for one in found}) > 1:
            yield at(last.path, last.line, f"{event} has several levels: an event has one")
    yield from _table(by_event)
    yield from _sentences(by_event)
    for path in SOURCES:
        for number, line in enumerate(read(path).splitlines(), start=1):
            if (made := _LOGGER.match(line)) and not made[1].strip("_").endswith("log"):
                yield at(path, number, f"call this logger log, not {made[1]}: events are found by that name")


def _table(by_event: dict[str, list[Call]]) -> Iterator[str]:
    rows = rows_after(PAGE, "<!-- events:")
    seen: set[str] = set()
    for line, (name, level, fields, *_) in rows:
        event = name.strip("`")
        found = by_event.get(event)
        if event in seen:
            yield at(PAGE, line, f"{event} has two rows: remove one")
        seen.add(event)
        if found is None:
            yield at(PAGE, line, f"nothing logs {event}: remove the row")
            continue
        wanted = frozenset[str]().union(*(one.fields for one in found))
        if (level, names_in(fields)) != (found[0].level, wanted):
            should = ", ".join(f"`{one}`" for one in sorted(wanted))
            yield at(PAGE, line, f"{event} is logged as {found[0].level} with {should or 'no fields'}: correct the row")
    for event in sorted(by_event.keys() - seen):
        yield at(PAGE, rows[-1].line, f"the event {event} has no row: add one")


def _sentences(by_event: dict[str, list[Call]]) -> Iterator[str]:
    if list(SENTENCES) != sorted(SENTENCES):
        yield at(SENTENCES_FILE, 1, "sort the sentences by event")
    for event in sorted(by_event.keys() ^ SENTENCES.keys()):
        yield at(SENTENCES_FILE, 1, f"{event} is either not logged or has no sentence: remove or write it")
    for call in calls():
        asked = {name for _, name, _, _ in string.Formatter().parse(SENTENCES.get(call.event, "")) if name is not None}
        if missing := asked - call.fields:
            yield at(
                call.path, call.line, f"the sentence of {call.event} asks for {', '.join(sorted(missing))}: give it"
            )
