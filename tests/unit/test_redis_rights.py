"""The list of rights in Redis has all that the code of each kind of process runs, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from delayq.store import rights, scripts
from delayq.store.rights import Needs
from tests.support.service import ROOT

#: Where each kind of process has its code, but for `delayq/store`.
CODE = (
    (rights.CLIENT, ("api", "delayq/client", "delayq/spark", "delayq/bridges", "delayq/care/accounts.py")),
    (
        rights.WORKER,
        ("workers", "coordinator", "delayq/targets/redis_stream", "delayq/care/accounts.py", "delayq/care/pools.py"),
    ),
    (rights.CLI, ("delayq/cli", "delayq/doctor", "delayq/care", "delayq/client")),
)
Runs = set[tuple[str, str]]


def words_of(call: ast.Call) -> Iterator[tuple[str, str]]:
    """The script or the plain command that a call makes a command of."""
    texts = [one.value for one in call.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if isinstance(call.func, ast.Name) and texts and isinstance(call.args[0], ast.Constant):
        if call.func.id == "Command" and texts[0]:
            yield "script", texts[0]
        elif call.func.id in ("plain", "every"):
            subcommand = texts[0] in ("XINFO", "CONFIG", "CLUSTER")
            yield "plain", "|".join(texts[: 1 + subcommand]).lower()


@cache
def functions() -> dict[str, tuple[Runs, set[str]]]:
    """Of each function of `delayq.store.commands` what it makes, and the names in it."""
    found: dict[str, tuple[Runs, set[str]]] = {}
    for path in (ROOT / "delayq" / "store" / "commands").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                walked = list(ast.walk(node))
                made = {one for call in walked if isinstance(call, ast.Call) for one in words_of(call)}
                found[node.name] = made, {one.id for one in walked if isinstance(one, ast.Name)} - {node.name}
    return found


def made_by(name: str) -> Runs:
    """What a function makes, and those that it calls."""
    made, names = functions()[name]
    return made.union(*(made_by(one) for one in names if one in functions()))


@cache
def run_in(path: Path) -> Runs:
    """What a file runs."""
    text = path.read_text(encoding="utf-8")
    if not re.search("commands|plain|every", text):
        return set()
    nodes = list(ast.walk(ast.parse(text)))
    imported = {
        one.asname or one.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("delayq.store.commands")
        for one in node.names
    }
    found: Runs = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            found.update(words_of(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "commands" and node.attr in functions():
                found.update(made_by(node.attr))
        elif isinstance(node, ast.Name) and node.id in imported and node.id in functions():
            found.update(made_by(node.id))
    return found


def run_by(places: Sequence[str]) -> Runs:
    """What the files at these places run."""
    files = [
        path for place in map(ROOT.joinpath, places) for path in (place.rglob("*.py") if place.is_dir() else (place,))
    ]
    return set[tuple[str, str]]().union(*map(run_in, files))


@pytest.mark.parametrize(("needs", "places"), CODE, ids=lambda one: one.processes if isinstance(one, Needs) else "")
def test_the_list_has_what_a_process_runs_and_nothing_else(needs: Needs, places: Sequence[str]) -> None:
    found = run_by(places)
    assert not {name for kind, name in found if kind == "script"} - needs.scripts - rights.CONSUMER.scripts
    plain = {name for kind, name in found if kind == "plain"}
    assert not plain - needs.plain - rights.CONSUMER.plain - rights.CONDITIONAL.keys()


def test_every_script_and_every_plain_command_belongs_to_a_process() -> None:
    listed = frozenset[str]().union(*(needs.scripts for needs in rights.PROCESSES))
    assert listed == set(scripts.NAMES)
    everywhere = {name for kind, name in run_by(["api", "workers", "coordinator", "delayq"]) if kind == "plain"}
    plain = frozenset[str]().union(*(needs.plain for needs in rights.PROCESSES))
    assert everywhere - rights.CONDITIONAL.keys() <= plain
    assert plain - everywhere == {"evalsha", "subscribe"}


def test_the_commands_of_a_script_are_read_from_its_text() -> None:
    assert {"zadd", "publish", "hmget"} <= scripts.called("schedule")
    assert scripts.called("takes") == {"xadd", "xinfo|stream"}
    assert "xadd" in scripts.called("pull") and "XADD" not in scripts.guarded("pull")
    assert scripts.guarded("get") == ()
