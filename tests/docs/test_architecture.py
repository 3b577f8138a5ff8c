"""docs/architecture.md, compared with the folders that there are and the import contracts that they keep."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from tests.docs.blocks import ROOT
from tests.docs.events import SOURCES

TEXT: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLAN: Final = TEXT.split("```")[1]


def rows(heading: str) -> list[list[str]]:
    table = re.findall(r"^\|.*\|$", TEXT.split(f"## {heading}\n")[1].split("\n## ")[0], re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def named() -> set[str]:
    """The folders that the rooms name."""
    text = " ".join(cell for row in rows("The rooms") for cell in row)
    return {name for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", text) if (ROOT / name).is_dir()}


def test_every_folder_of_the_product_is_named() -> None:
    folders = {path.parent.relative_to(ROOT).as_posix() for path in SOURCES}
    folders |= {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "delayq").rglob("*.lua")}
    assert folders - named() == set()


def test_every_path_that_it_names_is_there() -> None:
    for name in re.findall(r"`([\w.]+(?:/[\w.]+)+)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "delayq/store/lua" / name).exists(), name


def test_the_plan_shows_every_room_of_the_services_and_the_way_to_redis() -> None:
    shown = set(re.findall(r"([a-z]+)/", PLAN)) | set(re.findall(r"(asgi|async_client)", PLAN))
    for service in ("api", "workers"):
        inner = {path.name for path in (ROOT / service).iterdir() if path.is_dir() and any(path.glob("*.py"))}
        assert inner <= shown
    store = {path.name for path in (ROOT / "delayq/store").iterdir() if path.is_dir() and path.name != "__pycache__"}
    lua = {path.name for path in (ROOT / "delayq/store/lua").iterdir()} - {"include"}
    assert store | lua <= shown
    targets = {path.name for path in (ROOT / "delayq/targets").iterdir() if path.is_dir()} - {"__pycache__"}
    assert all(target in PLAN for target in targets)


def test_the_plan_fits_on_one_screen() -> None:
    lines = PLAN.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 120
    assert len({len(line) for line in lines if line[:1] in tuple("┌│└") and line[-1:] in tuple("┐│┘")}) == 1


def test_the_floors_are_those_of_the_import_contracts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {}
    for contract in project["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            (where,) = contract.get("containers", ["the whole"])
            floors = [[part.strip() for part in floor.split("|")] for floor in contract["layers"]]
            wanted[where.replace(".", "/")] = [floor for floor in floors if floor != ["__main__"]]
    told = {
        where.strip("`"): [floor.split(", ") for floor in floors.split(" › ")] for where, floors in rows("The floors")
    }
    assert told == wanted


def test_it_is_found_from_the_first_pages() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "(docs/architecture.md)" in (ROOT / page).read_text(encoding="utf-8")
