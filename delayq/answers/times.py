"""How answers write times."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from delayq.times import format_instant

__all__ = ["Ms", "Time", "instant"]

Time = Annotated[str, Meta(description="RFC 3339 in UTC with ms", extra_json_schema={"format": "date-time"})]
Ms = Annotated[int, Meta(description="Unix ms")]


def instant(ms: int | None) -> str | None:
    """The time as RFC 3339, or None."""
    return None if ms is None else format_instant(ms)
