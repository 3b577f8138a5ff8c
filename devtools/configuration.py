"""The table of settings in docs/configuration.md, which ./dev check --fix writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from delayq.config import Settings, variable

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
BEGIN: Final = "<!-- settings: ./dev check --fix writes this table -->\n"
END: Final = "<!-- end of settings -->\n"
HEAD: Final = "| setting | default | what it is | limits |\n| --- | --- | --- | --- |\n"
UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def table() -> str:
    """The settings, one row each, in the order of the class."""
    return HEAD + "".join(_row(variable(name), field) for name, field in Settings.model_fields.items())


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


def _row(name: str, field: FieldInfo) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    return f"| `{name}` | {_default(field)} | {meaning} | {_limits(field)} |\n"


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not None:
        return "the name of the host"
    if value is None or value in ("", ()):
        return "unset"
    if isinstance(value, tuple):
        return f"`{' '.join(map(duration, value))}`"
    return f"`{duration(value) if is_duration(field) else value}`"


def is_duration(field: FieldInfo) -> bool:
    """Whether the setting takes a duration."""
    return any(isinstance(one, BeforeValidator) for one in field.metadata)


def _limits(field: FieldInfo) -> str:
    if is_duration(field):
        return "a duration"
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    if any(isinstance(one, Gt) for one in field.metadata):
        least = 1
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if least is None:
        return ""
    return f"{least} or more" if most is None else f"{least} to {most}"
