"""Links of the pages, the index of docs/, the files of the code that pages name, and how their code blocks are run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from devtools.pages import DOCS, PAGES, ROOT, at, blocks_of, read

#: Languages of blocks that tests/docs/test_blocks.py runs.
RUNNABLE: Final = ("bash", "python")
#: Languages of blocks that are only read.
READ_ONLY: Final = ("text", "http")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_FOLDERS: Final = "delayq|api|workers|coordinator|testbed|devtools|reliability|benchmarks|tests"
_FILE: Final = re.compile(rf"`((?:{_FOLDERS})/[\w./-]+)(?:::\w+)?`")
FINDINGS: Final = 6  # at least; fewer are found if they are written in another way
_FINDING: Final = re.compile(r'runbook="(\w+)"')
INDEX: Final = DOCS / "README.md"


@cache
def _prose(page: Path) -> str:
    """The page without its code blocks, line by line where it was."""
    return _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), read(page))


@cache
def _anchors(page: Path) -> frozenset[str]:
    """The names that GitHub gives to the headings."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_prose(page)))
    return frozenset(heading.replace(" ", "-") for heading in headings)


def lead_somewhere() -> Iterator[str]:
    """Each link leads to a file and a heading, each named file exists, and each finding has its section in the runbook."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for found in _LINK.finditer(_prose(page)):  # its words may go over several lines
            if not re.match(r"https?://", found[1]) and (wrong := _wrong(page, found[1])):
                number = _prose(page).count("\n", 0, found.start(1)) + 1
                yield at(page, number, f"{wrong}: correct the link or write what it leads to")
        for number, line in enumerate(read(page).splitlines(), start=1):
            for name in _FILE.findall(line):
                if not (ROOT / name).exists():
                    yield at(page, number, f"there is no {name}: name the file that does this now")
    known = _anchors(DOCS / "runbook.md")
    named = set()
    for path in sorted((ROOT / "delayq").rglob("*.py")):
        for number, line in enumerate(read(path).splitlines(), start=1):
            for name in _FINDING.findall(line):
                named.add(name)
                if name not in known:
                    yield at(path, number, f"docs/runbook.md has no section {name}: write it")
    if len(named) < FINDINGS:
        yield at(
            Path(__file__), 1, f"{len(named)} findings name a section of the runbook: look here for how they do it now"
        )


def _wrong(page: Path, link: str) -> str:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"there is no {link}"
    return f"{link} has no such heading" if anchor and anchor not in _anchors(target) else ""


def index_is_complete() -> Iterator[str]:
    """docs/README.md has a link to each page of docs/."""
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in _LINK.findall(_prose(INDEX))}
    for page in PAGES:
        if page.is_relative_to(DOCS) and page != INDEX and page not in listed:
            yield at(INDEX, 1, f"it does not list {page.relative_to(DOCS)}: add a link to one of its sections")


def blocks_are_run() -> Iterator[str]:
    """Each code block is run by tests/docs/test_blocks.py or names the test that runs it, or is only to be read."""
    for page in PAGES:
        for block in blocks_of(page):
            verb, _, test = block.note.partition(" by ")
            if verb == "run":
                path = ROOT / test
                if not test.startswith("tests/") or not (path.is_file() or any(path.glob("test_*.py"))):
                    yield at(page, block.line - 1, f"{test} is not a test: name the one that runs this block")
            elif not block.note and block.language not in (*RUNNABLE, *READ_ONLY):
                yield at(
                    page, block.line, "write above it what is done with this block (devtools/pages.py lists the notes)"
                )
