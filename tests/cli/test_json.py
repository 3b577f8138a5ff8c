from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Cli, Given, answer

FULL: dict[str, Any] = {
    "tags": "t", "keys": ("k1", "k2"), "properties": {"b": "2", "a": "1"}, "ordering_key": "o", "max_attempts": 3,
    "expire_after": 60_000,
}  # fmt: skip


def test_get_prints_what_the_http_api_answers_in_one_line(cli: Cli, given: Given) -> None:
    bodies = ["text", b"\xff\x00", {"a": [1, 2.5, None]}, "", 7, "\x1b]0;x\x07\r\n\x7f\x9b31m\u2028\u202e"]
    ids = [given.scheduled(f"m{n}", body=body, **(FULL if n % 2 else {})) for n, body in enumerate(bodies)]
    given.pulled("in-flight")
    given.parked("parked", "t:gone")
    given.dead_letter("dead")
    given.dead_letter("garbled")
    given.admin.hset(f"delayq:{{{given.queue_of('garbled')}}}:pool", "garbled", "garbled")
    given.client.cancel(given.scheduled("cancelled"))
    states = {"in-flight": "inFlight", "parked": "parked", "dead": "dead", "garbled": "dead", "cancelled": "cancelled"}
    for id in (*ids, *states):
        out = cli("get", id, "--json").out
        shape = json.loads(out)
        assert shape == answer(given, f"/v1/messages/{id}")
        assert shape["state"] == states.get(id, "scheduled")
        assert (shape["message"] is None) == (id in ("garbled", "cancelled"))
        assert out.count("\n") == 1
        assert [one for one in out.rstrip("\n") if not one.isprintable()] == []
    assert dict(cli("get", "garbled").rows)["state"] == "dead"


def test_schedule_and_reschedule_print_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    shape = json.loads(cli("schedule", "demo", "x", "--at", "2000000000000", "--id", "a", "--json").out)
    due = {"dueTime": "2033-05-18T03:33:20.000Z", "dueMs": 2_000_000_000_000}
    assert shape == {"id": "a", "queue": given.queue_of("a"), "state": "scheduled", **due}
    assert json.loads(cli("reschedule", "a", "--at", "2000000000000", "--json").out) == shape
