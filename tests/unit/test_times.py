from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq.base.times import EARLIEST, format_instant, parse_duration, parse_instant, restore_plus

zones = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(
    min_value=datetime(1970, 1, 3),  # noqa: DTZ001  # hypothesis wants naive bounds
    max_value=datetime(2286, 1, 1),  # noqa: DTZ001  # the same
    timezones=zones,
)


DURATIONS = {
    "0ms": 0, "1500ms": 1_500, "90s": 90_000, "30m": 1_800_000, "1h30m": 5_400_000, "2d": 172_800_000,
    "1d1h1m1s1ms": 90_061_001, "PT30M": 1_800_000, "P1DT2H": 93_600_000, "P2W": 1_209_600_000, "PT0S": 0,
    "PT1.5S": 1_500, "PT0.001S": 1,
    # A fraction is rounded up, so that no message is early.
    "PT0.0001S": 1, "PT1.0010S": 1_001, "PT1.0010001S": 1_002, "PT0.999999999S": 1_000,
}  # fmt: skip
NO_DURATIONS = [
    "", " ", "5", "-5s", "5 s", "s", "5S", "1.5h", "P", "PT", "P1", "PT1", "P1H", "pt1h", "PT1.S", "1m ", "٣s", "1y", "PT-1S",
    "9" * 16 + "s", "1s\n",
]  # fmt: skip
INSTANTS = {
    "2027-01-31T08:00:00Z": 1_801_382_400_000,
    "2027-01-31t08:00:00z": 1_801_382_400_000,
    "2027-01-31 10:00:00+02:00": 1_801_382_400_000,
    "2027-01-31T08:00:00.5Z": 1_801_382_400_500,
    "2027-01-31T08:00:00.0001Z": 1_801_382_400_001,
    "2027-01-31T08:00:00.999999999Z": 1_801_382_401_000,
    "2027-01-31T08:00:00-00:00": 1_801_382_400_000,
    "1970-01-01T00:00:00Z": 0,
    "1969-12-31T23:59:59Z": -1_000,
    "9999-12-31T23:59:59-23:59": 253_402_387_139_000,
}
NO_INSTANTS = [
    "", "now", "2027-01-31", "2027-01-31T08:00:00", "2027-01-31T08:00Z", "2027-02-30T08:00:00Z", "2027-01-31T24:00:01Z",
    "2027-01-31T08:00:60Z", "2027-01-31T08:00:00+25:00", "2027-01-31T08:00:00+0200", "2027-01-31T08:00:00.Z",
    "2027-01-31T08:00:00.1234567891Z", "0000-01-01T00:00:00Z", "٢٠27-01-31T08:00:00Z", "2027-01-31T08:00:00Z\n",
    "20270131T080000Z", "2027-W05-7T08:00:00Z", "1801382400000",
]  # fmt: skip


def test_durations_and_instants_are_read() -> None:
    assert {text: parse_duration(text) for text in DURATIONS} == DURATIONS
    assert {text: parse_instant(text) for text in INSTANTS} == INSTANTS


@pytest.mark.parametrize(
    ("parse", "texts", "says"),
    [
        (parse_duration, NO_DURATIONS, "use a duration such as '30m'"),
        (parse_instant, NO_INSTANTS, "use a date such as"),
    ],
)
def test_another_text_is_refused_in_one_sentence(parse: Callable[[str], int], texts: list[str], says: str) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=says) as caught:
            parse(text)
        assert "\n" not in str(caught.value), text


def test_a_query_may_have_a_blank_for_the_plus_of_a_zone() -> None:
    for text in ("2027-01-31T10:00:00+02:00", "2027-01-31 10:00:00+02:00", "2027-01-31T10:00:00.123456789+02:00"):
        assert restore_plus(text.replace("+", " ")) == restore_plus(text) == text
    for text in ("2027-01-31 10:00", "2027-01-31 10:00:00", "2027-01-31T10:00:00Z", "10:00:00 02:00", "a 02:00", ""):
        assert restore_plus(text) == text
    assert format_instant(EARLIEST) == "2001-01-01T00:00:00.000Z"


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_a_date_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= 0
    with suppress(ValueError):
        parse_instant(text)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(["ms", "s", "m", "h", "d"])), min_size=1, max_size=5))
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    units = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration(text) == sum(number * units[unit] for number, unit in parts)


@given(moments)
def test_a_date_is_never_read_earlier_than_it_is_and_at_most_a_ms_later(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    for text in (moment.isoformat(), moment.isoformat(" ")):
        assert 0 <= parse_instant(text) * 1000 - micros < 1000


@given(st.integers(0, 10**13 - 1))
def test_what_is_written_is_read_back(ms: int) -> None:
    text = format_instant(ms)
    assert text.endswith("Z")
    assert parse_instant(text) == ms
