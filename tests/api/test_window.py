"""The ways to spread a due over a window agree: what one of them has scheduled is the same call to all others."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from delayq import Client, Message
from delayq.config import Settings
from delayq.store.keys import spread

AT, WINDOW = 2_000_000_000_000, 600_000
IDS = [f"order-{number}" for number in range(50)]


async def test_http_python_and_spark_make_the_same_messages(
    api: httpx2.AsyncClient, settings: Settings, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    from delayq.spark.options import WriteOptions
    from delayq.spark.writing.handed import Handed
    from delayq.spark.writing.task import Job

    given = {"topic": "orders", "body": "x", "expectDate": AT, "window": "10m"}
    first = await api.post("/v1/messages", json=given | {"id": IDS[0]})
    batch = await api.post("/v1/messages:batch", json={"messages": [given | {"id": id} for id in IDS]})
    results = batch.json()["results"]
    assert (first.status_code, first.json()["window"], first.json()["dueMs"]) == (201, WINDOW, results[0]["dueMs"])
    assert [one["status"] for one in results] == [200] + [201] * 49
    assert [one["dueMs"] for one in results] == [AT + spread(id, WINDOW) for id in IDS]
    assert {one["window"] for one in results} == {WINDOW}
    with Client(settings=settings) as client:
        messages = [Message(topic="orders", body="x", expect_date=AT, window=WINDOW, id=id) for id in IDS]
        outcomes = [client.schedule(message) for message in messages]
        assert [(one.created, one.due) for one in outcomes] == [(False, one["dueMs"]) for one in results]
    plain = {"id": IDS, "body": ["x"] * 50, "expect_date": [AT] * 50}
    for rows in (plain, plain | {"max_attempts": pa.nulls(50, pa.int64())}, plain | {"window": ["PT10M"] * 50}):
        job = Job(WriteOptions.parse({"topic": "orders", "window": "10m"}), Handed.of(settings))
        counts = job.write([pa.RecordBatch.from_pydict(rows)]).counts
        assert (counts.present, counts.all_rejected) == (50, 0)


async def test_expire_after_counts_from_the_spread_due_which_readers_see(api: httpx2.AsyncClient) -> None:
    body = {"topic": "orders", "expectDate": AT, "window": WINDOW, "expireAfter": 1, "id": "order-42"}
    made = (await api.post("/v1/messages", json=body)).json()
    found = (await api.get("/v1/messages/order-42")).json()
    assert found["dueMs"] == made["dueMs"] == AT + spread("order-42", WINDOW)
    assert (found["message"]["expectDate"], found["message"]["expireAfter"]) == (made["dueTime"], 1)
