from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    """The page without its code blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors_of(page: Path) -> set[str]:
    """The names that GitHub gives to the headings."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text_of(page)))
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(text_of(page)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: there is no {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name}: {link} has no such heading"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_of_the_code_that_a_page_names_is_there(page: Path) -> None:
    folders = "delayq|api|workers|coordinator|testbed|devtools|reliability|tests"
    for name in re.findall(rf"`((?:{folders})/[\w./-]+)(?:::\w+)?`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page.name}: there is no {name}"


def test_every_finding_leads_into_the_runbook() -> None:
    sources = (ROOT / "delayq").rglob("*.py")
    named = {name for path in sources for name in re.findall(r'runbook="(\w+)"', path.read_text(encoding="utf-8"))}
    assert len(named) > 5
    assert named <= anchors_of(ROOT / "docs" / "runbook.md")
