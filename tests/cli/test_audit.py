from __future__ import annotations

import json

from delayq import Message
from tests.cli.conftest import Cli, Given


def test_every_change_by_a_command_is_written_down(cli: Cli, given: Given) -> None:
    for id in ("a", "b", "c"):
        given.scheduled(id, keys=("k",))
    for id in ("d", "e"):
        given.dead_letter(id)
    assert cli("cancel", "a", "--reason", "no longer wanted").code == 0
    assert cli("cancel", "--key", "k").code == 0
    cli("dead-letters", "redrive", "d")
    cli("dead-letters", "discard", "e")
    cli("era", "bump", "--yes", "--reason", "ZooKeeper was wiped")
    entries = json.loads(cli("audit", "--json").out)["entries"]
    told = sorted((one["action"], tuple(sorted(m["id"] for m in one.get("messages", ())))) for one in entries)
    assert told == [
        ("bumpEra", ()),
        ("cancel", ("a",)),
        ("cancel", ("b", "c")),
        ("discard", ("e",)),
        ("redrive", ("d",)),
    ]
    assert {one["actor"] for one in entries} == {json.loads(cli("me", "--json").out)["name"]}
    (row,) = cli("audit", "--id", "a").rows
    assert row[2:] == ["cancel", "a", "no longer wanted"]
    (row,) = cli("audit", "--action", "bumpEra", "--from", "1h").rows
    assert row[2:] == ["bumpEra", "0 1", "ZooKeeper was wiped"]
    assert cli("get", "a").out.endswith(f"{row[1]}\n")


def test_repair_and_reshard_are_written_down(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    queue = given.queue_of("a")
    given.admin.delete(f"delayq:{{{queue}}}:queue")
    cli("doctor", "--repair")
    cli("reshard", "--queues", "32", "--reason", "more")
    entries = json.loads(cli("audit", "--json", "--limit", "1000").out)["entries"]
    actions = [one["action"] for one in entries]
    assert (actions.count("repair"), actions.count("reshard")) == (1, 1)  # each is one act, of however many queues
    assert [one["detail"] for one in entries if "queue" not in one] == ["16 32@16"]


def test_an_undo_is_one_entry_with_the_name_of_its_run(cli: Cli, given: Given) -> None:
    wanted = (
        Message(topic="demo", id=f"m{number}", delay_time=3_600_000, properties={"backfill": "r1"})
        for number in range(2_000)
    )
    given.client.schedule_many(wanted)
    given.scheduled("other")
    cli("cancel", "other")
    assert cli("backfill", "undo", "r1", "--reason", "a wrong column").code == 0
    undo, cancel = json.loads(cli("audit", "--json").out)["entries"]
    assert (undo["action"], undo["run"], undo["count"], undo["reason"]) == (
        "undoBackfill",
        "r1",
        2_000,
        "a wrong column",
    )
    assert (cancel["action"], "count" in cancel, "run" in cancel) == ("cancel", False, False)
    assert [row[3] for row in cli("audit").rows] == ["run r1: 2000 messages", "other"]
    named = undo["messages"][0]["id"]
    assert [row[2] for row in cli("audit", "--id", named).rows] == ["undoBackfill"]
