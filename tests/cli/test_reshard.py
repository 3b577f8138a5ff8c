"""reshard, and what queues, stats and doctor say of it."""

from __future__ import annotations

import json

import pytest

from delayq.base.errors import StoreUnavailable
from delayq.care import resharding
from delayq.cli import main
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, Layout
from tests.cli.conftest import Cli, Given
from tests.support.queues import EPOCH


def listed(given: Given) -> str:
    return str(given.admin.hget(KEYS.meta, "layouts").decode())


def closed(given: Given, queues: range) -> list[bool]:
    return [bool(given.admin.hexists(KEYS.queue(queue).state, "closed")) for queue in queues]


def test_new_messages_go_to_the_new_queues_and_the_others_stay(cli: Cli, given: Given) -> None:
    old = given.scheduled("old")
    ran = cli("reshard", "--queues", "64")
    assert ran.code == 0
    assert ran.rows == [
        ["list", "64 queues, numbered from 16 on"],
        ["own", "64 queues, by 0 live nodes"],
        ["close", "16 of the 16 queues from 0 on"],
        ["keep", "the 16 queues from 0 on, with 1 message left"],
    ]
    assert "DELAYQ_QUEUES" in ran.sentence()
    assert listed(given) == "16 64@16"
    assert all(closed(given, range(16)))
    assert not any(closed(given, range(16, 80)))
    new = json.loads(cli("schedule", "demo", "x", "--delay", "1h", "--id", "new", "--json").out)
    assert new["queue"] == Layout(64, 16).queue_of("new")
    assert json.loads(cli("get", old, "--json").out)["queue"] == Layout(16).queue_of(old)
    assert [row[0] for row in cli("queues").rows] == [str(number) for number in range(80)]
    shapes = json.loads(cli("queues", "--json").out)["queues"]
    assert [one["closed"] for one in shapes] == [True] * 16 + [False] * 64
    assert (json.loads(cli("queues", "--json").out)["total"]["depth"], cli("cancel", old, "new").code) == (2, 0)


def test_a_dry_run_says_the_same_and_changes_nothing(cli: Cli, given: Given) -> None:
    assert "DELAYQ_QUEUES=64" in cli("reshard", "--queues", "64").refused()  # a Redis that nobody has used
    assert given.admin.dbsize() == 0
    given.scheduled("old")
    ran = cli("reshard", "--queues", "64", "--dry-run")
    assert [row[0] for row in ran.rows] == ["list", "own", "close", "keep"]
    assert ran.sentence() == "nothing was changed."
    assert listed(given) == "16"
    assert not any(closed(given, range(16)))
    assert cli("reshard", "--queues", "64").rows == ran.rows
    again = json.loads(cli("reshard", "--queues", "64", "--json").out)  # says how far it is
    assert (again["dryRun"], [one["step"] for one in again["steps"]]) == (False, ["own", "keep"])
    for queues in ("4", "16"):  # layouts may be many and smaller
        assert cli("reshard", "--queues", queues).code == 0
    assert listed(given) == "16 64@16 4@80 16@84"
    assert all(closed(given, range(84)))
    last = json.loads(cli("schedule", "demo", "x", "--delay", "1h", "--id", "last", "--json").out)
    assert last["queue"] == Layout(16, 84).queue_of("last")


@pytest.mark.parametrize("broken", ["set_layouts", "close"])
def test_broken_off_anywhere_it_goes_on_where_it_was(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The command dies behind the first list, or in the middle of the queues; until it is run again all works."""
    given.scheduled("old")
    with monkeypatch.context() as patch:
        _die_behind(patch, broken)
        assert "died" in cli("reshard", "--queues", "64").sentence()
    assert listed(given) == "16 64@16"
    assert sum(closed(given, range(16))) == (0 if broken == "set_layouts" else 7)
    for number in range(50):
        assert cli("schedule", "demo", "x", "--delay", "1h", "--id", f"m{number}").code == 0
    assert any(row[:2] == ["warn", "reshard"] for row in cli("doctor").rows)
    assert cli("reshard", "--queues", "64").code == 0
    assert all(closed(given, range(16)))
    assert [one.id for one in given.client.get_many([f"m{number}" for number in range(50)]) if one] == [
        f"m{number}" for number in range(50)
    ]
    assert not any(row[:2] == ["warn", "reshard"] for row in cli("doctor").rows)


def _die_behind(patch: pytest.MonkeyPatch, script: str) -> None:
    run, run_many = Store.run, Store.run_many

    def dying(store: Store, command: commands.Command[object]) -> object:
        answer = run(store, command)
        if command.script == script:
            raise StoreUnavailable("died")
        return answer

    def dying_many(store: Store, wanted: list[commands.Command[object]]) -> object:
        wanted = list(wanted)
        if wanted and wanted[0].script == script:
            run_many(store, wanted[:7])
            raise StoreUnavailable("died")
        return run_many(store, wanted)

    patch.setattr(Store, "run", dying)
    patch.setattr(Store, "run_many", dying_many)


def test_nothing_is_closed_while_live_nodes_do_not_take_the_new_queues(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resharding, "PATIENCE", 300)  # short, since no node takes them
    given.client.context()
    given.owner("node-1", range(16))
    ran = cli("reshard", "--queues", "32")
    assert (ran.code, [row[0] for row in ran.rows]) == (2, ["list"])
    assert "only 0 of the 32 new queues have an owner" in ran.sentence()
    assert not any(closed(given, range(16)))
    given.stored(EPOCH, range(16, 48))
    assert [row[0] for row in cli("reshard", "--queues", "32").rows] == ["own", "close", "keep"]


def test_the_doctor_tells_of_messages_in_old_queues_of_a_list_that_was_lost_and_of_a_setting_that_names_another_number(
    cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(name: str) -> list[list[str]]:
        return [row for row in cli("doctor").rows if row[1] == name]

    given.scheduled("old")
    assert told("reshard") == []
    monkeypatch.setenv("DELAYQ_QUEUES", "16")
    assert cli("reshard", "--queues", "64").code == 0
    ((result, _, text, *_),) = told("reshard")
    assert (result, "with 1 message still in them" in text) == ("ok", True)
    assert told("layout")[0][0] == "warn"
    given.admin.hset(KEYS.meta, "layouts", "64@16")
    assert "DELAYQ_QUEUES is 16" in cli("queues").refused()
    assert told("layout")[0][0] == "fail"
    monkeypatch.delenv("DELAYQ_QUEUES")
    given.admin.hset(KEYS.meta, "layouts", "16")
    assert told("reshard")[0][0] == "fail"
    assert "repeat the last `delayq reshard`" in cli("schedule", "demo", "x", "--delay", "1h").refused()
    assert cli("reshard", "--queues", "64").code == 0
    assert listed(given) == "16 64@16"
    assert main(["schedule", "demo", "x", "--delay", "1h"]) == 0
