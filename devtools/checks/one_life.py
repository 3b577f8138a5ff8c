"""workers/queue/in_flight.py alone moves a message within a worker, and changes what is counted of it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import workers
from devtools.pages import at, read, tree
from workers.queue import cursor, in_flight, ordering, settlement, share
from workers.sending import circuit, message
from workers.sending.message import InFlightMessage

FOLDER: Final = Path(inspect.getfile(workers)).parent
LIFE: Final = Path(inspect.getfile(in_flight))
CURSOR: Final = Path(inspect.getfile(cursor))
OWNERS: Final = [Path(inspect.getfile(module)) for module in (circuit, message, ordering, settlement, share)]
#: Calling one of these methods moves a message, and so does assigning one of the fields.
METHODS: Final = {
    "enter", "leave", "clear_from", "keep_acks_only", "fit", "admits", "return_permit",
}  # fmt: skip
FIELDS: Final = {*InFlightMessage.__slots__, "waiting", "waiting_since", "sending"}


def complaints() -> Iterator[str]:
    """No other file moves a message or has the offset; every method and field that is looked for exists."""
    for path in sorted(FOLDER.rglob("*.py")):
        if path == LIFE:
            continue
        for line, what in _moves(path):
            yield at(path, line, f"{what}: only {LIFE.name} moves a message; give InFlight a method for it")
        before, found, _ = read(path).partition("Cursor(")
        if path != CURSOR and found:
            yield at(path, before.count("\n") + 1, f"only {LIFE.name} has the offset")
    moved = {what for _, what in _moves(LIFE)}
    owners = "".join(map(read, OWNERS))
    gone = {name for name in METHODS if f"it calls .{name}()" not in moved or f"def {name}(" not in owners}
    gone |= {name for name in FIELDS if not re.search(rf"self\.{name}\b", owners)}
    for name in sorted(gone):
        yield at(Path(__file__), 1, f"there is no {name} in a worker any more: look for its new name here")


def _moves(path: Path) -> Iterator[tuple[int, str]]:
    """The moves of a module that belong to another one, with their places."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not _is_self(node.value):
            if node.attr in FIELDS:
                yield node.lineno, f"it changes .{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _is_self(node.func.value):
            if node.func.attr in METHODS:
                yield node.lineno, f"it calls .{node.func.attr}()"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            yield node.lineno, f"it calls {node.func.id}()"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
