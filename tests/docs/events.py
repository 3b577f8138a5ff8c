"""The events that the services log, read from their code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.blocks import ROOT

__all__ = ["SOURCES", "Event", "calls"]

SOURCES: Final = sorted(
    path for name in ("api", "coordinator", "delayq", "workers") for path in (ROOT / name).rglob("*.py")
)
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}


class Event(NamedTuple):
    """An event as its call or its row has it."""

    level: str
    fields: frozenset[str]


def calls(path: Path) -> Iterator[tuple[str, Event]]:
    """The calls of loggers in a file, as events."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
            continue
        logger = node.func.value
        if not (isinstance(logger, ast.Name) and logger.id.strip("_").endswith("log")):
            continue
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        assert len(node.args) == 1, f"{where}: an event, and fields by their names"
        event = node.args[0]
        assert isinstance(event, ast.Constant) and isinstance(event.value, str), f"{where}: the event is a literal"
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.value), where
        fields = [one.arg for one in node.keywords]
        assert None not in fields, f"{where}: no ** among the fields"
        found = {field for field in fields if field is not None}
        if node.func.attr == "exception":
            found.add("exception")
        yield event.value, Event("error" if node.func.attr == "exception" else node.func.attr, frozenset(found))
