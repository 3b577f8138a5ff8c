"""Formats times for people, in the time zone of TZ or of the machine; JSON answers have UTC.

The system takes a TZ that it does not know for UTC, in silence. So TZ is checked here: a local time that somebody types is
refused then, and times are shown as UTC.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Final

from delayq.base.terminal import TwoForms
from delayq.base.times import parse_instant

#: A time as the HTTP API answers it.
_UTC: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


#: Names of UTC, which the system knows without data of zones.
_NAMES_OF_UTC: Final = {"", "UTC", "UTC0", "GMT", "GMT0", "UCT", "Zulu", "Universal", "Etc/UTC", "Etc/GMT", "Etc/UCT"}
#: A zone by its rule instead of its name, such as CET-1CEST,M3.5.0,M10.5.0/3 (POSIX).
_ZONE: Final = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET: Final = r"[+-]?\d{1,3}(?::\d\d){0,2}"
_DAY: Final = rf"(?:J?\d{{1,3}}|M\d{{1,2}}\.\d\.\d)(?:/{_OFFSET})?"
_RULE: Final = re.compile(rf"{_ZONE}{_OFFSET}(?:{_ZONE}(?:{_OFFSET})?(?:,{_DAY},{_DAY})?)?", re.ASCII)
#: Where the system looks for the data of zones.
_FOLDERS: Final = ("/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/share/zoneinfo", "/etc/zoneinfo")


def unknown_zone() -> str:
    """Return what is wrong with TZ; '' if the system knows its zone."""
    given = os.environ.get("TZ", "")
    name = given.removeprefix(":")
    if name in _NAMES_OF_UTC or _RULE.fullmatch(name):
        return ""
    folders = [one for one in (os.environ.get("TZDIR"), *_FOLDERS) if one]
    if any(_has_zone(os.path.join(folder, name)) for folder in folders):
        return ""
    there = any(os.path.isdir(folder) for folder in folders)
    why = "it is no zone of this machine" if there else "this machine has no data of time zones (package tzdata)"
    return f"TZ is {given!r:.100}, but {why}; use a name such as TZ=Europe/Berlin, or give the time with its zone"


def _has_zone(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"TZif"
    except (OSError, ValueError):
        return False


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
    if unknown_zone():
        moment = datetime.fromtimestamp(ms // 1000, UTC)
        return TwoForms(moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S} UTC")
    moment = local(ms // 1000)
    return TwoForms(moment.isoformat(), f"{moment:%Y-%m-%d %H:%M:%S}")
