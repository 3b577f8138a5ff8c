"""Keys, and what each of them may see and do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from delayq.config import Settings
from delayq.domain.api_keys import Scope
from delayq.store import commands
from delayq.store.keys import KEYS
from tests.api.conftest import HOUR, Serving, Tenants, Worker, assert_refused
from tests.support.keys import KeyFile
from tests.support.queues import EPOCH

ALL_OF: dict[str, list[Scope]] = {"orders.*": ["schedule", "cancel", "read", "admin"]}
OTHERS: dict[str, list[Scope]] = {"reviews.*": ["schedule", "cancel", "read", "admin"]}


NOTHING = {"messages": [], "looked": 0, "complete": True, "nextPageToken": None}


@pytest.fixture
async def tenants(settings: Settings, asgi: Serving, tmp_path: Path) -> AsyncIterator[Tenants]:
    """`shop` has every right on orders, `press` on reviews, and `boss` on all topics."""
    keys = KeyFile(tmp_path / "keys.yaml")
    keys.add("shop", ALL_OF)
    keys.add("press", OTHERS)
    keys.add("boss")
    async with asgi(keys.settings(settings)) as api:
        yield Tenants(api, keys)


async def test_the_id_that_was_given_beside_an_ordering_key_finds_the_message_for_whom_it_is(tenants: Tenants) -> None:
    whole = await tenants.schedule("shop", "orders.eu", id="order-42", orderingKey="shop-7")
    assert whole != "order-42"
    for name in ("shop", "boss"):
        found = await tenants.ask(name, "GET", "/v1/messages/order-42")
        assert (found.status_code, found.json()["id"]) == (200, whole)
        moved = await tenants.ask(name, "PATCH", "/v1/messages/order-42", {"delayTime": "2h"})
        assert (moved.status_code, moved.json()["id"]) == (200, whole)
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"delayTime": 1})):
        assert_refused(await tenants.ask("press", method, "/v1/messages/order-42", body), 404)
    answer = await tenants.ask("shop", "POST", "/v1/messages:cancel", {"ids": ["order-42", "nobody"]})
    assert [one["status"] for one in answer.json()["results"]] == [200, 404]
    again = await tenants.ask("boss", "DELETE", "/v1/messages/order-42")
    assert again.json() == {"id": "order-42", "result": "cancelled"}


async def test_a_wrong_key_is_refused_whatever_it_looks_like(tenants: Tenants, api: httpx2.AsyncClient) -> None:
    right = tenants.keys.texts["shop"]
    other = tenants.keys.texts["press"]
    mixed = right[:16] + other[16:]
    last = right[:-1] + ("A" if right[-1] != "A" else "B")
    for wrong in (
        "Bearer", "Bearer ", f"Bearer {mixed}", f"Bearer {last}", f"Bearer {right}x", "Bearer dq_000000000000_" + "A" * 43,
        "Bearer " + "\xff" * 50, f"Bearer {right} {right}",
    ):  # fmt: skip
        answer = await tenants.api.get("/v1/messages/x", headers=[(b"authorization", wrong.encode("latin-1"))])
        assert_refused(answer, 401)
        assert answer.headers["www-authenticate"].endswith('error="invalid_token"')
    for none in ("", f"Basic {right}", right):  # of another scheme: no key at all
        answer = await tenants.api.get("/v1/messages/x", headers={"authorization": none})
        assert "Send the header Authorization: Bearer" in assert_refused(answer, 401)["detail"]
        assert answer.headers["www-authenticate"] == 'Bearer realm="delayq"'
    twice = [("authorization", f"Bearer {right}"), ("authorization", f"Bearer {right}")]
    assert_refused(await tenants.api.get("/v1/messages/x", headers=twice), 401)
    assert (await tenants.api.get("/v1/messages/x", headers={"authorization": f"bearer {right}"})).status_code == 404
    # Without a file of keys everybody may do everything. The documentation is open to all.
    assert (await api.get("/v1/queues", headers={"authorization": "Bearer whatever"})).status_code == 200
    assert "swagger" in (await tenants.api.get("/docs")).text
    assert (await tenants.api.get("/openapi.json")).status_code == 200


#: What a key may try on an id, and the answer when there is no such message.
UNKNOWN = [
    ("GET", "/v1/messages/{id}", None), ("DELETE", "/v1/messages/{id}", None),
    ("PATCH", "/v1/messages/{id}", {"delayTime": 5}), ("DELETE", "/v1/dead-letters/{id}", None),
    ("POST", "/v1/messages:cancel", {"ids": ["{id}"]}), ("POST", "/v1/dead-letters:redrive", {"ids": ["{id}"]}),
    ("POST", "/v1/dead-letters:discard", {"ids": ["{id}"]}),
    ("POST", "/v1/messages/{id}:deliverNow", {"force": True}), ("POST", "/v1/messages:deliverNow", {"ids": ["{id}"]}),
]  # fmt: skip


async def test_of_others_messages_a_key_learns_and_changes_nothing(tenants: Tenants, worker: Worker) -> None:
    """H10: Messages of other topics are 404, like ids that nobody ever used.

    In every state the answers are, but for the id, those for an id that nobody ever used.
    """
    for queue, state in enumerate(("scheduled", "inFlight", "parked", "dead", "delivered", "cancelled")):
        delay = HOUR if state in ("scheduled", "cancelled") else 0
        id = await tenants.schedule("shop", "orders.unpaid", id=f"m.{queue:04x}", keys=["order-42"], delayTime=delay)
        if state == "cancelled":
            assert (await tenants.ask("shop", "DELETE", f"/v1/messages/{id}")).status_code == 200
        worker.bring_into(state, id)
        before = (await tenants.ask("boss", "GET", f"/v1/messages/{id}")).json()
        for method, path, body in UNKNOWN:
            answers = []
            for one in (id, "nobody"):
                given = {"ids": [one]} if body is not None and "ids" in body else body
                answer = await tenants.ask("press", method, path.format(id=one), given)
                answers.append((answer.status_code, answer.text.replace(f'"{one}"', '"…"')))
            assert answers[0] == answers[1], (state, method, path)
        assert (await tenants.ask("press", "GET", "/v1/messages?key=order-42")).json() == NOTHING
        assert (await tenants.ask("press", "GET", "/v1/messages?idPrefix=m")).json()["messages"] == []
        by_key = await tenants.ask("press", "POST", "/v1/messages:cancel", {"keys": ["order-42"]})
        assert by_key.json() == {"results": [{"status": 200, "key": "order-42", "messages": []}]}
        assert (await tenants.ask("press", "GET", "/v1/dead-letters")).json()["deadLetters"] == []
        assert (await tenants.ask("boss", "GET", f"/v1/messages/{id}")).json() == before


#: All that a key of some topics may read, but for its messages one by one.
READ = (
    "messages?limit=1", "messages?limit=2&state=due,inFlight", "messages?topic=orders.*&tags=none", "messages?key=common",
    "messages?idPrefix=m", "messages?property=a:b", "messages?state=dead,held,parked", "messages:count", "forecast",
    "messages:count?state=dead", "messages?limit=5", "dead-letters", "dead-letters?limit=1", "dead-letters?reason=no",
    "dead-letters:groups", "topics", "topics/orders.a", "policies", "audit", "me",
)  # fmt: skip


async def test_what_other_topics_have_changes_no_answer_to_a_key(tenants: Tenants, worker: Worker) -> None:
    async def everything() -> dict[str, str]:
        """The answers without their times, and of page tokens, which never repeat, how long they are."""
        paths = [*READ, *(f"messages/{id}?explain=true" for id in own)]
        found = {path: (await tenants.ask("shop", "GET", f"/v1/{path}")).text for path in paths}
        found = {
            path: re.sub(r'"\d{4}-\d\d-\d\dT[^"]*"|\d{4}-\d\d-\d\dT\S*Z', "T", text) for path, text in found.items()
        }
        return {
            path: re.sub(r'"nextPageToken":"([^"]*)"', lambda token: f"token of {len(token[1])}", text)
            for path, text in found.items()
        }

    states = ("scheduled", "due", "parked", "dead", "inFlight")  # each in a queue of its own
    own, others = list[str](), 0
    for n, state in enumerate(states):
        delay = HOUR if state == "scheduled" else 0
        own.append(await tenants.schedule("shop", "orders.a", id=f"m.{n:04x}", delayTime=delay, keys=["common"]))
        worker.bring_into(state, own[-1])
    live_for_long = worker.store.run(commands.redis_now()) + HOUR
    line = {"node": "node-1", "seen": live_for_long, "policies": ""}
    line["routes"] = [{"name": "streams", "match": "*", "target": "redis+stream:"}]
    line["queues"] = {str(queue): EPOCH for queue in range(16)}
    worker.store.run(commands.publish_node(KEYS, "node-1", json.dumps(line).encode()))
    before = await everything()
    assert "node-1 pulls it in its turn" in before[f"messages/{own[1]}?explain=true"]
    assert '"looked":5' in before["messages?key=common"]
    for n, state in enumerate(states):
        due = {"delayTime": HOUR} if state == "scheduled" else {"delayTime": None, "expectDate": "2020-01-31T08:00:00Z"}
        for topic, name in (("reviews.a", "press"), ("reviews.b", "press"), ("sms", "boss")):
            for begin in ("a", "m", "x" * 100):
                id = f"{begin}-{topic}.{n:04x}"
                fields = {"keys": ["common"], "properties": {"a": "b"}, **due}
                await tenants.schedule(name, topic, id=id, **fields)
                worker.bring_into(state, id)
                others += 1
    queue = KEYS.queue(1).queue
    for ticket in worker.store.run(commands.plain("ZRANGE", queue, 0, -1, read=list)):
        if not ticket.startswith(own[1].encode()):  # they all go before it
            worker.store.run(commands.plain("ZADD", queue, 1, ticket, read=int))
    assert (await tenants.ask("boss", "GET", "/v1/messages?limit=1000")).json()["looked"] == 5 + others
    told = (await tenants.ask("boss", "GET", f"/v1/messages/{own[1]}?explain=true")).json()["explain"]["text"]
    assert "node-1 pulls it in its turn, behind 9 others" in told
    assert await everything() == before


async def test_one_s_own_messages_are_seen_moved_and_cancelled(tenants: Tenants) -> None:
    for topic in ("reviews.new", "orders", "xorders.unpaid"):
        answer = await tenants.ask("shop", "POST", "/v1/messages", {"topic": topic, "delayTime": 1})
        assert assert_refused(answer, 403)["field"] == "topic"
    two = [{"topic": "orders.a", "delayTime": HOUR}, {"topic": "reviews.a", "delayTime": HOUR}]
    results = (await tenants.ask("shop", "POST", "/v1/messages:batch", {"messages": two})).json()["results"]
    assert [one["status"] for one in results] == [201, 403]
    id = await tenants.schedule("shop", "orders.unpaid", keys=["k"])
    assert (await tenants.ask("shop", "GET", f"/v1/messages/{id}")).json()["state"] == "scheduled"
    assert [one["id"] for one in (await tenants.ask("shop", "GET", "/v1/messages?key=k")).json()["messages"]] == [id]
    moved = await tenants.ask("shop", "PATCH", f"/v1/messages/{id}", {"delayTime": 2 * HOUR})
    assert moved.status_code == 200
    far = await tenants.ask("shop", "PATCH", f"/v1/messages/{id}", {"delayTime": 10**15})
    assert assert_refused(far)["field"] == "delayTime"
    results = (await tenants.ask("shop", "POST", "/v1/messages:cancel", {"keys": ["k"]})).json()["results"]
    assert [one["result"] for one in results[0]["messages"]] == ["cancelled"]


async def test_one_s_own_dead_letters_are_listed_put_back_and_deleted(tenants: Tenants, worker: Worker) -> None:
    ids = [await tenants.schedule("shop", "orders.a", id=f"own-{n}", delayTime=0) for n in range(3)]
    others = [await tenants.schedule("press", "reviews.a", id=f"other-{n}", delayTime=0) for n in range(4)]
    for id in (*ids, *others):
        worker.bury(id)
    path, seen = "/v1/dead-letters?limit=1", list[str]()
    clear = (await tenants.ask("boss", "GET", path)).json()["nextPageToken"]  # for one who sees all
    answer = await tenants.ask("shop", "GET", f"{path}&pageToken={clear}")
    assert assert_refused(answer)["field"] == "pageToken"
    token: str | None = ""
    while token is not None:
        page = (await tenants.ask("shop", "GET", path + (f"&pageToken={token}" if token else ""))).json()
        seen += [one["id"] for one in page["deadLetters"]]
        token = page["nextPageToken"]
    assert sorted(seen) == ids
    answer = await tenants.ask("shop", "POST", "/v1/dead-letters:redrive", {"ids": [ids[0], others[0]]})
    assert [one["result"] for one in answer.json()["results"]] == ["scheduled", "notDead"]
    assert (await tenants.ask("shop", "DELETE", f"/v1/dead-letters/{ids[1]}")).status_code == 200
    answer = await tenants.ask("shop", "POST", "/v1/dead-letters:discard", {"ids": [others[0], ids[2]]})
    assert [one["result"] for one in answer.json()["results"]] == ["notDead", "discarded"]
    everything = (await tenants.ask("boss", "GET", "/v1/dead-letters")).json()["deadLetters"]
    assert sorted(one["id"] for one in everything) == others


# -- whose an id is --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def apart(settings: Settings, asgi: Serving, tmp_path: Path) -> AsyncIterator[Tenants]:
    """Two who share a topic, and whose ids are kept apart; a third without ids of its own."""
    keys = KeyFile(tmp_path / "keys.json")
    keys.add("shop", {"orders.*": ["schedule", "cancel", "read"]}, ids="shop.")
    keys.add("press", {"reviews.*": ["schedule", "cancel", "read"]}, ids="press.")
    keys.add("other", {"orders.*": ["schedule", "cancel", "read"]})
    async with asgi(keys.settings(settings)) as api:
        yield Tenants(api, keys)


async def test_ids_of_a_key_begin_as_it_says_also_those_that_are_made_here(apart: Tenants) -> None:
    ids = [await apart.schedule("shop", "orders.a") for _ in range(3)]
    ids.append(await apart.schedule("shop", "orders.a", orderingKey="k"))
    ids.append(await apart.schedule("shop", "orders.a", id="shop.42"))
    many = {"messages": [{"topic": "orders.a", "delayTime": HOUR} for _ in range(250)]}
    results = (await apart.ask("shop", "POST", "/v1/messages:batch", many)).json()["results"]
    ids += [one["id"] for one in results]
    assert all(id.startswith("shop.") for id in ids)
    assert len(set(ids)) == 255
    assert len({one["queue"] for one in results}) <= 4  # a hundred at a time share a queue, so a script
    answer = await apart.ask("shop", "POST", "/v1/messages", {"topic": "orders.a", "delayTime": 1, "id": "42"})
    assert assert_refused(answer)["field"] == "id"


@pytest.mark.parametrize(
    "given", [{"id": "shop.43"}, {"properties": {"delayq-origin": "shop.43"}}], ids=["id", "origin"]
)
@pytest.mark.parametrize("name", ["press", "other"])
async def test_an_id_or_origin_with_the_prefix_of_another_key_is_forbidden_in_every_schedule_call(
    apart: Tenants, name: str, given: dict[str, Any]
) -> None:
    mine = {"topic": "reviews.a" if name == "press" else "orders.a", "delayTime": 1}
    alone = await apart.ask(name, "POST", "/v1/messages", mine | given)
    found = assert_refused(alone, 403)
    assert (found["type"], found["field"]) == ("urn:delayq:problem:forbidden", next(iter(given)))
    batch = await apart.ask(name, "POST", "/v1/messages:batch", {"messages": [mine | given, mine]})
    assert [one["status"] for one in batch.json()["results"]] == [403, 201]


async def test_what_became_of_an_id_is_told_to_the_one_whose_ids_begin_so(apart: Tenants, worker: Worker) -> None:
    """H10: How a message ended is shown to a key with rights on its topic, and to a key whose `ids` the id begins with."""
    cancelled = await apart.schedule("shop", "orders.a")
    delivered = await apart.schedule("shop", "orders.a", delayTime=0)
    worker.deliver(delivered)
    for _ in range(2):  # the same again gets the same
        assert (await apart.ask("shop", "DELETE", f"/v1/messages/{cancelled}")).json()["result"] == "cancelled"
        again = await apart.ask("shop", "DELETE", f"/v1/messages/{delivered}")
        assert assert_refused(again, 409)["state"] == "delivered"
    assert (await apart.ask("shop", "GET", f"/v1/messages/{cancelled}")).json()["state"] == "cancelled"
    for name, ids in (("press", (cancelled, delivered)), ("other", (delivered,))):
        for id in ids:
            assert_refused(await apart.ask(name, "GET", f"/v1/messages/{id}"), 404)
            assert_refused(await apart.ask(name, "DELETE", f"/v1/messages/{id}"), 404)
    assert (await apart.ask("other", "GET", f"/v1/messages/{cancelled}")).json()["endedBy"] == "shop"


async def test_a_key_with_rights_on_the_topic_of_a_cancelled_message_gets_the_same_answers_again(
    tenants: Tenants,
) -> None:
    id = await tenants.schedule("shop", "orders.unpaid", id="unpaid-42", keys=["order-42"])
    by_id = {"results": [{"status": 200, "id": id, "result": "cancelled"}]}
    by_key = {"results": [{"status": 200, "key": "order-42", "messages": by_id["results"]}]}
    for _ in range(2):
        assert (await tenants.ask("shop", "DELETE", f"/v1/messages/{id}")).json() == {"id": id, "result": "cancelled"}
        assert (await tenants.ask("shop", "POST", "/v1/messages:cancel", {"ids": [id]})).json() == by_id
        assert (await tenants.ask("shop", "POST", "/v1/messages:cancel", {"keys": ["order-42"]})).json() == by_key
    found = (await tenants.ask("shop", "GET", f"/v1/messages/{id}?explain=true")).json()
    assert (found["state"], found["endedBy"]) == ("cancelled", "shop")
    assert found["explain"]["text"].endswith(", by shop")
    page = (await tenants.ask("shop", "GET", "/v1/messages?key=order-42&state=cancelled")).json()
    assert [one["id"] for one in page["messages"]] == [id]
    conflict = await tenants.ask("shop", "POST", "/v1/messages", {"topic": "orders.unpaid", "id": id, "delayTime": 1})
    assert "was cancelled" in assert_refused(conflict, 409)["detail"]
    for method, path, body in UNKNOWN:
        answers = []
        for one in (id, "nobody"):
            given = {"ids": [one]} if body is not None and "ids" in body else body
            answer = await tenants.ask("press", method, path.format(id=one), given)
            answers.append((answer.status_code, answer.text.replace(f'"{one}"', '"…"')))
        assert answers[0] == answers[1], (method, path)
    assert (await tenants.ask("press", "GET", "/v1/messages?key=order-42&state=cancelled")).json() == NOTHING
    nothing = {"results": [{"status": 200, "key": "order-42", "messages": []}]}
    assert (await tenants.ask("press", "POST", "/v1/messages:cancel", {"keys": ["order-42"]})).json() == nothing
