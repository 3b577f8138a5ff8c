from __future__ import annotations

import json
from typing import Any

import httpx2

from delayq.store import commands
from delayq.store.keys import KEYS
from tests.api.conftest import Worker
from tests.docs.blocks import ROOT, blocks_of, matches
from tests.support.queues import EPOCH

LINE: dict[str, Any] = {
    "node": "worker-1", "address": "10.0.0.5:8081", "version": "0.1.0", "coordinator": "zookeeper", "handed_over": None,
}  # fmt: skip


def publish(worker: Worker, line: dict[str, Any], age: int = 0) -> int:
    """A node writes its line, so many ms ago; when."""
    seen = worker.store.run(commands.redis_now()) - age
    worker.store.run(commands.publish_node(KEYS, line["node"], json.dumps({"seen": seen} | line).encode()))
    return seen


async def nodes(api: httpx2.AsyncClient) -> list[dict[str, Any]]:
    answer = await api.get("/v1/nodes")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["nodes"]
    return found


async def test_a_node_is_shown_as_the_documentation_says(api: httpx2.AsyncClient, worker: Worker) -> None:
    page = ROOT / "docs" / "http.md"
    (block,) = (block for block in blocks_of(page) if block.note == "run by tests/api/test_nodes.py")
    started = 1_801_382_400_000
    queues = {"3": {"epoch": "0000000000.00000000004294967298.7302559186", "since": started + 1_500}}
    publish(worker, LINE | {"since": started, "queues": queues})
    assert matches(block.text, (await api.get("/v1/nodes")).text)


async def test_a_node_tells_since_when_it_owns_what_and_when_it_gave_a_queue_up(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    queues = {"11": {"epoch": EPOCH, "since": 2_000_000_000_000}, "3": {"epoch": EPOCH}}
    publish(worker, LINE | {"queues": queues, "handed_over": 2_000_000_000_001, "complaints": ["queue 3 is stuck"]})
    (node,) = await nodes(api)
    assert node["complaints"] == ["queue 3 is stuck"]
    assert node["handedOver"] == "2033-05-18T03:33:20.001Z"
    assert node["queues"] == [
        {"queue": 3, "epoch": EPOCH, "since": None},
        {"queue": 11, "epoch": EPOCH, "since": "2033-05-18T03:33:20.000Z"},
    ]
    publish(worker, {"node": "older", "since": 2_000_000_000_000, "queues": {"3": EPOCH}})
    node = next(one for one in await nodes(api) if one["node"] == "older")
    assert (node["since"], node["stale"], node["complaints"]) == ("2033-05-18T03:33:20.000Z", False, [])
    assert [node[name] for name in ("address", "version", "coordinator", "handedOver")] == [None] * 4
    assert node["queues"] == [{"queue": 3, "epoch": EPOCH, "since": None}]


async def test_a_node_that_has_not_written_for_15_seconds_is_stale_and_owns_nothing(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    publish(worker, LINE | {"node": "gone", "queues": {"3": EPOCH}}, age=16_000)
    publish(worker, LINE | {"node": "here", "queues": {"4": EPOCH}}, age=10_000)
    assert [(node["node"], node["stale"]) for node in await nodes(api)] == [("gone", True), ("here", False)]
    owners = [queue["owner"] for queue in (await api.get("/v1/queues")).json()["queues"]]
    assert owners[3:5] == [None, "here"]


async def test_a_line_that_makes_no_sense_is_left_out(api: httpx2.AsyncClient, worker: Worker) -> None:
    assert await nodes(api) == []
    for raw in (b"", b"\xff", b"[]", b'{"seen": 9223372036854775807}', b'{"seen": -1}'):
        worker.store.run(commands.publish_node(KEYS, "garbled", raw))
        publish(worker, LINE)
        assert [node["node"] for node in await nodes(api)] == ["worker-1"]
