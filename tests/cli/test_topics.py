from __future__ import annotations

import json

import pytest

from delayq.base.local_time import in_sentence, shown
from delayq.base.times import format_instant
from delayq.store import commands
from delayq.store.commands import MOST_OF_EACH, Census, Change
from delayq.store.keys import KEYS
from tests.cli.conftest import Cli, Given
from tests.support.queues import EPOCH

ALL = range(16)


def test_topics_are_paused_and_resumed(cli: Cli, given: Given) -> None:
    given.parked("a", "h:demo")
    paused = cli("pause", "demo*", "--reason", "down", "--until", "2h", "--json")
    answer = json.loads(paused.out)
    assert (paused.code, answer["state"], answer["version"], answer["changed"]) == (0, "paused", 1, True)
    assert [row[:6] for row in cli("topics").rows] == [["demo", "streams", "1", "demo*", "-", "1"]]
    told = dict(cli("topics", "demo").rows)
    assert (told["paused by"], told["reason"], told["held"]) == ("demo*", "down", "1")
    other = json.loads(cli("topics", "other", "--json").out)
    assert other.pop("asOf")
    assert other == {"topic": "other", "route": "streams", "held": 0, "counts": {}}
    resumed = cli("resume", "demo*", "--rate", "500")
    assert (resumed.code, dict(resumed.rows)["held"]) == (0, "1")
    assert json.loads(cli("topics", "--json").out)["topics"][0]["limit"] == {
        "rate": 500, "held": 1, "waitMs": 2, "match": "demo*", "temporary": True
    }  # fmt: skip
    told = dict(cli("topics", "demo").rows)
    assert (told["limited by"], told["granted in the last second"]) == ("demo* until nothing is held", "0")
    assert [row[:2] + row[5:] for row in cli("policies", "list").rows] == [["limit", "demo*", '{"rate":500.0}']]
    assert [cli("resume", "demo*").code for _ in range(2)] == [0, 1]
    assert cli("resume", "other", "--rate", "5").code == 1
    assert cli("policies", "list").rows == []


def test_the_bound_of_pauses_and_policies_is_named_with_what_to_do(cli: Cli, given: Given) -> None:
    there = [Change(f"pause:t{n}", "{}") for n in range(MOST_OF_EACH)]
    there += [Change(f"policy:p{n}", '{"match":"t","rate":1.0}') for n in range(MOST_OF_EACH)]
    given.client.store.run(commands.set_policies(KEYS, there, maker="0000000001"))
    ran = cli("pause", "one-more")
    assert ran.code == 2
    assert "there are 500 pauses in all, the maximum, so nothing was done; resume a pause that is not needed" in ran.err
    ran = cli("policies", "put", "one-more", "--match", "demo", "--rate", "5")
    assert ran.code == 2
    assert (
        "there are 500 policies in all, the maximum, so nothing was done; delete a policy that is not needed" in ran.err
    )
    assert cli("pause", "t1", "--reason", "it is one of them").code == 0
    assert cli("resume", "t1").code == 0
    assert cli("pause", "one-more").code == 0


def test_a_pause_again_looks_anew_and_changes_what_is_given(cli: Cli, given: Given) -> None:
    def pause(*args: str) -> tuple[bool, str, str | None]:
        changed = json.loads(cli("pause", "demo", *args, "--json").out)["changed"]
        (there,) = json.loads(cli("policies", "list", "--json").out)["pauses"]
        return changed, there.get("reason", ""), there.get("until")

    end = pause("--reason", "down", "--until", "2h")[2]
    assert end is not None
    assert pause() == (False, "down", end)
    assert pause("--reason", "still down") == (True, "still down", end)
    assert pause("--until", "never") == (True, "still down", None)
    assert pause("--reason", "") == (True, "", None)


def test_topics_are_listed_by_a_pattern_page_by_page(cli: Cli, given: Given) -> None:
    for topic in ("demo.a", "demo.b", "other"):
        cli("pause", topic)
    cli("policies", "put", "p", "--match", "demo.c", "--pending", "5")
    first = cli("topics", "demo.*", "--paused", "yes", "--limit", "1")
    assert ([row[0] for row in first.rows], first.err) == (["demo.a"], "delayq: more follow: --page-token demo.a\n")
    answer = json.loads(cli("topics", "demo.*", "--page-token", "demo.a", "--json").out)
    assert ([one["topic"] for one in answer["topics"]], answer["nextPageToken"], answer["total"]) == (
        ["demo.b", "demo.c"], None, 3
    )  # fmt: skip
    assert cli("topics", "demo.*", "--paused", "no").rows[0][0] == "demo.c"
    assert cli("topics", "nobody.*").sentence().startswith("no topic matches")


def test_topics_that_nobody_has_counted_are_not_said_to_have_no_messages(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.scheduled("a")
    assert cli("topics", "nobody").rows[-2:-1] == [["messages", "0"]]
    monkeypatch.setattr("delayq.client.looking.counting.LIVE", -1)  # as if there were more messages
    ran = cli("topics")
    assert (ran.code, ran.out) == (1, "")
    assert ran.sentence().startswith("some queue has no census yet")
    assert ["messages", "-"] in cli("topics", "demo").rows
    at = 1_999_999_999_000
    given.client.store.run(commands.keep_census(KEYS.queue(given.queue_of("a")), EPOCH, Census(at, {})))
    assert cli("topics").sentence().startswith(f"no topic matches as of {in_sentence(format_instant(at))}; ")
    assert cli("topics", "demo").rows[-2:] == [["messages", "0"], ["as of", shown(at)]]


def test_while_something_may_arrive_a_pause_says_so(cli: Cli, given: Given) -> None:
    given.owner("node-1", ALL, policies="9999999999.0000000000", held={"demo": 2})
    ran = cli("pause", "demo", "--wait", "0s")
    assert (ran.code, ran.rows[:2]) == (1, [["state", "pausing"], ["in flight", "2"]])
    assert ["may come from node-1", "2"] in cli("topics", "demo").rows
    given.owner("node-2", ALL)
    assert cli("pause", "other").refused().startswith("node-2 cannot pause topics")


def test_policies_are_put_listed_and_deleted(cli: Cli, given: Given) -> None:
    assert cli("policies", "list").err == "delayq: there are no policies and no pauses.\n"
    put = cli(
        "policies", "put", "sms", "--match", "sms.*", "--rate", "50", "--backoff", "10s,1m", "--index", "topic,tags"
    )
    assert (put.code, put.rows) == (0, [["name", "sms"], ["changed", "yes"], ["version", "1"]])
    cli("pause", "demo", "--reason", "down")
    rows = cli("policies", "list").rows
    says = '{"rate":50.0,"backoff":[10000,60000],"index":["topic","tags"]}'
    assert [(row[0], row[1], row[2], row[5]) for row in rows] == [
        ("policy", "sms.*", "sms", says), ("pause", "demo", "-", "down")
    ]  # fmt: skip
    assert json.loads(cli("policies", "list", "--json").out)["policies"][0]["backoff"] == [10_000, 60_000]
    shown = dict(cli("policies", "show", "sms").rows)
    assert (shown["match"], shown["rate"], shown["backoff"]) == ("sms.*", "50.0", "[10000,60000]")
    assert json.loads(cli("policies", "show", "sms", "--json").out)["index"] == ["topic", "tags"]
    assert (cli("policies", "show", "mail").code, cli("policies", "show", "mail").out) == (1, "")
    assert "changed the policies" in cli("policies", "delete", "sms", "--if-version", "1").refused()
    assert [cli("policies", "delete", "sms").code for _ in range(2)] == [0, 1]
