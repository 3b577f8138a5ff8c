"""Parse times and durations as people type them. A time without a zone is local time."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Final

from delayq.base.errors import DelayqError
from delayq.base.local_time import local, unknown_zone
from delayq.base.terminal import say
from delayq.base.times import check_unix_ms, parse_duration, parse_instant

_NUMBER: Final = re.compile(r"\d{1,16}", re.ASCII)
#: The names of days, and their distance from today.
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WALL: Final = re.compile(
    rf"(?:(\d{{4}}-\d\d-\d\d)[Tt ]|({'|'.join(_DAYS)}) )?(\d{{1,2}}:\d\d)(:\d\d(?:\.\d{{1,9}})?)?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


class BadUse(DelayqError):
    """The command line is invalid."""


def duration(option: str, text: str | None) -> int | None:
    """Return the ms of an option's text. A number needs a unit, because it could mean seconds or ms. Raises BadUse."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        if int(text) == 0:
            return 0
        raise BadUse(f"{option}: {text} has no unit; write {text}s or {text}ms")
    try:
        return parse_duration(text)
    except ValueError:
        raise BadUse(f"{option}: use a duration such as '30m', '30s', '1h30m' or 'PT30M', not {text!r:.100}") from None


def moment(option: str, text: str | None, now: int, *, ahead: bool = False, distance: bool = True) -> int | None:
    """Return the Unix ms of an option's text. Raises BadUse.

    Accepted are a date with its zone, a date or a time of day in the zone of the terminal, and Unix ms. With
    `distance`, a duration before `now` is accepted too. With `ahead`, a time of day is its next occurrence, and '+2h'
    and any distance count from now on. Otherwise, a time of day is its last occurrence.
    """
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return _unix_ms(option, text, distance=distance)
    try:
        if (found := _WALL.fullmatch(text)) is not None and (found[1] is not None or found[5] is None):
            return _wall(option, found, now, ahead=ahead)
        if ahead and text.startswith("+"):
            return now + parse_duration(text[1:])
        if distance and text[:1] in "0123456789P":
            return now + parse_duration(text) if ahead else now - parse_duration(text)
    except (ValueError, OverflowError):
        pass
    day, far = ("tomorrow", "'+2h' from now") if ahead else ("yesterday", "'2h' ago")
    raise BadUse(
        f"{option}: use a time such as '15:30' or '{day} 09:00', a date such as '2027-01-31 15:30' or "
        f"'2027-01-31T15:30:00+01:00', Unix ms, or {far}, not {text!r:.100}"
    )


def _unix_ms(option: str, text: str, *, distance: bool) -> int:
    number = int(text)
    try:
        check_unix_ms(number)
    except ValueError as error:
        if distance:
            raise BadUse(
                f"{option}: {text} has no unit; write {text}s or {text}ms, or Unix ms with 13 digits"
            ) from None
        raise BadUse(f"{option}: {error}; for a delay, use --delay {text}s or --delay {text}ms") from None
    return number


def _wall(option: str, found: re.Match[str], now: int, *, ahead: bool) -> int:
    """Return the Unix ms of a local time, or of a time without seconds. Raises ValueError and OverflowError."""
    day, word, minute, second, zone = found.groups()
    clock = f"{minute:0>5}{second or ':00'}"
    if zone is not None:
        return parse_instant(f"{day}T{clock}{zone}")
    if why := unknown_zone():
        raise BadUse(f"{option}: a time without a zone is local time. {why}")
    # A fraction of a ms is rounded up, as for a time with a zone.
    whole, _, fraction = clock.partition(".")
    fine = -(-int(fraction.ljust(9, "0")) // 1_000_000) if fraction else 0
    at = time.fromisoformat(whole)
    if word is not None:
        day = (_today(now) + timedelta(days=_DAYS[word])).isoformat()
    if day is not None:
        asked = datetime.combine(datetime.fromisoformat(day), at)
        chosen = _local(asked)[0]
    else:
        asked, chosen = _nearest(at, fine, now, ahead=ahead)
    _tell_of_change(option, asked, chosen)
    return _ms(chosen) + fine


def _nearest(at: time, fine: int, now: int, *, ahead: bool) -> tuple[datetime, datetime]:
    """Return the next or the last occurrence of a time of day, as local time and as Unix time."""
    found = []
    for days in range(-2, 3):
        asked = datetime.combine(_today(now) + timedelta(days=days), at)
        found += [(_ms(one) + fine, asked, one) for one in _local(asked)]
    fits = [one for one in found if (one[0] >= now if ahead else one[0] <= now)]
    _, asked, chosen = min(fits, key=lambda one: abs(one[0] - now))
    return asked, chosen


def _today(now: int) -> date:
    return local(now // 1000).date()


def _local(asked: datetime) -> list[datetime]:
    """Return the Unix times of a local time: one, or two if clocks are put back then.

    A local time that clocks skip has one Unix time: as long after the change as if there were no change.
    """
    first, second = (local(asked.replace(fold=fold).timestamp()) for fold in (0, 1))
    return [first] if first.utcoffset() == second.utcoffset() or _skipped(asked, first) else [first, second]


def _skipped(asked: datetime, found: datetime) -> bool:
    return found.replace(tzinfo=None, fold=0) != asked


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def _tell_of_change(option: str, asked: datetime, chosen: datetime) -> None:
    """Report the chosen time if local clocks skip the given one or show it twice."""
    if _skipped(asked, chosen):
        say(f"{option}: local clocks skip {asked:%H:%M} on {asked:%Y-%m-%d}; using {chosen.isoformat()}.")
        return
    for other in _local(asked):
        if other != chosen:
            say(
                f"{option}: local clocks show {asked:%H:%M} twice on {asked:%Y-%m-%d}; using "
                f"{chosen.isoformat()}, not {other.isoformat()}."
            )
