"""python -m scripts.configuration: write the table of settings in docs/configuration.md anew."""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final

from delayq.config import Rule, Settings
from delayq.environment import variable

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
BEGIN: Final = "<!-- settings: python -m scripts.configuration writes this table -->\n"
END: Final = "<!-- end of settings -->\n"
HEAD: Final = "| setting | default | what it is | limits |\n| --- | --- | --- | --- |\n"
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def table() -> str:
    """The settings, one row each, in the order of the class."""
    return HEAD + "".join(map(_row, fields(Settings)))


def page(text: str) -> str:
    """The page with the table as it has to be; raises ValueError when the page has lost its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def duration(ms: int) -> str:
    """The shortest text that `DELAYQ_*` takes for so many ms."""
    unit, size = next((unit, size) for unit, size in UNITS if ms % size == 0 and ms >= size)
    return f"{ms // size}{unit}"


def _row(field: Field[Any]) -> str:
    rule: Rule = field.metadata["rule"]
    meaning = rule.description.replace("|", "\\|")
    return f"| `{variable(field.name)}` | {_default(field, rule)} | {meaning} | {rule.limits} |\n"


def _default(field: Field[Any], rule: Rule) -> str:
    value = field.default
    if value is MISSING:
        return "the name of the host"
    if value is None or value == "":
        return "unset"
    if isinstance(value, tuple):
        return f"`{' '.join(map(duration, value))}`"
    return f"`{duration(value) if rule.duration else value}`"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
