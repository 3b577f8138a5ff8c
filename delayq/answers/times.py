"""The formats of times and words in answers."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from delayq.base.times import format_instant

Time = Annotated[str, Meta(description="RFC 3339 in UTC with ms.", extra_json_schema={"format": "date-time"})]
Ms = Annotated[int, Meta(description="Unix ms")]


def instant(ms: int | None) -> str | None:
    """Return the time as RFC 3339, or None."""
    return None if ms is None else format_instant(ms)


def one_of(*words: str) -> dict[str, Any]:
    """Return the JSON schema of a text that is one of these words."""
    return {"enum": list(words)}
