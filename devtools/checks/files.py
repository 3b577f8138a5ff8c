"""Files that newcomers look for, programs that are run by name, and the pinned versions of the image."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module, metadata
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools import constraints
from devtools.pages import ROOT, at, read

EXPECTED: Final = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", ".gitignore", "docs/openapi.json")
PROGRAMS: Final = ("dev", ".ci/run")
#: The one package under tests/: another one could hide a service of the same name.
PACKAGES: Final = {"tests/targets/adapters"}
_AGAIN: Final = "write the file again with python -m devtools.constraints"
NODE: Final = ROOT / "workers" / "node" / "node.py"


def are_there() -> Iterator[str]:
    """Expected files exist, programs can be run, the changelog has this version, no package hides a service."""
    for name in EXPECTED:
        path = ROOT / name
        if not path.is_file() or not path.stat().st_size:
            yield at(path, 1, "it is missing or empty: write it")
    for name in PROGRAMS:
        if not os.access(ROOT / name, os.X_OK):
            yield at(ROOT / name, 1, f"it cannot be run: chmod +x {name}")
    for words in ("Apache License", "END OF TERMS AND CONDITIONS"):
        if words not in read(ROOT / "LICENSE"):
            yield at(ROOT / "LICENSE", 1, f"{words!r} is missing: it should be the Apache License 2.0")
    version = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["version"]
    if f"## {version}" not in read(ROOT / "CHANGELOG.md"):
        yield at(ROOT / "CHANGELOG.md", 1, f"the version {version} is missing: add its section")
    for path in (ROOT / "tests").rglob("__init__.py"):
        if path.parent.relative_to(ROOT).as_posix() not in PACKAGES:
            yield at(path, 1, "no package under tests/: it could hide a service of the same name. Remove this file")


def pin_the_image() -> Iterator[str]:
    """deploy/constraints.txt pins each package that the image gets, within its bounds, and is sorted."""
    path = constraints.FILE
    pins: dict[str, str] = {}
    before = ""
    for number, line in enumerate(read(path).splitlines(), start=1):
        if line.startswith("#"):
            continue
        name, _, version = line.partition("==")
        if name <= before or name != canonicalize_name(name):
            yield at(path, number, f"{name}: names should be sorted, unique and canonical; {_AGAIN}")
        pins[name] = version
        before = name
    for wanted, by in _wanted(pins):
        pinned = pins.get(canonicalize_name(wanted.name))
        if pinned is None or pinned not in wanted.specifier:
            yield at(path, 1, f"{by} needs {wanted}, and {pinned or 'nothing'} is pinned; {_AGAIN}")


def _wanted(pins: dict[str, str]) -> Iterator[tuple[Requirement, str]]:
    """Every requirement of the image in pyproject.toml, and of the packages installed here, is pinned to its version."""
    waiting = [(one, "pyproject.toml") for one in constraints.requirements()]
    seen = set()
    while waiting:
        wanted, by = waiting.pop()
        yield wanted, by
        name = canonicalize_name(wanted.name)
        for extra in {"", *wanted.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [(one, name) for one in _needs(name, extra, pins)]


def _needs(name: str, extra: str, pins: dict[str, str]) -> list[Requirement]:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # the layer that runs here does without it
        return []
    if package.version != pins.get(name):
        return []
    parts = map(Requirement, package.requires or ())
    environment = {**constraints.image(), "extra": extra}
    return [part for part in parts if part.marker is None or part.marker.evaluate(environment)]


def import_no_kazoo() -> Iterator[str]:
    """A worker, an API and a command line without a ZooKeeper do without kazoo: no check before this one may need it."""
    for module in ("workers.node.node", "coordinator", "api.app", "delayq.cli.app"):
        import_module(module)
    if found := [name for name in sys.modules if re.match(r"kazoo\b", name)]:
        yield at(NODE, 1, f"it imports {found[0]}: import coordinator.zookeeper only where a ZooKeeper is configured")
