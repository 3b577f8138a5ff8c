from __future__ import annotations

import json

import pytest

from delayq.base.local_time import in_sentence, shown
from delayq.store import commands
from delayq.store.commands import Census, Tally
from delayq.store.keys import KEYS
from tests.cli.conftest import Cli, Given, answer
from tests.support.queues import EPOCH


def test_search_prints_what_fits_by_due(cli: Cli, given: Given) -> None:
    given.scheduled("late", keys=("k",), topic="orders.a", expect_date=2_000_000_000_001)
    given.scheduled("early", topic="orders.b", properties={"run": "7"}, expect_date=2_000_000_000_000)
    given.scheduled("other", topic="mail", tags="vip", expect_date=2_000_000_000_002)
    assert cli("search", "--topic", "orders.*").rows == [
        ["early", "scheduled", shown(2_000_000_000_000), "0", "orders.b"],
        ["late", "scheduled", shown(2_000_000_000_001), "0", "orders.a"],
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
    given.scheduled("last", keys=("k",), expect_date=2_000_000_000_003)
    ran = cli("search", "--key", "k", "--limit", "1")
    assert [row[0] for row in ran.rows] == ["last"]
    token = ran.err.split()[-1]
    assert [row[0] for row in cli("search", "--key", "k", "--page-token", token).rows] == ["late"]
    assert [row[0] for row in cli("find", "k").rows] == ["late", "last"]
    assert json.loads(cli("search", "--key", "k", "--json").out) == answer(given, "/v1/messages?key=k")


def test_held_and_parked_are_different_states(cli: Cli, given: Given) -> None:
    given.parked("aside", "t:gone")
    given.parked("behind", "h:demo")
    assert dict(cli("get", "behind").rows)["state"] == "held"
    assert [row[:2] for row in cli("search", "--state", "held").rows] == [["behind", "held"]]
    assert [row[:2] for row in cli("search", "--state", "parked").rows] == [["aside", "parked"]]
    assert cli("count", "--state", "held").rows[0][0] == "1"
    ran = cli("search", "--topic", "nothing")
    assert (ran.code, ran.out, ran.sentence()) == (1, "", "no message matches.")


SPAN = "--due-from 1999999999000 --due-to 2000000002000 --step 1s"
#: Commands, and what the API is asked for the same.
COUNTS = {
    "count": "/v1/messages:count",
    "count --state dead": "/v1/messages:count?state=dead",
    "count --topic demo": "/v1/messages:count?topic=demo",
    f"forecast {SPAN}": "/v1/forecast?dueFrom=1999999999000&dueTo=2000000002000&step=1s",
    f"forecast {SPAN} --topic demo": "/v1/forecast?dueFrom=1999999999000&dueTo=2000000002000&step=1s&topic=demo",
}


def test_count_and_forecast_print_what_the_http_api_answers(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.client.looking.counting.LIVE", -1)  # as if there were more messages
    given.scheduled("a", expect_date=2_000_000_000_000)
    given.dead_letter("b")

    def counted(topic: str) -> None:
        """A census of all queues with a message."""
        census = Census(1_999_999_999_000, {topic: {"scheduled": Tally(2, 9, [0, 2])}})
        for queue in (given.queue_of("a"), given.queue_of("b")):
            given.client.store.run(commands.keep_census(KEYS.queue(queue), EPOCH, census))

    def check() -> None:
        for command, path in COUNTS.items():
            assert json.loads(cli(*command.split(), "--json").out) == answer(given, path), command

    check()
    assert cli("count", "--due-from", "30d").rows == [["1"]]
    assert [row[1] for row in cli("forecast", *SPAN.split()).rows] == ["0", "1", "0"]
    assert len(cli("forecast").rows) == 96
    for command in ("count", "forecast"):
        ran = cli(command, "--topic", "demo")
        assert (ran.code, ran.out) == (1, "")
        assert ran.sentence().startswith("some queue has no census yet")
    counted("demo")
    check()
    as_of = in_sentence("2033-05-18T03:33:19.000Z")
    assert cli("count", "--topic", "demo").rows[0][1] == f"as of {as_of}"
    rows = cli("forecast", "--topic", "demo").rows
    assert {row[2] for row in rows} == {f"as of {as_of}"}
    counted("*")  # of topics that it does not name a census tells nothing
    check()
    for command in ("count --topic demo", f"forecast {SPAN} --topic demo"):
        told = json.loads(cli(*command.split(), "--json").out)
        assert (told.get("count"), told.get("buckets"), told["exact"], in_sentence(told["asOf"])) == (
            None,
            None,
            False,
            as_of,
        )
        ran = cli(*command.split())
        assert (ran.code, ran.out) == (1, "")
        assert ran.sentence().startswith(f"the census of {as_of} has no such count")
