from __future__ import annotations

import json
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from delayq.store import commands
from delayq.store.keys import KEYS, Layout
from tests.api.conftest import Worker
from tests.support.queues import EPOCH, NEW_EPOCH, OLD_EPOCH


async def schedule(api: httpx2.AsyncClient, **message: Any) -> httpx2.Response:
    return await api.post("/v1/messages", json={"topic": "orders", "delayTime": 3_600_000} | message)


async def test_a_queue_tells_what_is_in_it_and_who_owns_it(api: httpx2.AsyncClient, worker: Worker) -> None:
    queue = Layout(16).queue_of("m")
    await schedule(api, id="m")
    due = (await schedule(api, id=f"n.{queue:04x}", delayTime=0)).json()
    worker.pull(due["id"])
    now = worker.store.run(commands.redis_now())
    for node, epoch, age in (("node-1", EPOCH, 0), ("node-2", OLD_EPOCH, 0), ("node-3", NEW_EPOCH, 16_000)):
        line = json.dumps({"node": node, "seen": now - age, "queues": {str(queue): epoch}})
        worker.store.run(commands.publish_node(KEYS, node, line.encode()))
    worker.store.run(commands.publish_node(KEYS, "node-4", b"not of this version"))
    queues = (await api.get("/v1/queues")).json()["queues"]
    assert [one["queue"] for one in queues] == list(range(16))
    one = queues[queue]
    assert (one["depth"], one["due"], one["dead"], one["parked"]) == (2, 1, 0, 0)
    assert (one["owner"], one["epoch"]) == ("node-1", EPOCH)
    assert one["headDueTime"] == due["dueTime"]
    assert one["headLateness"] >= 0
    other = queues[(queue + 1) % 16]
    assert (other["depth"], other["owner"], other["headDueTime"], other["headLateness"]) == (0, None, None, 0)


async def test_the_total_is_the_sum_of_the_queues(api: httpx2.AsyncClient, worker: Worker) -> None:
    for number in range(40):
        await schedule(api, id=f"m{number}", delayTime=0 if number < 10 else 3_600_000)
    worker.bury("m0")
    worker.park("m1")
    worker.deliver("m2")
    await api.delete("/v1/messages/m39")
    answer = (await api.get("/v1/queues")).json()
    stats = (await api.get("/v1/stats")).json()
    assert answer["total"].keys() == stats.keys()
    assert (len(answer["queues"]), stats["depth"], stats["due"]) == (16, 36, 7)
    assert (stats["dead"], stats["parked"], stats["remembered"]) == (1, 1, 2)
    counters = stats["counters"]
    assert (counters["scheduled"], counters["delivered"], counters["buried"], counters["cancelled"]) == (40, 1, 1, 1)


async def metrics(api: httpx2.AsyncClient) -> dict[str, float]:
    answer = await api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    return {f"{one.name}{dict(sorted(one.labels.items()))}": one.value for one in samples}


async def test_metrics_count_what_became_of_messages_and_requests(api: httpx2.AsyncClient) -> None:
    await schedule(api, id="a")
    await schedule(api, id="a")
    await schedule(api, id="a", body="other")
    await schedule(api, topic="no topic")
    batch = [{"topic": "orders", "delayTime": 1}, {"topic": "orders", "delayTime": 1, "id": "a", "body": 2}, {}]
    await api.post("/v1/messages:batch", json={"messages": batch})
    await api.delete("/v1/messages/a")
    await api.post("/v1/messages:cancel", json={"ids": ["a", "b"]})
    found = await metrics(api)
    scheduled = {
        result: found[f"delayq_api_scheduled_total{{'result': '{result}'}}"]
        for result in ("created", "repeated", "conflict", "invalid")
    }
    assert scheduled == {"created": 2, "repeated": 1, "conflict": 2, "invalid": 2}
    assert found["delayq_api_cancelled_total{'result': 'cancelled'}"] == 2
    assert found["delayq_api_cancelled_total{'result': 'notFound'}"] == 1
    assert found["delayq_api_requests_total{'method': 'POST', 'route': '/v1/messages', 'status': '201'}"] == 1
    assert found["delayq_api_requests_total{'method': 'DELETE', 'route': '/v1/messages/{id}', 'status': '200'}"] == 1
    assert found["delayq_api_request_seconds_count{'route': '/v1/messages'}"] == 4
    assert found["delayq_api_flush_messages_count{}"] == 3  # what is invalid never goes
    assert found["delayq_api_waiting{}"] == 0
