from __future__ import annotations

import json

import pytest

from delayq.client import dead_groups
from delayq.store import commands
from tests.cli.conftest import Cli, Given

ALL = range(16)


def test_when_all_is_well_nothing_is_told(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.owner("node-1", ALL)
    ran = cli("status")
    assert (ran.code, ran.out, ran.err) == (0, "", "delayq: nothing is wrong.\n")
    assert json.loads(cli("status", "--json").out) == {"findings": []}
    figures = dict(cli("overview").rows)
    assert (figures["scheduled"], figures["forwarded a second"], figures["live nodes"]) == ("1", "-", "1")
    assert json.loads(cli("overview", "--json").out)["traffic"] is None


def test_the_worst_comes_first_and_doctor_has_the_same_list(cli: Cli, given: Given) -> None:
    given.parked("a", "t:hooks")
    now = given.owner("gone", range(0), age=20_000)
    circuit = {"since": now - 9_000, "probe": now + 8_500, "reason": "hooks.example answered 500"}
    route = {"name": "hooks", "match": "*", "target": "https://hooks.example", "circuit": circuit}
    given.owner("node-1", range(15), routes=[route], complaints=["queue 3 is stuck"])
    given.admin.hincrby("delayq:{2}:state", "scheduled", 5)
    ran = cli("status", "--json")
    after = given.client.store.run(commands.redis_now())
    findings = json.loads(ran.out)["findings"]
    told = [(one["severity"], one["code"]) for one in findings]
    assert ran.code == 1
    assert told == [
        ("critical", "worker"),
        ("critical", "accounts"),
        ("warning", "silent"),
        ("warning", "circuit"),
        ("warning", "owners"),
    ]
    by_code = {one["code"]: one for one in findings}
    assert by_code["worker"]["text"] == "node-1: queue 3 is stuck; see the log of node-1"
    assert (by_code["accounts"]["queue"], by_code["silent"]["node"], by_code["circuit"]["node"]) == (
        2,
        "gone",
        "node-1",
    )
    text = by_code["circuit"]["text"]
    parked = "hooks.example answered 500): 1 messages are parked, the next probe goes in"
    left = range((now + 8_500 - after) // 1_000, 9)  # seconds: which of them, the time that the command took tells
    assert any(f"{parked} {seconds} s; see to the target" in text for seconds in left)
    doctor = cli("doctor", "--json")
    assert doctor.code == 1
    assert [one for one in json.loads(doctor.out)["findings"] if one["code"] != "circuit"] == [
        one for one in findings if one["code"] != "circuit"
    ]


def test_what_is_late_is_reported_with_since_when(cli: Cli, given: Given) -> None:
    given.scheduled("a", expect_date=1_000)
    given.owner("node-1", ALL)
    keys = f"delayq:{{{given.queue_of('a')}}}:queue"
    (ticket,) = given.admin.zrange(keys, 0, -1)
    given.admin.zadd(keys, {ticket: 1_800_000_000_000 - 10**11})
    (late,) = json.loads(cli("status", "--json").out)["findings"]
    assert (late["code"], late["severity"], late["queue"]) == ("late", "warning", given.queue_of("a"))
    assert late["since"] == "2023-11-14T22:13:20.000Z"
    assert json.loads(cli("me", "--json").out)["name"].startswith("cli:")


def test_only_so_many_dead_letters_are_looked_at(cli: Cli, given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_groups, "PAGE", 2)
    monkeypatch.setattr(dead_groups, "MOST", 3)
    for number in range(6):
        given.dead_letter(f"m{number}.0003")
    ran = cli("dead-letters", "groups")
    assert ran.rows[0][:2] == ["4", "demo"]
    assert ran.sentence() == "these are the 4 newest; there are more."
