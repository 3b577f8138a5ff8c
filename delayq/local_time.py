"""Formats times for people, in the time zone of TZ or of the machine; JSON answers have UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from delayq.times import parse_instant

__all__ = ["in_sentence", "local", "shown"]

#: A time as the HTTP API answers it.
_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def local(seconds: float) -> datetime:
    """The local time of Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def shown(moment: int | str | None) -> str | None:
    """Format Unix ms or a time of an answer as local time: 2026-11-26T15:30:00+01:00, with ms if there are any."""
    if moment is None:
        return None
    return _shown(moment) if isinstance(moment, int) else in_sentence(moment)


def in_sentence(text: str) -> str:
    """Replace the times in a sentence by local times."""
    return _UTC.sub(lambda match: _shown(parse_instant(match.group())), text)


def _shown(ms: int) -> str:
    moment = local(ms // 1000) + timedelta(milliseconds=ms % 1000)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
