from __future__ import annotations

import json

import pytest

from delayq.client.looking import dead_groups
from delayq.domain.nodes import RECENT_STEP
from delayq.store import commands
from tests.cli.conftest import Cli, Given

ALL = range(16)


def test_when_all_is_well_nothing_is_told(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.owner("node-1", ALL)
    ran = cli("status")
    assert (ran.code, ran.out, ran.err) == (0, "", "delayq: no problems found.\n")
    assert json.loads(cli("status", "--json").out) == {"findings": []}
    figures = dict(cli("overview").rows)
    assert (figures["scheduled"], figures["delivered a second"], figures["live nodes"]) == ("1", "-", "1")
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
    parked = "hooks.example answered 500): 1 message is parked, the next probe is sent in"
    left = range((now + 8_500 - after) // 1_000, 9)  # seconds: which of them, the time that the command took tells
    assert any(f"{parked} {seconds} s; check the target" in text for seconds in left)
    doctor = cli("doctor", "--json")
    assert doctor.code == 1
    assert [one for one in json.loads(doctor.out)["findings"] if one["code"] != "circuit"] == [
        one for one in findings if one["code"] != "circuit"
    ]


def test_dead_letters_late_deliveries_and_pauses_are_findings(cli: Cli, given: Given) -> None:
    for number in range(3):
        given.dead_letter(f"m{number}")
    now = given.client.store.run(commands.redis_now())
    given.owner("node-1", ALL, policies="9999999999.0", recent={"last": now // RECENT_STEP - 1, "counts": [[]]})
    figures = dict(cli("overview").rows)
    assert (figures["delivered a second"], figures["lateness p99 ms"]) == ("0.0", "-")
    counts = [0] * 20 + [97, 0, 0, 3]  # of LATENESS: 97 in 60 s or less, 3 above 600 s
    now = given.client.store.run(commands.redis_now())
    given.owner("node-1", ALL, policies="9999999999.0", recent={"last": now // RECENT_STEP - 1, "counts": [counts]})
    given.client.pause("orders.*", reason="payment is down", wait=0)
    ran = cli("status")
    told = [(row[0], row[1]) for row in ran.rows]
    assert (ran.code, told) == (0, [("warning", "deadLetters"), ("warning", "lateness"), ("info", "paused")])
    dead, late, paused = (row[3] for row in ran.rows)
    assert dead.startswith("3 dead letters wait to be redriven")
    assert "100 of the 100 messages" in late and "the p99 is more than 10 min" in late
    assert "orders.* (payment is down)" in paused
    assert ran.rows[0][2] != "-"
    figures = dict(cli("overview").rows)
    assert (figures["lateness p50 ms"], figures["lateness p99 ms"]) == ("45463.92", "more than 10 min")
    traffic = json.loads(cli("overview", "--json").out)["traffic"]
    assert (traffic["overMs"], traffic["total"]["p99Ms"], traffic["p99Ms"][-1]) == (600_000, None, None)
    assert "info" in {row[0] for row in cli("doctor").rows}


def test_what_is_late_is_reported_with_since_when(cli: Cli, given: Given) -> None:
    given.scheduled("a", expect_date=1_000_000_000_000)
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
    assert ran.sentence() == "only the 4 newest dead letters are counted; there are more."
