from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from delayq import parse_instant
from tests.cli.conftest import Cli, Given
from tests.support.nodes import publish_routes
from tests.support.queues import EPOCH


def test_the_overview_adds_up_all_queues_and_queues_are_one_line_each(cli: Cli, given: Given) -> None:
    for number in range(5):
        given.scheduled(f"id-{number}")
    given.dead_letter("dead")
    fields = dict(cli("overview").rows)
    assert (fields["queues"], fields["scheduled"], fields["dead"]) == ("16", "5", "1")
    assert (fields["scheduled in all"], fields["buried in all"]) == ("6", "1")
    total = json.loads(cli("queues", "--json").out)["total"]
    assert (total["depth"], total["dead"], total["counters"]["scheduled"]) == (5, 1, 6)
    given.owner("node-1", range(16))
    rows = cli("queues").rows
    assert [row[0] for row in rows] == [str(queue) for queue in range(16)]
    assert sum(int(row[1]) for row in rows) == 5
    others = [row for row in rows if row[0] != str(given.queue_of("dead"))]
    assert {tuple(row[2:4] + row[5:]) for row in others} == {("0", "0", "0", "node-1")}
    assert {row[7] for row in cli("queues", "-v").rows} == {"-", EPOCH}


def test_dead_letters_are_listed_with_their_reasons_and_by_group(cli: Cli, given: Given) -> None:
    ran = cli("dead-letters", "list")
    assert (ran.code, ran.out, ran.sentence()) == (0, "", "there are no dead letters.")
    for id, reason in (("a", "order 10001 is gone"), ("b", "order 20002 is gone"), ("c", "answered 404")):
        given.dead_letter(id, reason)
    assert [(row[0], row[1], row[4]) for row in cli("dead-letters", "groups").rows] == [
        ("2", "demo", "order # is gone"), ("1", "demo", "answered 404")
    ]  # fmt: skip
    assert json.loads(cli("dead-letters", "groups", "--json").out)["complete"] is True
    group = cli("dead-letters", "groups").rows[0][4]
    assert sorted(row[0] for row in cli("dead-letters", "list", "--group", group).rows) == ["a", "b"]
    ((id, died, attempts, topic, reason),) = cli("dead-letters", "list", "--reason", "404").rows
    assert (id, attempts, topic, reason) == ("c", "1", "demo", "answered 404")
    assert parse_instant(died)
    given.admin.hset(f"delayq:{{{given.queue_of('a')}}}:pool", "a", "garbled")
    assert ["1", "-", "order # is gone"] in [[row[0], row[1], row[4]] for row in cli("dead-letters", "groups").rows]


def test_dead_letters_come_by_time_from_either_end_and_filtered(cli: Cli, given: Given) -> None:
    for number in range(6):
        given.dead_letter(f"id-{number}", "no such user" if number == 3 else "broken")

    def ids(*words: str) -> list[str]:
        return [row[0] for row in cli("dead-letters", "list", *words).rows]

    oldest = ids()
    assert ids("--newest") == oldest[::-1]
    first = cli("dead-letters", "list", "--limit", "4")
    assert [row[0] for row in first.rows] + ids("--page-token", first.err.split()[-1]) == oldest
    assert ids("--reason", "USER") == ["id-3"]
    assert ids("--topic", "de*", "--from", "1h") == oldest
    ran = cli("dead-letters", "list", "--to", "1h")
    assert (ran.code, ran.out, ran.sentence()) == (0, "", "no dead letter matches.")


def test_redrive_puts_dead_letters_back_and_discard_deletes_them_for_good(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        given.dead_letter(f"id-{number}")
    monkeypatch.setenv("DELAYQ_ROUTES", '[{"name": "all", "match": "*"}]')  # no worker goes by what is set here
    publish_routes(given.url, [{"name": "orders", "match": "orders.*", "target": "log:"}])
    assert cli("dead-letters", "redrive", "id-0").rows == [["id-0", "noRoute"]]
    ran = cli("dead-letters", "redrive", "--no-route-check", "id-0")
    assert (ran.code, ran.rows) == (0, [["id-0", "scheduled"]])
    publish_routes(given.url, [{"name": "all", "match": "*", "target": "log:"}])
    given.dead_letter("id-0")
    ran = cli("dead-letters", "redrive", "id-0")
    assert (ran.code, ran.rows) == (0, [["id-0", "scheduled"]])
    assert dict(cli("overview").rows)["due"] == "1"
    ran = cli("dead-letters", "redrive", "id-0", "nobody")
    assert (ran.code, ran.rows) == (1, [["id-0", "scheduled"], ["nobody", "notDead"]])
    given.admin.hset(f"delayq:{{{given.queue_of('id-1')}}}:pool", "id-1", "garbled")
    assert [row[3] for row in cli("dead-letters", "list").rows].count("-") == 1
    ran = cli("dead-letters", "redrive", "--all", "--json")  # every page
    results = {one["id"]: one["result"] for one in json.loads(ran.out)["results"]}
    assert (ran.code, len(results), results.pop("id-1"), set(results.values())) == (1, 59, "corrupt", {"scheduled"})
    ran = cli("dead-letters", "discard", "id-1", "id-2")
    assert (ran.code, ran.rows) == (1, [["id-1", "discarded"], ["id-2", "notDead"]])
    found = given.client.get("id-1")
    assert found is not None
    assert (found.state, found.record) == ("discarded", None)
    assert cli("dead-letters", "redrive", "--all").sentence() == "there are no dead letters."


def test_version_says_which_delayq_it_is(cli: Cli) -> None:
    for words in ("--version", "version", "version --json", "--version stats"):
        ran = cli(*words.split())
        assert ran.code == 0
        assert version("delayq") in ran.out
