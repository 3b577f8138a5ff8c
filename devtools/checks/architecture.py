"""docs/architecture.md, compared with the folders and with the import contracts of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from devtools.checks.generated import differences
from devtools.checks.logged import SOURCES
from devtools.pages import DOCS, ROOT, at, read, rows_after

PAGE: Final = DOCS / "architecture.md"


def complaints() -> Iterator[str]:
    """Every folder of the product is named, every path exists, and the plan and the layers are complete."""
    text = read(PAGE)
    folders = rows_after(PAGE, "## The folders")
    named = {name for row in folders for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", " ".join(row.cells))}
    sources = [*SOURCES, *(ROOT / "delayq").rglob("*.lua")]
    for folder in sorted({path.parent.relative_to(ROOT).as_posix() for path in sources} - named):
        yield at(PAGE, folders[0].line, f"`{folder}` is missing: describe it")
    for number, line in enumerate(text.splitlines(), start=1):
        for name in re.findall(r"`([\w.]+(?:/[\w.]+)+)`", line):
            if not (ROOT / name).exists() and not (ROOT / "delayq/store/lua" / name).exists():
                yield at(PAGE, number, f"there is no {name}: name what there is now")
    yield from differences(PAGE, with_layers)
    yield from _plan(text)


def _plan(text: str) -> Iterator[str]:
    """The plan shows each room of the services and the way to Redis."""
    before, plan, *_ = text.split("```")
    begin = before.count("\n") + 1
    shown = set(re.findall(r"([a-z]+)/", plan)) | set(re.findall(r"(asgi|async_client)", plan))
    wanted = {path for service in ("api", "workers") for path in (ROOT / service).iterdir() if any(path.glob("*.py"))}
    wanted |= {path for path in (ROOT / "delayq/store").iterdir() if path.is_dir()}
    wanted |= {path for path in (ROOT / "delayq/store/lua").iterdir() if path.name != "include"}
    names = {path.name for path in wanted} - {"__pycache__"}
    targets = {path.name for path in (ROOT / "delayq/targets").iterdir() if path.is_dir()} - {"__pycache__"}
    for name in sorted(names - shown | {target for target in targets if target not in plan}):
        yield at(PAGE, begin, f"the plan has no {name}: draw it")


def with_layers(text: str) -> str:
    """The page with the layers of the import contracts."""
    head = "## The layers of packages\n"
    before, found, after = text.partition(head)
    table = re.search(r"^\| --- \| --- \|\n((?:\|.*\n)+)", after, re.MULTILINE)
    if not found or table is None:
        raise ValueError(f"docs/architecture.md:1: it needs a table below the line {head.strip()!r}")
    return before + head + after[: table.start(1)] + "".join(_layers()) + after[table.end(1) :]


def _layers() -> Iterator[str]:
    project: dict[str, Any] = tomllib.loads(read(Path(ROOT, "pyproject.toml")))
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            (where,) = contract.get("containers", ["all packages"])
            layers = [layer.replace(" | ", ", ") for layer in contract["layers"] if layer != "__main__"]
            name = where if " " in where else f"`{where.replace('.', '/')}`"
            yield f"| {name} | `{' › '.join(layers)}` |\n"
