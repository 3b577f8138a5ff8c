"""Pausing and resuming topics, and policies, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.wire.requests import PolicyIn
from delayq import Policy
from delayq.answers.topics import PolicyOut
from delayq.config import Settings
from delayq.store import commands
from delayq.store.commands import MOST_OF_A_KEY, REST, Census, Change, Tally
from delayq.store.keys import KEYS, Layout
from tests.api.conftest import Serving, Tenants, Worker, assert_refused, schedule
from tests.docs.blocks import ROOT, blocks_of, matches
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH
from tests.support.servers import ServerUnderTest


async def put(api: httpx2.AsyncClient, name: str = "sms", **fields: Any) -> httpx2.Response:
    headers = fields.pop("headers", {})
    return await api.put(f"/v1/policies/{name}", json={"match": "sms.*", "rate": 50} | fields, headers=headers)


def test_what_the_api_takes_and_gives_of_a_policy_has_every_field_of_a_policy() -> None:
    fields = {*Policy.__struct_fields__} - {"stored"}
    assert {*PolicyOut.__struct_fields__} == fields
    assert {*PolicyIn.__struct_fields__} == fields - {"name", "since"}


async def test_a_topic_is_paused_again_and_resumed_and_tells_how_it_is(api: httpx2.AsyncClient, worker: Worker) -> None:
    wanted = {"match": "orders*", "reason": "payment API down", "until": "2035-12-01T12:00:00Z"}
    answer = await api.post("/v1/topics:pause", json=wanted)
    paused = answer.json()
    assert (answer.status_code, paused["state"], paused["version"], paused["inFlight"]) == (200, "paused", 1, 0)
    again = (await api.post("/v1/topics:pause?wait=0", json=wanted)).json()
    assert (again["changed"], again["since"]) == (False, paused["since"])
    topic = (await api.get("/v1/topics/orders")).json()
    assert topic.pop("asOf") >= paused["since"]
    assert topic == {
        "topic": "orders",
        "route": "streams",
        "held": 0,
        "counts": {},
        "pause": wanted | {"since": paused["since"], "until": "2035-12-01T12:00:00.000Z"},
    }
    # What is left out stays, and null takes it away.
    there = topic["pause"]
    for given in ({}, {"reason": "still down"}, {"reason": None, "until": None}):
        changed = (await api.post("/v1/topics:pause?wait=0", json={"match": "orders*"} | given)).json()["changed"]
        assert changed is bool(given)
        there = {name: value for name, value in (there | given).items() if value is not None}
        assert (await api.get("/v1/policies")).json()["pauses"] == [there]
    resumed = (await api.post("/v1/topics:resume", json={"match": "orders*"})).json()
    assert resumed == {"match": "orders*", "version": 4, "changed": True, "held": 0}
    assert (await api.post("/v1/topics:resume", json={"match": "orders*"})).json()["changed"] is False


async def test_a_limit_after_a_pause_is_reported_as_such_until_a_resume_takes_it_away(api: httpx2.AsyncClient) -> None:
    resumed = (await api.post("/v1/topics:resume", json={"match": "orders.*", "rate": 5})).json()  # without a pause
    assert (resumed["changed"], resumed["version"]) == (False, 0)
    await put(api, match="orders.sms")
    await api.post("/v1/topics:pause?wait=0", json={"match": "orders.*"})
    await api.post("/v1/topics:resume", json={"match": "orders.*", "rate": 500})
    (limit,) = (await api.get("/v1/policies")).json()["limits"]
    assert (limit["match"], limit["rate"], set(limit)) == ("orders.*", 500, {"match", "rate", "since"})
    told = [(await api.get(f"/v1/topics/{one}")).json()["limit"] for one in ("orders.eu", "orders.sms")]
    common = {"held": 0, "waitMs": 0, "grantedLastSecond": 0}
    assert told == [
        {"rate": 500, "match": "orders.*", "temporary": True} | common, {"rate": 50, "match": "orders.sms"} | common
    ]  # fmt: skip
    assert (await api.post("/v1/topics:resume", json={"match": "orders.*"})).json()["changed"] is True
    assert (await api.get("/v1/policies")).json()["limits"] == []


async def test_topics_are_listed_page_by_page_by_a_pattern_and_whether_they_are_paused(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    for name in ("a.1", "a.2", "b.1"):
        worker.park(await schedule(api, topic=name, id=name, delayTime=0), f"h:{name}")
    first = (await api.get("/v1/topics?limit=2")).json()
    last = (await api.get(f"/v1/topics?limit=2&pageToken={first['nextPageToken']}")).json()
    assert [one["topic"] for one in (*first["topics"], *last["topics"])] == ["a.1", "a.2", "b.1"]
    assert (first["topics"][0]["held"], last["nextPageToken"], first["total"], last["total"]) == (1, None, 3, 3)
    assert (first["topics"][0]["counts"], "asOf" in first["topics"][0]) == ({"held": 1}, True)
    await api.post("/v1/topics:pause?wait=0", json={"match": "a.*"})
    for query, names in {
        "match=a.*": ["a.1", "a.2"], "match=?.1": ["a.1", "b.1"], "paused=yes": ["a.1", "a.2"], "paused=no": ["b.1"],
        "match=*.1&paused=yes": ["a.1"], "match=c": [],
    }.items():  # fmt: skip
        found = (await api.get(f"/v1/topics?{query}")).json()
        assert ([one["topic"] for one in found["topics"]], found["total"]) == (names, len(names)), query


async def test_a_topic_has_the_figures_of_the_census_with_their_age(
    api: httpx2.AsyncClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.client.looking.counting.LIVE", -1)  # as if there were more messages
    wanted = {"match": "orders.*", "reason": "payment API down", "until": "2035-12-01T12:00:00Z"}
    await api.post("/v1/topics:pause", json=wanted)
    id = await schedule(api, topic="orders.unpaid")
    keys = KEYS.queue(Layout(16).queue_of(id))
    worker.store.run(commands.claim(keys, EPOCH))
    page = ROOT / "docs" / "topics.md"
    (shown,) = [block.text for block in blocks_of(page) if block.note == "run by tests/api/test_topics.py"]
    for topics, known in (
        ({"orders.unpaid": {"scheduled": Tally(3)}, "sms": {"dead": Tally(1)}}, True),
        ({"sms": {}, REST: {"due": Tally(1)}}, False),
    ):
        worker.store.run(commands.keep_census(keys, EPOCH, Census(1_801_382_400_000, topics)))
        told = await api.get("/v1/topics/orders.unpaid")
        assert matches(shown, told.text) is known
        assert ("counts" in told.json()) is known
        assert [one["topic"] for one in (await api.get("/v1/topics")).json()["topics"]][-1] == "sms"


async def test_what_may_arrive_is_told_by_nodes_and_an_old_one_is_in_the_way(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    seen = worker.store.run(commands.redis_now())
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps({"seen": seen, "policies": ""}).encode()))
    paused = (await api.post("/v1/topics:pause?wait=1ms", json={"match": "orders"})).json()
    assert (paused["state"], paused["inFlight"]) == ("pausing", None)
    arriving = (await api.get("/v1/topics/orders")).json()["arriving"]
    assert arriving == [{"node": "node-1", "inFlight": None}]
    worker.store.run(commands.publish_node(KEYS, "node-2", json.dumps({"seen": seen}).encode()))
    for refused in (await api.post("/v1/topics:pause", json={"match": "sms"}), await put(api)):
        problem = assert_refused(refused, 409)
        assert problem["type"].endswith(":not-ready")
        assert problem["detail"].startswith("node-2 cannot ")
    assert (await api.get("/v1/policies")).json()["version"] == 1
    assert (await put(api, rate=None, window="10m")).status_code == 200  # the API itself acts on this one


async def test_policies_are_put_listed_in_order_deleted_and_changed_under_the_version_that_was_seen(
    api: httpx2.AsyncClient,
) -> None:
    assert (await put(api)).json() == {"name": "sms", "version": 1, "changed": True}
    durations = {"window": "10m", "expireAfter": 3_600_000, "backoff": ["10s", 60_000]}
    assert (await put(api, "first", match="*", order=1, **durations)).status_code == 200
    listed = (await api.get("/v1/policies")).json()
    assert ([one["name"] for one in listed["policies"]], listed["version"]) == (["first", "sms"], 2)
    first = (await api.get("/v1/policies/first")).json()
    assert (first["window"], first["expireAfter"], first["backoff"]) == (600_000, 3_600_000, [10_000, 60_000])
    assert (await api.get("/v1/topics/sms.de")).json()["policy"]["name"] == "first"
    assert (await api.delete("/v1/policies/first")).json() == {"name": "first", "version": 3, "changed": True}
    assert_refused(await api.get("/v1/policies/first"), 404)
    rate = 50  # if-match names the version of the policies
    for version, status in (("0", 412), ("7", 412), ("x", 400), ('"3', 400), ('3"', 400), ("3", 200), ('"4"', 200)):
        answer = await put(api, rate=rate + 1, headers={"if-match": version})
        assert answer.status_code == status, answer.text
        rate += status == 200
        assert (await api.get("/v1/policies/sms")).json()["rate"] == rate


async def test_an_expiry_of_0_is_refused_of_a_policy_as_of_a_message_and_a_stored_one_expires_nothing(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    for field in ("expireAfter", "window", "maxAttempts"):
        zero: dict[str, Any] = {field: 0}
        for answer in (
            await put(api, rate=None, **zero),
            await api.post("/v1/messages", json={"topic": "sms.de", "delayTime": 0} | zero),
        ):
            assert assert_refused(answer, 400)["detail"].startswith(f"{field}: must be between 1 and ")
    assert (await put(api, rate=None, expireAfter=1, window="1s")).status_code == 200
    stored = valkey.admin.hget(KEYS.policies, "policy:sms").decode()  # as an older version stored it
    valkey.admin.hset(KEYS.policies, "policy:sms", stored.replace('"expireAfter":1', '"expireAfter":0'))
    found = (await api.get("/v1/policies/sms")).json()
    assert (found["window"], "expireAfter" in found) == (1_000, False)
    assert "expireAfter" not in (await api.get(f"/v1/messages/{await schedule(api, topic='sms.de')}")).json()
    assert (await put(api, rate=None, window="2s")).json()["changed"]


async def test_what_a_policy_says_is_not_shown_of_bodies_is_shown_nowhere(
    api: httpx2.AsyncClient, worker: Worker
) -> None:
    secret = {"topic": "cards.eu", "body": {"card": "4111", "n": 1}, "keys": ["k"], "delayTime": 0}
    await schedule(api, id="m", **secret)
    await schedule(api, id="open", topic="orders", body={"card": "4111"}, keys=["k"])
    worker.bury(await schedule(api, id="dead", **secret))
    await put(api, "p", match="cards.*", rate=None, redact=["$.card"])
    for path in (
        "/v1/messages/m",
        "/v1/messages?key=k&topic=cards.*",
        "/v1/messages?topic=cards.*",
        "/v1/dead-letters",
    ):
        text = (await api.get(path)).text
        assert "[redacted]" in text
        assert "4111" not in text
    assert "4111" in (await api.get("/v1/messages/open")).text


# -- keys ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def tenants(settings: Settings, asgi: Serving, tmp_path: Path) -> AsyncIterator[Tenants]:
    keys = KeyFile(tmp_path / "keys.yaml")
    keys.add("boss")
    keys.add("shop", {"orders.*": ["read", "admin"]})
    keys.add("clerk", {"orders.eu.*": ["schedule", "cancel", "read"], "*": ["schedule"]})
    async with asgi(keys.settings(settings)) as api:
        yield Tenants(api, keys)


async def test_what_may_arrive_yet_of_a_paused_pattern_is_read_without_a_pause(
    tenants: Tenants, worker: Worker
) -> None:
    async def arriving(name: str, match: str) -> Any:
        return (await tenants.ask(name, "GET", f"/v1/topics?match={match}")).json().get("arriving")

    assert await arriving("shop", "orders.*") is None
    version = (await tenants.ask("shop", "POST", "/v1/topics:pause?wait=0", {"match": "orders.*"})).json()["version"]
    line = {
        "node": "a",
        "seen": worker.store.run(commands.redis_now()),
        "held": {"orders.a": 2, "orders.b": 1, "sms": 9},
    }
    for acts_on, told in ((None, None), (f"{version:010}.9999999999", 3)):
        worker.store.run(commands.publish_node(KEYS, "a", json.dumps(line | {"policies": acts_on}).encode()))
        assert await arriving("shop", "orders.*") == [{"node": "a", "inFlight": told}]
        assert await arriving("boss", "orders.*") == [{"node": "a", "inFlight": told}]
    for name, match in (("shop", "*"), ("shop", "orders.a"), ("clerk", "orders.*"), ("boss", "sms")):
        assert await arriving(name, match) is None


@pytest.mark.parametrize("what", ["pause", "policy"])
async def test_a_key_gets_so_many_pauses_and_policies_however_many_come_at_once(
    tenants: Tenants, worker: Worker, what: str
) -> None:
    def make(name: str, topic: str, number: int = 0) -> Awaitable[httpx2.Response]:
        if what == "pause":
            return tenants.ask(name, "POST", "/v1/topics:pause?wait=0", {"match": topic})
        return tenants.ask(name, "PUT", f"/v1/policies/p{number}", {"match": topic, "rate": 5})

    there = [Change(f"pause:orders.{n}", "{}") for n in range(MOST_OF_A_KEY - 1)]
    there += [Change(f"policy:o{n}", f'{{"match":"orders.{n}","rate":1.0}}') for n in range(MOST_OF_A_KEY - 1)]
    worker.store.run(commands.set_policies(KEYS, there, maker="0000000001"))
    made = await asyncio.gather(*(make("shop", f"orders.new.{n}", n) for n in range(5)))
    refused = [one for one in made if one.status_code != 200]
    assert len(refused) == 4
    for one in refused:
        problem = assert_refused(one, 409)
        assert problem["type"] == "urn:delayq:problem:too-many"
        assert (
            f"there are {MOST_OF_A_KEY} {'pauses' if what == 'pause' else 'policies'} on the topics"
            in problem["detail"]
        )
        assert ("resume a pause" if what == "pause" else "delete a policy") in problem["detail"]
    (again,) = [n for n, one in enumerate(made) if one.status_code == 200]
    assert (await make("shop", f"orders.new.{again}", again)).json()["changed"] is False
    assert (
        await make("boss", "orders.of-the-boss", 9)
    ).status_code == 200  # whoever may do everything has the bound of all


async def test_who_may_change_what(tenants: Tenants) -> None:
    async def status(name: str, method: str, path: str, **body: Any) -> int:
        return (await tenants.ask(name, method, f"/v1/{path}", body or None)).status_code

    assert await status("shop", "POST", "topics:pause", match="orders.eu.*") == 200
    for name, match in (("shop", "*"), ("shop", "order?.*"), ("clerk", "orders.eu.*")):
        assert await status(name, "POST", "topics:pause", match=match) == 403
        assert await status(name, "POST", "topics:resume", match=match) == 403
        assert await status(name, "PUT", "policies/p", match=match, rate=3) == 403
    assert await status("boss", "PUT", "policies/all", match="*", rate=3) == 200
    assert await status("shop", "PUT", "policies/mine", match="orders.*", rate=3) == 200
    # What another may not see it does not put its own in the place of.
    assert await status("shop", "PUT", "policies/all", match="orders.*", rate=3) == 403
    assert await status("shop", "DELETE", "policies/all") == 403
    assert await status("shop", "GET", "policies/all") == 404
    assert await status("boss", "PUT", "policies/other", match="secret.*", rate=3) == 200
    for method, body in (("PUT", {"match": "orders.*", "rate": 3}), ("DELETE", None)):
        assert "secret" not in (await tenants.ask("shop", method, "/v1/policies/other", body)).text
    assert await status("shop", "DELETE", "policies/none") == 200
    listed = (await tenants.ask("shop", "GET", "/v1/policies")).json()
    assert [one["name"] for one in listed["policies"]] == ["mine"]
    assert await status("clerk", "GET", "topics/orders.eu.de") == 200
    assert await status("clerk", "GET", "topics/orders.us") == 403
    seen = (await tenants.ask("clerk", "GET", "/v1/topics/orders.eu.de")).json()
    assert (seen["pause"]["match"], seen["policy"]["name"]) == ("orders.eu.*", "all")
    for match in ("orders.eu.de", "sms"):
        await tenants.ask("boss", "POST", "/v1/topics:pause", {"match": match})
    listed = (await tenants.ask("clerk", "GET", "/v1/topics?limit=1")).json()
    assert ([one["topic"] for one in listed["topics"]], listed["nextPageToken"]) == (["orders.eu.de"], None)
