"""The length of each page and of each decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from devtools.pages import DOCS, PAGES, ROOT, at, read

#: Words that a page has at most, as `wc -w` counts them, and those of any other page.
PAGE_WORDS: Final = {
    "README.md": 1_200, "docs/targets.md": 1_500, "docs/http.md": 4_000, "docs/faults.md": 4_000, "docs/protocol.md": 6_000,
}  # fmt: skip
OTHER_WORDS: Final = 2_500
#: Programs write these pages.
GENERATED: Final = frozenset({"docs/benchmarks.md", "docs/mutants.md"})
#: Lines of a decision, and characters that count as one line.
DECISION_LINES: Final = 45
DECISION_WIDTH: Final = 100


def complaints() -> Iterator[str]:
    """Pages and decisions are short, and no two decisions have the same number."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        most = PAGE_WORDS.get(name, OTHER_WORDS)
        if name not in GENERATED and (count := len(read(page).split())) > most:
            yield at(page, 1, f"it has {count} words, {most} at most: shorten it, or move a part to its own page")
    numbers: dict[str, str] = {}
    for page in sorted((DOCS / "decisions").glob("*.md")):
        number = page.name.partition("-")[0]
        if other := numbers.setdefault(number, page.name).removeprefix(page.name):
            yield at(page, 1, f"{other} has the number {int(number)}, too: use the next free one")
        lines = sum(max(1, -(-len(line) // DECISION_WIDTH)) for line in read(page).splitlines())
        if lines > DECISION_LINES:
            most_lines = f"{DECISION_LINES} at most: shorten it, or move figures to docs/benchmarks/{page.name}"
            yield at(page, DECISION_LINES, f"it has {lines} lines of {DECISION_WIDTH} characters, {most_lines}")
