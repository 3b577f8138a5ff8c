"""Durations and dates as people write them, converted to ms at the edges."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache  # noqa: TID251  # the keys are hours, as numbers
from typing import Any, Final

#: 2001-01-01T00:00:00Z in Unix ms. An earlier due time is a mistake: most often it is in seconds.
EARLIEST: Final = 978_307_200_000
#: The last ms of the year 9999: no RFC 3339 writes a later one.
LATEST: Final = 253_402_300_799_999
#: The largest number that may mean Unix seconds, of the year 2286. As Unix ms it is in April 1970.
_MOST_SECONDS: Final = 9_999_999_999

#: A duration of Python callers: ms, a timedelta, or text such as '30m'.
Duration = int | timedelta | str
#: A time of Python callers: Unix ms, a datetime with its zone, or RFC 3339.
Instant = int | datetime | str

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(?:\d{1,15}(?:ms|s|m|h|d))+", re.ASCII)
_SHORT_PART = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.(\d{1,9}))?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
#: A date whose zone has lost its plus: in a query, a plus is a blank.
_PLUS_LOST = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?) (\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return ms of '1500ms', '90s', '30m', '1h30m', '2d', or ISO 8601 ('PT30M', 'P1DT2H').

    A fraction of a ms is rounded up, so that no message is early. Raises ValueError with a sentence.
    """
    if _SHORT.fullmatch(text):
        return sum(int(number) * _UNITS[unit] for number, unit in _SHORT_PART.findall(text))
    match = _ISO.fullmatch(text)
    if match is None or text in ("P", "PT") or not any(match.groups()):
        raise ValueError("use a duration such as '30m', '1h30m' or 'PT30M', or a number of ms")
    weeks, days, hours, minutes, seconds = (int(group or 0) for group in match.groups()[:5])
    return ((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + _ms_of_fraction(match.group(6))


def _ms_of_fraction(digits: str | None) -> int:
    return -(-int((digits or "").ljust(9, "0")) // 1_000_000)


def check_unix_ms(ms: int) -> None:
    """Raise ValueError with a sentence for a due time before 2001, such as one in seconds."""
    if ms >= EARLIEST:
        return
    if ms > _MOST_SECONDS:  # the caller wrote a date, and never saw its ms
        raise ValueError(f"{format_instant(ms)} is before 2001")
    seconds = f" (seconds? {ms * 1000})" if ms * 1000 >= EARLIEST else ""
    raise ValueError(f"{ms} is before 2001; use Unix ms, which have 13 digits{seconds}")


def restore_plus(text: str) -> str:
    """Return the date of a query: a blank in its zone means a plus, which should be written as %2B."""
    return _PLUS_LOST.sub(r"\1+\2", text)


def parse_instant(text: str) -> int:
    """Return Unix ms of an RFC 3339 date-time ('2027-01-31T08:00:00Z', '…+02:00').

    A fraction of a ms is rounded up, so that no message is early. Raises ValueError with a sentence.
    """
    match = _RFC3339.fullmatch(text)
    hint = "use a date such as '2027-01-31T08:00:00Z' (RFC 3339, with its zone), or Unix ms"
    if match is None:
        raise ValueError(hint)
    whole = text if not match.group(1) else text.replace("." + match.group(1), "", 1)
    try:
        moment = datetime.fromisoformat(whole.upper())
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(hint) from None
    return (since.days * 86_400 + since.seconds) * 1000 + _ms_of_fraction(match.group(1))


def duration_ms(value: Any) -> Any:
    """Return ms of a timedelta or a text, rounded up. Any other value stays as it is. Raises ValueError with a
    sentence.
    """
    if isinstance(value, str):
        return parse_duration(value)
    return -(value // -_MS) if isinstance(value, timedelta) else value  # -value fails for timedelta.max


def instant_ms(value: Any) -> Any:
    """Return Unix ms of a datetime or a text, rounded up. Any other value stays as it is. Raises ValueError with a
    sentence.
    """
    if isinstance(value, str):
        return parse_instant(value)
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                f"the datetime {value.isoformat()} has no time zone; set its tzinfo, or use datetime.now(UTC)"
            )
        return -((_EPOCH - value) // _MS)
    if isinstance(value, date):
        raise ValueError(f"the date {value.isoformat()} has no time; use a datetime with its tzinfo")
    return value


# An answer to a batch has hundreds of times. Making them of cached parts takes a tenth of the time.
_SECONDS: Final = tuple(f":{minute:02}:{second:02}." for minute in range(60) for second in range(60))
_MILLIS: Final = tuple(f"{ms:03}Z" for ms in range(1000))


def format_instant(ms: int) -> str:
    """Return RFC 3339 in UTC with ms."""
    hours, rest = divmod(ms, 3_600_000)
    return _hour(hours) + _SECONDS[rest // 1000] + _MILLIS[rest % 1000]


@lru_cache(maxsize=4096)
def _hour(hours: int) -> str:
    return f"{_EPOCH + timedelta(hours=hours):%Y-%m-%dT%H}"
