from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from api.app import create_app
from delayq.config import load_settings
from tests.cli.conftest import Cli, Given


def answer(given: Given, path: str) -> Any:
    """What the HTTP API answers to a GET."""

    async def ask() -> Any:
        app = create_app(load_settings(redis_url=given.url))
        transport = httpx2.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as api,
        ):
            return (await api.get(path)).json()

    return asyncio.run(ask())


FULL: dict[str, Any] = {
    "tags": "t", "keys": ("k1", "k2"), "properties": {"b": "2", "a": "1"}, "ordering_key": "o", "max_attempts": 3,
    "expire_after": 60_000,
}  # fmt: skip


@pytest.mark.parametrize("body", ["text", b"\xff\x00", {"a": [1, 2.5, None]}, "", 7, "\x1b[31m\x7f\x9b\u2028\u202e"])
@pytest.mark.parametrize("fields", [{}, FULL], ids=["bare", "full"])
def test_get_prints_what_the_http_api_answers(cli: Cli, given: Given, body: Any, fields: dict[str, Any]) -> None:
    id = given.scheduled("a", body=body, **fields)
    assert json.loads(cli("get", id, "--json").out) == answer(given, f"/v1/messages/{id}")


def test_the_shape_of_a_message_is_what_the_documentation_says(cli: Cli, given: Given) -> None:
    id = given.scheduled("a", body={"n": 1}, expect_date=2_000_000_000_000, **FULL)
    assert json.loads(cli("get", id, "--json").out) == {
        "id": id,
        "queue": given.queue_of(id),
        "state": "scheduled",
        "attempts": 0,
        "dueTime": "2033-05-18T03:33:20.000Z",
        "dueMs": 2_000_000_000_000,
        "endedTime": None,
        "reason": None,
        "nextProbeTime": None,
        "message": {
            "topic": "demo",
            "expectDate": "2033-05-18T03:33:20.000Z",
            "body": {"n": 1},
            "tags": "t",
            "keys": ["k1", "k2"],
            "properties": {"a": "1", "b": "2"},
            "orderingKey": "o",
            "maxAttempts": 3,
            "expireAfter": 60_000,
        },
    }


def test_every_state_has_the_shape_of_the_http_api(cli: Cli, given: Given) -> None:
    given.scheduled("scheduled")
    given.pulled("in-flight")
    given.parked("parked", "t:gone")
    given.dead_letter("dead")
    given.scheduled("cancelled")
    given.client.cancel("cancelled")
    for id in ("scheduled", "in-flight", "parked", "dead", "cancelled"):
        shape = json.loads(cli("get", id, "--json").out)
        assert shape["state"].replace("_", "-") == id
        assert shape == answer(given, f"/v1/messages/{id}")


def test_a_record_that_cannot_be_read_has_no_message(cli: Cli, given: Given) -> None:
    given.dead_letter("a")
    given.admin.hset(f"delayq:{{{given.queue_of('a')}}}:pool", "a", "garbled")
    assert json.loads(cli("get", "a", "--json").out)["message"] is None
    assert dict(cli("get", "a").rows)["state"] == "dead"


def test_schedule_and_reschedule_print_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    shape = json.loads(cli("schedule", "demo", "x", "--at", "2000000000000", "--id", "a", "--json").out)
    due = {"dueTime": "2033-05-18T03:33:20.000Z", "dueMs": 2_000_000_000_000}
    assert shape == {"id": "a", "queue": given.queue_of("a"), "state": "scheduled", **due}
    assert json.loads(cli("reschedule", "a", "--at", "2000000000000", "--json").out) == shape


def test_find_prints_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    given.scheduled("a", keys=("k",))
    given.scheduled("b", keys=("k",))
    assert json.loads(cli("find", "k", "--json").out) == answer(given, "/v1/messages?key=k")


def test_stats_and_queues_print_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    given.scheduled("a")
    given.dead_letter("b")
    given.owner("node-1", range(16))
    assert json.loads(cli("stats", "--json").out) | {"now": ""} == answer(given, "/v1/stats") | {"now": ""}
    printed, answered = json.loads(cli("queues", "--json").out), answer(given, "/v1/queues")
    assert printed.keys() == answered.keys()
    queue = given.queue_of("b")  # which has an epoch
    assert printed["queues"][queue] == answered["queues"][queue]


def test_nodes_print_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    given.owner("node-1", range(3), address="h:1", version="0.1.0", coordinator="local", handed_over=2_000_000_000_000)
    given.owner("node-2", range(3, 16), age=20_000)
    printed = json.loads(cli("nodes", "--json").out)
    assert [node["node"] for node in printed["nodes"]] == ["node-1", "node-2"]
    assert printed == answer(given, "/v1/nodes")


def test_dead_letters_print_what_the_http_api_answers(cli: Cli, given: Given) -> None:
    given.dead_letter("a", "größer \x1b[31m")
    given.dead_letter("b")
    for limit in ("1", "10"):
        printed = json.loads(cli("dead-letters", "list", "--limit", limit, "--json").out)
        assert printed == answer(given, f"/v1/dead-letters?limit={limit}")


def test_json_is_one_line_without_control_characters(cli: Cli, given: Given) -> None:
    given.scheduled("a", body="\x1b]0;x\x07\r\n\x7f\x9b31m\u2028\u202e")
    out = cli("get", "a", "--json").out
    assert out.count("\n") == 1
    assert [one for one in out.rstrip("\n") if not one.isprintable()] == []
