from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli, Given
from tests.cli.test_json import answer


def test_search_prints_what_fits_by_due(cli: Cli, given: Given) -> None:
    given.scheduled("late", keys=("k",), topic="orders.a", expect_date=2_000_000_000_001)
    given.scheduled("early", topic="orders.b", properties={"run": "7"}, expect_date=2_000_000_000_000)
    given.scheduled("other", topic="mail", tags="vip", expect_date=2_000_000_000_002)
    assert cli("search", "--topic", "orders.*").rows == [
        ["early", "scheduled", "2033-05-18T03:33:20.000Z", "0", "orders.b"],
        ["late", "scheduled", "2033-05-18T03:33:20.001Z", "0", "orders.a"],
    ]
    for options, found in {
        "--property run=7": ["early"],
        "--state dead --state scheduled --tags vip": ["other"],
        "--due-from 2000000000001 --due-to 2000000000002": ["late"],
        "--key k --id-prefix la": ["late"],
        "--due-from 30d": ["early", "late", "other"],
    }.items():
        assert [row[0] for row in cli("search", *options.split()).rows] == found
    ran = cli("search", "--limit", "1")
    assert [row[0] for row in ran.rows] == ["early"]
    token = ran.err.split()[-1]
    assert [row[0] for row in cli("search", "--page-token", token).rows] == ["late", "other"]


def test_search_prints_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.dead_letter("b")
    for path in ("/v1/messages", "/v1/messages?state=dead", "/v1/messages?topic=nothing"):
        options = [f"--{option}" for option in path.partition("?")[2].split("&") if option]
        assert json.loads(cli("search", *options, "--json").out) == answer(given, path)
    ran = cli("search", "--topic", "nothing")
    assert (ran.code, ran.out, ran.sentence()) == (1, "", "there are no such messages.")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--state lost", "--state: 'lost' is none of"),
        ("--due-from soon", "--due-from: write a date"),
        ("--due-from 2 --due-to 1", "--due-to: is not later"),
        ("--property run", "--property: write it as name=value"),
        ("--key k --page-token x", "--page-token: with --key"),
        ("--page-token x", "--page-token: is not a token"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, given: Given, options: str, why: str) -> None:
    assert cli("search", *options.split()).refused().startswith(why)
