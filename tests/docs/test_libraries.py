"""docs/libraries.md, compared with the code: what is private to a library is used where the page says, and nowhere else."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.docs.blocks import ROOT
from tests.docs.events import SOURCES

TEXT: Final = (ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
#: Begins with an underscore and is public all the same: what a named tuple has; constants of librdkafka's errors.
PUBLIC: Final = re.compile(r"_(replace|asdict|fields|make|[A-Z_]+)")


def rows() -> Iterator[list[str]]:
    table = TEXT.split("<!-- libraries: ")[1].split("\n\n")[1]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.split("|")[1:-1]]


def parsed(path: Path) -> tuple[set[str], set[str]]:
    """The names that a file gives to something, and the modules that it imports from."""
    own: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store())
            ):
                own.add(name)
            case ast.Constant(value=str() as name):  # of __slots__, or of a named tuple made by a call
                own.add(name)
            case ast.ImportFrom(module=str() as module):
                modules.add(module)
    return own, modules


def private(path: Path) -> Iterator[str]:
    """The private names that a file uses and that are not ours: attributes, imports, and entries of sys.modules."""
    own, modules = parsed(path)
    inherited = set(own)
    for module in modules:
        if (file := ROOT / f"{module.replace('.', '/')}.py").is_file():
            inherited |= parsed(file)[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found: list[str] = []
        match node:
            case ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                yield "sys.modules"
            case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls")):
                found = [name] if name not in inherited else []
            case ast.Attribute(attr=name, value=ast.Attribute()):  # of what something has
                found = [name]
            case ast.Attribute(attr=name):
                found = [name] if name not in own else []
            case ast.ImportFrom(names=names):
                found = [one.name for one in names]
        for name in found:
            if name.startswith("_") and not name.startswith("__") and not PUBLIC.fullmatch(name):
                yield name


def test_the_page_has_every_private_name_and_the_file_that_uses_it() -> None:
    used = {(path.relative_to(ROOT).as_posix(), name) for path in SOURCES for name in private(path)}
    told = {
        (where.strip("`"), name)
        for _, what, where, *_ in rows()
        for name in re.findall(r"`([\w.]+)`", what)
        if name.startswith("_") or name == "sys.modules"
    }
    assert used == told


def test_the_bounds_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    bounds = {re.sub(r"\[hiredis\]", "", one) for one in asked}
    assert {library.strip("`") for library, *_ in rows()} <= bounds


def test_the_files_and_tests_that_it_names_are_there() -> None:
    for _, _, where, _, noticed in rows():
        for name in (where, noticed):
            assert (ROOT / name.strip("`")).is_file(), name


def test_what_is_private_is_found() -> None:
    assert set(private(ROOT / "delayq/targets/rabbitmq/publisher.py")) == {"_output_marshaled_frames"}
    assert set(private(ROOT / "delayq/targets/rocketmq/client.py")) == {"sys.modules"}
