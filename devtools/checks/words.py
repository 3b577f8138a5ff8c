"""README.md, the decisions and the glossary: their form. The length of each page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from devtools.pages import DOCS, PAGES, ROOT, at, read

README: Final = ROOT / "README.md"
#: Words that a page has at most, as `wc -w` counts them, and those of any other page.
PAGE_WORDS: Final = {
    "README.md": 1_200, "docs/targets.md": 1_500, "docs/http.md": 4_000, "docs/faults.md": 4_000, "docs/protocol.md": 6_000,
}  # fmt: skip
OTHER_WORDS: Final = 2_500
#: Programs write these pages.
GENERATED: Final = frozenset({"docs/benchmarks.md", "docs/mutants.md"})
GLOSSARY: Final = DOCS / "glossary.md"
#: Lines of a decision, and characters that count as one line.
DECISION_LINES: Final = 45
DECISION_WIDTH: Final = 100
PICTURES: Final = 2  # one for light screens, one for dark ones
PICTURE_WIDTH: Final = 1440
PICTURE_BYTES: Final = 150_000
#: Words that the glossary has to explain.
WORDS: Final = {
    "ack", "bury", "cancel", "circuit", "deliver", "due", "epoch", "exposed", "fresh", "generation", "lane",
    "message", "node", "offset", "owner", "park", "pool", "pull", "queue", "record", "redrive", "reschedule",
    "retry", "route", "schedule", "score", "target", "ticket", "topic", "wake", "watermark", "window",
}  # fmt: skip


def complaints() -> Iterator[str]:
    """Pages are short, decisions are numbered, short and complete, the glossary is sorted and complete."""
    yield from _lengths()
    yield from _readme()
    yield from _decisions()
    yield from _glossary()


def _lengths() -> Iterator[str]:
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        most = PAGE_WORDS.get(name, OTHER_WORDS)
        if name not in GENERATED and (count := len(read(page).split())) > most:
            yield at(page, 1, f"it has {count} words, {most} at most: shorten it, or move a part to its own page")


def _readme() -> Iterator[str]:
    names = re.findall(r'(?:src|srcset)="([^"]+)"', read(README))
    if len(names) != PICTURES:
        yield at(README, 1, f"it shows {len(names)} pictures: there should be {PICTURES}")
    for name in names:
        picture = (ROOT / name).read_bytes()
        width = int.from_bytes(picture[16:20])
        if not picture.startswith(b"\x89PNG") or width != PICTURE_WIDTH or len(picture) > PICTURE_BYTES:
            limits = f"a PNG {PICTURE_WIDTH} wide and {PICTURE_BYTES} bytes at most"
            yield at(README, 1, f"{name} is {width} wide and has {len(picture)} bytes: it should be {limits}")


def _decisions() -> Iterator[str]:
    """A decision never changes its number, so the numbers have gaps where decisions were merged."""
    numbers: dict[str, str] = {}
    for page in sorted((DOCS / "decisions").glob("*.md")):
        number, text = page.name.partition("-")[0], read(page)
        if not number.isdigit() or len(number) != 4 or not text.startswith(f"# {int(number)}. "):
            yield at(page, 1, "its name should begin with a number of four digits, and its heading with that number")
        elif other := numbers.setdefault(number, page.name).removeprefix(page.name):
            yield at(page, 1, f"{other} has the number {int(number)}, too: use the next free one")
        if (lines := sum(max(1, -(-len(line) // DECISION_WIDTH)) for line in text.splitlines())) > DECISION_LINES:
            most = f"{DECISION_LINES} at most: shorten it, or move figures to docs/benchmarks/{page.name}"
            yield at(page, DECISION_LINES, f"it has {lines} lines of {DECISION_WIDTH} characters, {most}")
        if not re.match(r"# .+\n\n[^\n*#|-](?:(?!\. [A-Z])[^*])+\.\n\n\*\*Decided", text):
            yield at(
                page, 3, "after its title should come one plain sentence for readers of the README, then **Decided**"
            )
        if re.findall(r"^\*\*(\w+)[^*]*\*\*", text, re.MULTILINE)[:3] != ["Decided", "Why", "Costs"]:
            yield at(page, 1, "its paragraphs should begin with **Decided**, **Why** and **Costs**")


def _glossary() -> Iterator[str]:
    text = read(GLOSSARY)
    before = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if entry := re.match(r"- \*\*(.+?)\*\* — ", line):
            if entry[1] < before:
                yield at(GLOSSARY, number, f"{entry[1]} should stand before {before}: the entries are sorted")
            before = entry[1]
    for word in sorted(WORDS - set(re.findall(r"\*\*(.+?)\*\*", text))):
        yield at(GLOSSARY, 1, f"it has no entry {word}: explain it")
