"""The formats of times and words in answers."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, UnsetType

from delayq.base.times import format_instant, parse_instant

T = TypeVar("T")

Time = Annotated[str, Meta(description="RFC 3339 in UTC with ms.", extra_json_schema={"format": "date-time"})]
Ms = Annotated[int, Meta(description="Unix ms")]


def instant(ms: int | None) -> str | None:
    """Return the time as RFC 3339, or None."""
    return None if ms is None else format_instant(ms)


def ms(time: str | UnsetType | None) -> int | None:
    """Return the Unix ms of a time that an answer may have, or None."""
    return parse_instant(time) if isinstance(time, str) else None


def known(value: T | UnsetType) -> T | None:
    """Return a value that an answer may omit, or None."""
    return None if value is UNSET else value


def given(value: T | UnsetType) -> T:
    """Return a value that an answer of this kind has. Raises ValueError."""
    if value is UNSET:
        raise ValueError("the answer has no such value")
    return value


def one_of(*words: str) -> dict[str, Any]:
    """Return the JSON schema of a text that is one of these words."""
    return {"enum": list(words)}
