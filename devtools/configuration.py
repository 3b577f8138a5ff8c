"""The table of settings in docs/configuration.md, which ./dev check --fix writes."""

from __future__ import annotations

from typing import Final

from delayq.config import SETTINGS, Setting, variable
from devtools.pages import DOCS, with_part

PAGE: Final = DOCS / "configuration.md"
BEGIN: Final = "<!-- settings: ./dev check --fix writes this table -->\n"
END: Final = "<!-- end of settings -->\n"
HEAD: Final = "| setting | default | what it is | limits |\n| --- | --- | --- | --- |\n"
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def table() -> str:
    """The settings, one row each, in the order of the class."""
    return HEAD + "".join(_row(variable(name), setting) for name, setting in SETTINGS.items())


def page(text: str) -> str:
    """The page with the table as it has to be."""
    return with_part(PAGE, text, BEGIN, table(), END)


def duration(ms: int) -> str:
    """The shortest text that `DELAYQ_*` takes for so many ms."""
    unit, size = next((unit, size) for unit, size in UNITS if ms % size == 0 and ms >= size)
    return f"{ms // size}{unit}"


def _row(name: str, setting: Setting) -> str:
    meaning = setting.description.replace("|", "\\|")
    return f"| `{name}` | {_default(setting)} | {meaning} | {setting.limits} |\n"


def _default(setting: Setting) -> str:
    value = setting.default
    if callable(value):
        return "the name of the host"
    if value is None or value in ("", ()):
        return "unset"
    if isinstance(value, tuple):
        return f"`{' '.join(map(duration, value))}`"
    return f"`{duration(value) if setting.is_duration else value}`"
