"""The routes, their circuits, and why a message is parked."""

from __future__ import annotations

from typing import Any

import httpx2

from delayq.base.times import format_instant
from tests.api.conftest import Worker, schedule
from tests.api.test_nodes import LINE, publish
from tests.docs.blocks import ROOT, blocks_of, matches
from tests.support.queues import EPOCH, NEW_EPOCH

SINCE = 1_801_382_400_000
OPEN = {"since": SINCE, "probe": SINCE + 30_000, "reason": "hooks.example answered 500"}
HOOKS: dict[str, Any] = {"name": "hooks", "match": "hooks.*", "target": "https://hooks.example"}
STREAMS: dict[str, Any] = {"name": "streams", "match": "*", "target": "redis+stream:"}
ALL = range(16)


def owns(epoch: str) -> dict[str, Any]:
    return {str(queue): {"epoch": epoch} for queue in ALL}


async def routes(api: httpx2.AsyncClient) -> list[dict[str, Any]]:
    answer = await api.get("/v1/routes")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["routes"]
    return found


async def parked(api: httpx2.AsyncClient, worker: Worker, id: str, topic: str, name: str = "t:hooks") -> str:
    """A message that is set aside under this name; its id."""
    id = await schedule(api, id=id, topic=topic, delayTime=0)
    worker.park(id, name)
    return id


async def test_routes_are_shown_as_the_documentation_says(api: httpx2.AsyncClient, worker: Worker) -> None:
    page = ROOT / "docs" / "http.md"
    (block,) = (block for block in blocks_of(page) if block.note == "run by tests/api/test_routes.py")
    publish(worker, LINE | {"since": SINCE, "routes": [HOOKS | {"circuit": OPEN, "delivered": 7}]})
    await parked(api, worker, "a", "hooks.new")
    assert matches(block.text, (await api.get("/v1/routes")).text)


async def test_each_worker_has_a_circuit_of_its_own(api: httpx2.AsyncClient, worker: Worker) -> None:
    later = {"since": SINCE + 5, "probe": SINCE + 6, "reason": "later"}
    publish(worker, LINE | {"node": "a", "routes": [STREAMS, HOOKS | {"circuit": later}]})
    publish(worker, LINE | {"node": "b", "routes": [STREAMS, HOOKS | {"circuit": OPEN}]})
    publish(worker, LINE | {"node": "c", "routes": [STREAMS, HOOKS]})
    publish(worker, LINE | {"node": "gone", "routes": [HOOKS | {"name": "old"}]}, age=16_000)
    streams, hooks = await routes(api)
    assert (streams["name"], streams["circuit"], streams["openAt"], streams["reason"]) == (
        "streams",
        "closed",
        [],
        None,
    )
    assert (hooks["circuit"], hooks["openAt"], hooks["reason"]) == ("open", ["a", "b"], OPEN["reason"])
    assert hooks["since"] == "2027-01-31T08:00:00.000Z"
    assert hooks["nextProbeTime"] == "2027-01-31T08:00:00.006Z"


async def test_a_route_has_the_deliveries_of_each_live_node_and_their_sum_unless_one_is_unknown(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    await schedule(api, topic="hooks.new")  # from now on Redis has queues, without which there is no overview
    publish(worker, LINE | {"node": "a", "since": SINCE, "routes": [HOOKS | {"delivered": 5}]})
    seen = publish(worker, LINE | {"node": "b", "routes": [HOOKS | {"delivered": 0}, STREAMS | {"delivered": 0}]})
    publish(worker, LINE | {"node": "gone", "routes": [HOOKS | {"delivered": 100}]}, age=16_000)
    hooks, streams = await routes(api)
    assert (hooks["delivered"], streams["delivered"]) == (5, 0)
    first, second = hooks["deliveredBy"]
    assert (first["node"], first["since"], first["delivered"]) == ("a", "2027-01-31T08:00:00.000Z", 5)
    assert second == {"node": "b", "since": None, "seen": format_instant(seen), "delivered": 0}
    assert (await api.get("/v1/overview")).json()["routes"] == [hooks, streams]
    publish(worker, LINE | {"node": "older", "routes": [HOOKS]})
    hooks, streams = await routes(api)
    assert (hooks["delivered"], [one["delivered"] for one in hooks["deliveredBy"]]) == (None, [5, 0, None])
    assert streams["delivered"] == 0


async def test_without_workers_there_are_the_routes_for_which_something_is_parked(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    assert await routes(api) == []
    for number in range(5):
        await parked(api, worker, f"m{number}", "hooks.new")
    await parked(api, worker, "nowhere", "x", "t:*")
    (one,) = await routes(api)
    assert (one["name"], one["parked"], one["target"], one["circuit"]) == ("hooks", 5, None, None)
    assert (one["delivered"], one["deliveredBy"]) == (None, [])


async def test_a_parked_message_tells_what_it_waits_for_and_when_its_target_is_tried_next(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    """E11: `delayq routes` and `GET /v1/routes` have the reason and the next probe, and so has `delayq get` of a
    parked message."""
    id = await parked(api, worker, "a", "hooks.new", "t:hooks")
    waits = await parked(api, worker, "b", "other", "t:streams")

    async def told(id: str) -> tuple[str | None, str | None]:
        found = (await api.get(f"/v1/messages/{id}")).json()
        return found["reason"], found["nextProbeTime"]

    assert await told(id) == ("no live worker reports that it owns its queue", None)
    publish(worker, LINE | {"node": "fenced", "queues": owns(EPOCH), "routes": [HOOKS]})
    publish(worker, LINE | {"node": "owner", "queues": owns(NEW_EPOCH), "routes": [HOOKS | {"circuit": OPEN}, STREAMS]})
    reason = "the circuit of route hooks is open: hooks.example answered 500"
    assert await told(id) == (reason, "2027-01-31T08:00:30.000Z")
    assert await told(waits) == (
        "its target accepts no more messages now, or earlier messages of its ordering key",
        None,
    )
    publish(worker, LINE | {"node": "owner", "queues": owns(NEW_EPOCH), "routes": [HOOKS]})
    assert await told(waits) == ("no route of owner matches its topic", None)
    publish(worker, LINE | {"node": "owner", "queues": owns(NEW_EPOCH)})  # an older worker
    assert await told(id) == (None, None)
