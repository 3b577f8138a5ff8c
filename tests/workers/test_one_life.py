"""The life of a message in a worker is in one file: no other one moves a message, or what is counted of it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import workers
from workers.queue import cursor, in_flight, ordering, settlement, share
from workers.sending import message
from workers.sending.message import InFlightMessage

ROOM = Path(inspect.getfile(workers)).parent
LIFE = Path(inspect.getfile(in_flight))
#: What is moved by calling it, and by assigning it.
VERBS = {
    "enter",
    "leave",
    "clear_from",
    "keep_acks_only",
    "admit",
    "crowded",
    "gate",
    "takes_permit",
    "returns_permit",
    "probe_failed",
}
COUNTED = {"waiting", "waiting_since", "sending", "bytes"}
FIELDS = {*InFlightMessage.__slots__, *COUNTED}


def moved_in(source: str) -> Iterator[str]:
    """What a module moves, but for what is its own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not _is_self(node.value):
            if node.attr in FIELDS:
                yield f"line {node.lineno} changes .{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _is_self(node.func.value):
            if node.func.attr in VERBS:
                yield f"line {node.lineno} calls .{node.func.attr}()"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            yield f"line {node.lineno} calls {node.func.id}()"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_only_one_file_moves_a_message() -> None:
    others = [path for path in ROOM.rglob("*.py") if path != LIFE]
    assert len(others) > 20
    moved = {str(path.relative_to(ROOM)): list(moved_in(path.read_text())) for path in others}
    assert {path: lines for path, lines in moved.items() if lines} == {}


def test_what_is_looked_for_is_there() -> None:
    """So that what is renamed is looked for by its new name."""
    moves = " ".join(moved_in(LIFE.read_text()))
    rooms = "".join(inspect.getsource(room) for room in (message, ordering, settlement, share))
    for name in VERBS:
        assert f".{name}()" in moves
        assert f"def {name}(" in rooms
    for name in FIELDS:
        assert f"self.{name}" in rooms


def test_nobody_else_has_the_offset() -> None:
    rewinding = [path for path in ROOM.rglob("*.py") if "Cursor(" in path.read_text()]
    assert {path.name for path in rewinding} <= {LIFE.name, Path(inspect.getfile(cursor)).name}
