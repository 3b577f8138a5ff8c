"""Formats times for people, in the time zone of TZ or of the machine; JSON answers have UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from delayq.terminal import TwoForms
from delayq.times import parse_instant

__all__ = ["in_sentence", "local", "shown"]

#: A time as the HTTP API answers it.
_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def local(seconds: float) -> datetime:
    """The local time of Unix seconds."""
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def shown(moment: int | str | None) -> str | None:
    """Format Unix ms or a time of an answer as local time, to the second.

    It is 2026-11-26T15:30:00+01:00 for programs and 2026-11-26 15:30:00 on a terminal. Any other text stays as it is.
    """
    if isinstance(moment, str):
        if _UTC.fullmatch(moment) is None:
            return moment
        moment = parse_instant(moment)
    return None if moment is None else _shown(moment)


def in_sentence(text: str) -> str:
    """Replace the times in a sentence by local times, in their short form."""
    return _UTC.sub(lambda match: _shown(parse_instant(match.group())).short, text)


def _shown(ms: int) -> TwoForms:
    moment = local(ms // 1000)
    return TwoForms(moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S}")
