"""docs/observability.md has every metric that the code exports, with its type and its labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from delayq.embedded import EmbeddedServer
from devtools.exported_metrics import exported
from devtools.pages import DOCS, at, names_in, rows_after

PAGE: Final = DOCS / "observability.md"
#: The row for what each process exports of itself.
PROCESS: Final = "process_"


def complaints() -> Iterator[str]:
    """The table of metrics is what the code exports."""
    with EmbeddedServer() as server:
        found = {name: one for name, one in exported(server.url).items() if not name.startswith(PROCESS)}
    rows = rows_after(PAGE, "<!-- metrics:")
    seen = set()
    for line, (cell, kind, labels, *_) in rows:
        name = cell.strip("`")
        if name.startswith(PROCESS):
            continue
        seen.add(name)
        one = found.get(name)
        if one is None:
            yield at(PAGE, line, f"nothing exports {name}: remove the row")
        elif (kind, names_in(labels)) != (one.kind, one.labels):
            should = ", ".join(f"`{label}`" for label in sorted(one.labels))
            yield at(PAGE, line, f"{name} is a {one.kind} with {should or 'no labels'}: correct the row")
    for name in sorted(found.keys() - seen):
        yield at(PAGE, rows[-1].line, f"the metric {name} has no row: add one")
