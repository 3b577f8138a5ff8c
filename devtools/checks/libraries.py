"""Private names of a library are used only where docs/libraries.md lists them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from devtools.checks.logged import SOURCES
from devtools.pages import DOCS, ROOT, at, read, rows_after, tree

PAGE: Final = DOCS / "libraries.md"
#: Public in spite of the underscore: what a named tuple has, os._exit, and constants of librdkafka's errors.
PUBLIC: Final = re.compile(r"_(replace|asdict|fields|make|exit|[A-Z_]+)")


@cache
def _parsed(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a file gives to something, and the modules that it imports from."""
    own: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(tree(path)):
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
    return frozenset(own), frozenset(modules)


def _private(path: Path) -> Iterator[tuple[int, str]]:
    """The private names that a file uses and that are not ours: attributes, imports, and entries of sys.modules."""
    own, modules = _parsed(path)
    inherited = set(own)
    for module in modules:
        if (file := ROOT / f"{module.replace('.', '/')}.py").is_file():
            inherited |= _parsed(file)[0]
    for node in ast.walk(tree(path)):
        found: list[str] = []
        match node:
            case ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                yield node.lineno, "sys.modules"
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
                yield getattr(node, "lineno", 1), name


def complaints() -> Iterator[str]:
    """The page has each private name and the file that uses it; its bounds, files and tests are right."""
    used = {
        (path.relative_to(ROOT).as_posix(), name): (path, line) for path in SOURCES for line, name in _private(path)
    }
    bounds = _bounds()
    named: set[tuple[str, str]] = set()
    for line, (library, what, where, _, noticed) in rows_after(PAGE, "<!-- libraries:"):
        for name in re.findall(r"`([\w.]+)`", what):
            if name.startswith("_") or name == "sys.modules":
                named.add((where.strip("`"), name))
                if (where.strip("`"), name) not in used:
                    yield at(PAGE, line, f"{where} does not use {name}: correct the row")
        if library.strip("`") not in bounds:
            yield at(PAGE, line, f"pyproject.toml has no {library}: write the bounds as they are there")
        for name in (where, noticed):
            if not (ROOT / name.strip("`")).is_file():
                yield at(PAGE, line, f"there is no {name}: name the file that there is now")
    for (_, name), (path, number) in used.items():
        if (path.relative_to(ROOT).as_posix(), name) not in named:
            yield at(
                path, number, f"{name} is private to a library: do without it, or give it a row in docs/libraries.md"
            )


def _bounds() -> set[str]:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return {one.replace("[hiredis]", "") for one in asked}
