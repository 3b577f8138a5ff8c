"""Times and durations of the command line, in the time zone of the terminal."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from delayq.base.local_time import in_sentence, shown, unknown_zone
from delayq.base.terminal import TwoForms
from delayq.base.times import parse_instant
from delayq.cli import app
from delayq.cli.moments import BadUse, duration, moment

Clocks = Callable[[str], None]


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    """Puts the terminal into a time zone."""

    def change(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


BERLIN = "Europe/Berlin"
NOON = "2026-11-26T12:00:00+01:00"


@pytest.mark.parametrize(
    ("zone", "now", "text", "ahead", "last"),
    [
        (BERLIN, NOON, "15:30", "2026-11-26T15:30:00+01:00", "2026-11-25T15:30:00+01:00"),
        (BERLIN, NOON, "9:05", "2026-11-27T09:05:00+01:00", "2026-11-26T09:05:00+01:00"),
        (BERLIN, NOON, "12:00", NOON, NOON),
        (BERLIN, NOON, "12:00:00.0001", "2026-11-26T12:00:00+01:00", "2026-11-25T12:00:00+01:00"),
        (BERLIN, NOON, "2026-11-26 15:30", "2026-11-26T15:30:00+01:00", None),
        (BERLIN, NOON, "2027-07-01T15:30:20", "2027-07-01T15:30:20+02:00", None),
        (BERLIN, NOON, "2026-11-26 15:30+05:30", "2026-11-26T11:00:00+01:00", None),
        (BERLIN, NOON, "2026-11-26T15:30Z", "2026-11-26T16:30:00+01:00", None),
        (BERLIN, NOON, "2026-11-26T15:30:00.25-00:30", "2026-11-26T17:00:00+01:00", None),
        (BERLIN, NOON, "1795795800000", "2026-11-27T17:10:00+01:00", None),
        (BERLIN, NOON, "today 09:00", "2026-11-26T09:00:00+01:00", None),
        (BERLIN, NOON, "tomorrow 09:00", "2026-11-27T09:00:00+01:00", None),
        (BERLIN, NOON, "yesterday 9:00:20", "2026-11-25T09:00:20+01:00", None),
        ("Asia/Tokyo", "2026-11-26T23:30:00Z", "tomorrow 00:00", "2026-11-28T00:00:00+09:00", None),
        ("UTC", NOON, "11:30", "2026-11-26T11:30:00+00:00", "2026-11-25T11:30:00+00:00"),
        ("America/St_Johns", NOON, "08:00", "2026-11-26T08:00:00-03:30", "2026-11-25T08:00:00-03:30"),
        ("<+0545>-5:45", NOON, "2026-11-26 15:30", "2026-11-26T15:30:00+05:45", None),
        # Clocks are put back: the next of two, the last of two; of a date the first.
        (BERLIN, "2026-10-25T00:00:00+02:00", "02:30", "2026-10-25T02:30:00+02:00", "2026-10-24T02:30:00+02:00"),
        (BERLIN, "2026-10-25T02:40:00+02:00", "02:30", "2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+02:00"),
        (BERLIN, "2026-10-25T02:40:00+01:00", "02:30", "2026-10-26T02:30:00+01:00", "2026-10-25T02:30:00+01:00"),
        (BERLIN, NOON, "2026-10-25 02:30", "2026-10-25T02:30:00+02:00", None),
        # They are put forward: as long after the change as it would be without it.
        (BERLIN, "2027-03-28T00:00:00+01:00", "02:30", "2027-03-28T03:30:00+02:00", "2027-03-27T02:30:00+01:00"),
        (BERLIN, NOON, "2027-03-28 02:30", "2027-03-28T03:30:00+02:00", None),
        (BERLIN, "2027-03-27T12:00:00+01:00", "tomorrow 02:30", "2027-03-28T03:30:00+02:00", None),
        (BERLIN, "2026-10-24T12:00:00+02:00", "tomorrow 02:30", "2026-10-25T02:30:00+02:00", None),
        (BERLIN, "2026-10-24T12:00:00+02:00", "tomorrow 12:00", "2026-10-25T12:00:00+01:00", None),
        ("Australia/Lord_Howe", NOON, "2026-10-04 02:15", "2026-10-04T02:45:00+11:00", None),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_terminal(
    clocks: Clocks, zone: str, now: str, text: str, ahead: str, last: str | None
) -> None:
    clocks(zone)
    at = parse_instant(now)
    assert shown(moment("--at", text, at, ahead=True)) == ahead
    assert shown(moment("--since", text, at)) == (last or ahead)


def test_a_time_that_clocks_skip_or_show_twice_is_told(clocks: Clocks, capsys: pytest.CaptureFixture[str]) -> None:
    clocks(BERLIN)
    for text, told in (
        (
            "2026-10-25 02:30",
            "show 02:30 twice on 2026-10-25; using 2026-10-25T02:30:00+02:00, not 2026-10-25T02:30:00+01",
        ),
        ("2027-03-28 02:30", "skip 02:30 on 2027-03-28; using 2027-03-28T03:30:00+02:00."),
        ("2026-10-25T02:30+01:00", ""),
        ("2026-10-25 04:30", ""),
    ):
        moment("--at", text, 0, ahead=True)
        said = capsys.readouterr().err
        assert told in said
        assert bool(told) == bool(said)


def test_a_distance_with_a_sign_is_from_now_on_and_only_for_what_lies_ahead() -> None:
    for text, ms in (("+2h", 7_200_000), ("+PT1M", 60_000), ("+0s", 0)):
        for distance in (True, False):
            assert moment("--at", text, 2_000_000_000_000, ahead=True, distance=distance) == 2_000_000_000_000 + ms
    with pytest.raises(BadUse, match=r"or '2h' ago, not '\+2h'"):
        moment("--since", "+2h", 0)


@pytest.mark.parametrize(
    "text",
    [
        "", "soon", "24:00", "25:99", "15.30", "15:30Z", "2026-13-01 10:00", "0001-01-01 00:00", "-5", "tomorrow", "+2", "+soon",
        "tomorrow 25:00", "tomorrow 09:00Z", "2027-01-01 tomorrow 09:00", "monday 09:00",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_how_to_write_one(clocks: Clocks, text: str) -> None:
    clocks(BERLIN)
    for ahead, hint in (
        (True, "'tomorrow 09:00', .* or '\\+2h' from now"),
        (False, "'yesterday 09:00', .* or '2h' ago"),
    ):
        with pytest.raises(BadUse, match=rf"^--at: use a time such as '15:30' or {hint}, not '"):
            moment("--at", text, 0, ahead=ahead)
    with pytest.raises(BadUse, match="'\\+2h' from now, not '2h'"):
        moment("--at", "2h", 0, ahead=True, distance=False)


@pytest.mark.parametrize("number", ["1", "30", "3600", "86400000"])
def test_a_number_without_a_unit_is_refused_with_both_spellings(number: str) -> None:
    ways: tuple[Callable[[], object], ...] = (
        lambda: duration("--delay", number),
        lambda: moment("--due-from", number, 0, ahead=True),
        lambda: moment("--at", number, 0, distance=False),
    )
    for refused in ways:
        with pytest.raises(BadUse) as caught:
            refused()
        assert f"{number}s" in str(caught.value)
        assert f"{number}ms" in str(caught.value)
    assert duration("--delay", "0") == 0
    with pytest.raises(BadUse, match=r"seconds\? 1795000000000"):
        moment("--at", "1795000000", 0, distance=False)


def test_each_option_that_takes_a_duration_or_a_time_is_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    there: set[str] = set()
    for places in app._COMMANDS.values():
        for place in (places,) if isinstance(places, str) else places[1].values():
            function = app._function(place)
            there |= {
                name
                for hint in inspect.get_annotations(function, eval_str=True).values()
                for one in getattr(hint, "__metadata__", ())
                if isinstance(one, typer.models.OptionInfo) and one.metavar in ("DURATION", "TIME")
                for name in (one.default, *(one.param_decls or ()))
                if isinstance(name, str) and name.startswith("--")
            }
            read |= {name for name in there if f'"{name}"' in inspect.getsource(inspect.getmodule(function) or app)}
    shared = {"--delay", "--at", "--window", "--delay-time"}  # by due_of and TableOptions
    assert there - read <= shared
    assert {
        "--delay",
        "--at",
        "--window",
        "--from",
        "--to",
        "--until",
        "--due-from",
        "--wait",
        "--step",
        "--expire-after",
    } <= there


def test_times_of_sentences_are_shown_as_people_read_them(clocks: Clocks) -> None:
    clocks(BERLIN)
    assert in_sentence("since 2026-11-26T14:30:00.999Z (x)") == "since 2026-11-26 15:30:00 (x)"
    found = shown("2026-11-26T14:30:00.120Z")
    assert isinstance(found, TwoForms) and (found, found.short) == ("2026-11-26T15:30:00+01:00", "2026-11-26 15:30:00")
    assert shown(None) is None
    assert shown("whoever made the file wrote this") == "whoever made the file wrote this"


@pytest.mark.parametrize(
    "zone",
    [
        "America/New_Yrok",
        "Europe/Nowhere",
        "+02:00",
        "CEST",
        "Europe",
        "UTC+x",
        "../etc/passwd",
        "/etc/passwd",
        "a\x80",
    ],
)
def test_a_zone_that_the_machine_does_not_know_is_refused_by_name_where_local_time_counts(
    zone: str, clocks: Clocks
) -> None:
    clocks(zone)
    now = parse_instant(NOON)
    for text in ("15:30", "tomorrow 09:00", "2026-11-26 15:30", "2026-11-26T15:30:20"):
        for ahead in (True, False):
            with pytest.raises(BadUse, match=r"^--at: a time without a zone is local time\. TZ is ") as caught:
                moment("--at", text, now, ahead=ahead)
            assert repr(zone) in str(caught.value)
    for text in ("2h", "1795795800000", "2026-11-26 15:30+05:30", "2026-11-26T15:30:00Z"):
        assert moment("--at", text, now)
    assert shown(now) == TwoForms("2026-11-26T11:00:00+00:00", "2026-11-26 11:00:00 UTC")
    assert in_sentence("since 2026-11-26T11:00:00.000Z") == "since 2026-11-26 11:00:00 UTC"


@pytest.mark.parametrize(
    "zone",
    [
        BERLIN, f":{BERLIN}", f"/usr/share/zoneinfo/{BERLIN}", "", "UTC", "GMT", "UTC0", "EST5EDT", "CET-1CEST,M3.5.0,M10.5.0/3",
        "<+0545>-5:45", "<-03>3", "JST-9", "Etc/GMT+3",
    ],
)  # fmt: skip
def test_every_form_of_a_zone_that_the_system_reads_is_read(zone: str, clocks: Clocks) -> None:
    clocks(zone)
    assert unknown_zone() == ""
    assert moment("--at", "15:30", parse_instant(NOON))


def test_a_machine_without_data_of_zones_says_so(
    clocks: Clocks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clocks(BERLIN)
    monkeypatch.setattr("delayq.base.local_time._FOLDERS", (str(tmp_path / "none"),))
    assert "has no data of time zones (package tzdata)" in unknown_zone()
    monkeypatch.setenv("TZDIR", "/usr/share/zoneinfo")
    assert unknown_zone() == ""
    clocks("UTC")
    monkeypatch.delenv("TZDIR")
    assert unknown_zone() == ""
