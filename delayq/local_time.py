"""Times as people read them: in the time zone of the terminal, which is that of TZ or of the machine.

JSON has the times of the HTTP API, in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from delayq.times import parse_instant

__all__ = ["in_sentence", "local", "shown"]

#: A time as answers of the HTTP API have it.
_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def local(seconds: float) -> datetime:
    """Unix seconds in the zone of the terminal."""
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def shown(moment: int | str | None) -> str | None:
    """Unix ms, or a time of an answer, as people read it: 2026-11-26T15:30:00+01:00, with ms if there are any."""
    if moment is None:
        return None
    return _shown(moment) if isinstance(moment, int) else in_sentence(moment)


def in_sentence(text: str) -> str:
    """A sentence of delayq's with its times as people read them."""
    return _UTC.sub(lambda match: _shown(parse_instant(match.group())), text)


def _shown(ms: int) -> str:
    moment = local(ms // 1000) + timedelta(milliseconds=ms % 1000)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
