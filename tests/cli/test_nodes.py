"""nodes, routes, era."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delayq import parse_instant
from delayq.base.local_time import shown
from delayq.cli import main
from tests.cli.conftest import Cli, Given, answer
from tests.support.queues import EPOCH, NEW_EPOCH
from tests.support.terminal import Terminal

ERA_3 = f"{3:010d}.{1:020d}"


def test_nodes_are_one_line_each(cli: Cli, given: Given) -> None:
    more: dict[str, Any] = {"address": "10.0.0.5:8081", "version": "0.1.0", "coordinator": "zookeeper"}
    given.owner("node-1", range(3), handed_over=2_000_000_000_000, **more)
    given.owner("node-2", range(5, 16, 2), age=16_000)
    given.owner("node-3", range(0))
    one, two, three = cli("nodes").rows
    assert one[:6] == ["node-1", "live", "0-2", "10.0.0.5:8081", "0.1.0", "zookeeper"]
    assert one[8] == shown(2_000_000_000_000)
    assert all(parse_instant(cell) for cell in one[6:])
    assert two[:6] == ["node-2", "stale", "5,7,9,11,13,15", "-", "-", "-"]
    assert (three[2], three[8]) == ("-", "-")
    given.owner("node\t\x1b[31m", range(1), address="\x1b[2J\n", version="\x9b31m")
    ran = cli("nodes")
    assert len(ran.rows) == 4
    assert not {"\x1b", "\x9b"} & set(ran.out)


@pytest.mark.parametrize("what", ["nodes", "routes"])
def test_no_nodes_and_no_routes_are_no_lines(cli: Cli, given: Given, what: str) -> None:
    given.admin.hset("delayq:nodes", "garbled", b"\xff{")
    ran = cli(what)
    assert (ran.code, ran.out) == (0, "")
    assert ran.sentence().startswith({"nodes": "no nodes are running", "routes": "no live worker reports routes"}[what])
    assert json.loads(cli(what, "--json").out) == {what: []}


# -- routes --------------------------------------------------------------------------------------------------------------


def test_routes_are_one_line_each(cli: Cli, given: Given) -> None:
    since = 2_000_000_000_000
    circuit = {"since": since, "probe": since + 1_000, "reason": "h answered 500"}
    hooks = {"name": "hooks", "match": "demo", "target": "https://h:8443", "circuit": circuit}
    given.owner("node-1", range(16), routes=[hooks, {"name": "streams", "match": "*", "target": "redis+stream:"}])
    given.parked("a", "t:hooks")
    began, probe = shown(2_000_000_000_000), shown(2_000_000_001_000)
    assert cli("routes").rows == [
        ["hooks", "open", "1", "https://h:8443", began, probe, "node-1", "h answered 500"],
        ["streams", "closed", "0", "redis+stream:", "-", "-", "-", "-"],
    ]
    assert json.loads(cli("routes", "--json").out) == answer(given, "/v1/routes")
    found = json.loads(cli("get", "a", "--json").out)
    assert found["nextProbeTime"] == "2033-05-18T03:33:21.000Z"
    assert found["reason"] == "the circuit of route hooks is open: h answered 500"


# -- era -----------------------------------------------------------------------------------------------------------------


def test_a_new_era_is_the_next_one_above_all_that_redis_has_and_is_shown_with_the_highest_epoch(
    cli: Cli, given: Given
) -> None:
    assert cli("era", "show").rows == [["era", "0"], ["highestEpoch", "-"]]
    assert "--yes" in cli("era", "bump", stdin=b"y\n").refused()  # without a terminal nobody is asked
    assert given.admin.dbsize() == 0
    given.stored(EPOCH, range(16))
    ran = cli("era", "bump", "--yes")
    assert (ran.code, ran.rows) == (0, [["before", "0"], ["era", "1"]])
    assert "claim their queues again" in ran.sentence()
    assert "delivered twice" in ran.sentence()
    ran = cli("era", "bump", "--yes", "--json")
    assert (json.loads(ran.out), ran.err) == ({"before": 1, "era": 2}, "")
    given.stored(NEW_EPOCH, range(3, 5))
    assert json.loads(cli("era", "show", "--json").out) == {"era": 2, "highestEpoch": NEW_EPOCH}
    given.stored(ERA_3, range(1))
    assert cli("era", "bump", "--yes").rows == [["before", "2"], ["era", "4"]]


def test_somebody_at_a_terminal_is_asked_and_changes_nothing_without_agreeing(
    given: Given, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given.client.context()
    era = 0
    for typed in ("y\n", "", "\n", "Yes\n", "n\n", "no\n", "yesterday\n", " y "):
        agrees = typed.strip().lower() in ("y", "yes")
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        assert main(["era", "bump"]) == (0 if agrees else 1)
        printed = capsys.readouterr()
        assert printed.out == (f"before\t{era}\nera\t{era + 1}\n" if agrees else "")
        assert "delivered twice" in printed.err.partition("[y/N]")[0]
        assert printed.err.endswith("delayq: nothing was changed.\n") is not agrees
        era += agrees
        assert int(given.admin.hget("delayq:meta", "era")) == era
