"""`delayq dev advance`."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli, Given


def test_the_time_of_a_development_server_moves(cli: Cli, given: Given) -> None:
    given.admin.hset("delayq:meta", "advanced", 0)
    assert json.loads(cli("dev", "advance", "1h", "--json").out)["ahead"] == 3_600_000
    ran = cli("dev", "advance", "30m")
    assert (ran.code, [name for name, _ in ran.rows]) == (0, ["now"])
    assert int(given.admin.hget("delayq:meta", "advanced")) == 5_400_000


def test_any_other_server_refuses(cli: Cli, given: Given) -> None:
    assert cli("dev", "advance", "30m").refused().startswith("only a development server moves its time; ")
    assert cli("dev", "advance", "soon").refused().startswith("DURATION: use a duration")
    assert not given.admin.hexists("delayq:meta", "advanced")
