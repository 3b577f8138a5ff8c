"""Delivering now over HTTP: the answer in each state, who may do so, and ids that end like the verb."""

from __future__ import annotations

from pathlib import Path

import httpx2

from delayq.config import Settings
from delayq.store import commands
from delayq.store.keys import KEYS, Layout
from tests.api.conftest import ENDS, HOUR, Serving, Worker, assert_refused, bring_into, schedule
from tests.support.keys import KeyFile


async def test_each_state_has_its_answer_and_the_same_again(api: httpx2.AsyncClient, worker: Worker) -> None:
    for queue, state in enumerate(("scheduled", "due", "parked", "inFlight", "dead", *ENDS)):
        status = 200 if state in ("scheduled", "due", "parked") else 409
        id = await bring_into(state, api, worker, queue)
        for _ in range(2):
            answer = await api.post(f"/v1/messages/{id}:deliverNow", json={})
            assert (answer.status_code, answer.json()["state"]) == (status, "scheduled" if status == 200 else state)
            many = (await api.post("/v1/messages:deliverNow", json={"ids": [id, "nobody"]})).json()["results"]
            assert [one["status"] for one in many] == [status, 404]
        if status == 200:
            assert (await api.get(f"/v1/messages/{id}")).json()["state"] == "due"


async def test_what_a_pause_holds_goes_by_force(api: httpx2.AsyncClient, worker: Worker) -> None:
    id = await schedule(api, keys=["k"])
    keys = KEYS.queue(Layout(16).queue_of(id))
    worker.store.run(commands.apply_policies(keys, "0000000001.0000000001", ["ord*"]))
    problem = assert_refused(await api.post(f"/v1/messages/{id}:deliverNow", json={"force": False}), 409)
    assert problem["state"] == "held"
    (result,) = (await api.post("/v1/messages:deliverNow", json={"keys": ["k"]})).json()["results"]
    assert result["messages"] == [{"status": 409, "id": id, "result": "held"}]
    assert (await api.post(f"/v1/messages/{id}:deliverNow", json={"force": True})).json()["state"] == "scheduled"


async def test_an_id_that_ends_like_the_verb_is_an_id(api: httpx2.AsyncClient) -> None:
    id = await schedule(api, id="a:deliverNow")
    assert (await api.get(f"/v1/messages/{id}")).json()["id"] == id
    assert (await api.post(f"/v1/messages/{id}", json={})).status_code == 404  # of the message `a`
    assert (await api.post(f"/v1/messages/{id}:deliverNow", json={})).json()["id"] == id
    assert (await api.delete(f"/v1/messages/{id}")).status_code == 202


async def test_force_takes_admin_and_the_rest_what_a_cancel_takes(
    settings: Settings, asgi: Serving, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.yaml")
    who = keys.add("shop", {"orders*": ["schedule", "read", "cancel"]})
    async with asgi(keys.settings(settings)) as api:
        made = await api.post("/v1/messages", json={"topic": "orders", "delayTime": HOUR}, headers=who)
        path = f"/v1/messages/{made.json()['id']}:deliverNow"
        assert_refused(await api.post(path, json={"force": True}, headers=who), 403)
        many = await api.post("/v1/messages:deliverNow", json={"ids": [made.json()["id"]], "force": True}, headers=who)
        assert many.json()["results"][0]["status"] == 403
        assert (await api.post(path, json={}, headers=who)).status_code == 200
