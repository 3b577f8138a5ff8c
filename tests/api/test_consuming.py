"""Receiving over HTTP: leases, acknowledgements, hand-backs, and callers that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from api import receivers
from delayq import Client
from delayq.base.clock import SystemClock
from delayq.client.consuming import receiving, settling
from delayq.config import Settings
from delayq.domain.api_keys import SCOPES, hash_of, make_key
from delayq.store import commands
from delayq.store.commands import Command
from delayq.store.connect.async_store import AsyncStore
from tests.api.conftest import Serving, assert_refused, until_status
from tests.support.keys import KeyFile
from tests.support.nodes import RunningNode
from tests.support.servers import ServerUnderTest
from tests.support.timeouts import DRAIN_TIMEOUT, PATIENCE

TOPIC = "orders.paid"


def append(server: ServerUnderTest, id: str, topic: str = TOPIC, **fields: Any) -> None:
    """An entry as a worker appends it."""
    entry = {"id": id, "topic": topic, "tags": "", "keys": "", "body": id, "due": "1801384200000", "attempt": "1"}
    server.admin.xadd(topic, entry | fields)


async def call(api: httpx2.AsyncClient, verb: str, topic: str = TOPIC, **fields: Any) -> httpx2.Response:
    return await api.post(f"/v1/topics/{topic}:{verb}", json={"group": "mail"} | fields)


async def receive(api: httpx2.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    answer = await call(api, "receive", **fields)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["messages"])


async def until_redis_waits(server: ServerUnderTest) -> None:
    """Return when one connection waits for the streams of all callers."""
    for _ in range(100_000):
        await asyncio.sleep(0.01)
        # In a thread: a busy machine takes so long that the API's connections would not be made in time.
        if (await asyncio.to_thread(server.admin.info, "clients"))["blocked_clients"] == 1:
            return
    raise AssertionError("no connection waits")


def leased(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [{"id": one["id"], "lease": one["lease"]} | fields for one in messages]


async def test_a_message_is_received_acknowledged_and_gone(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    append(valkey, "unpaid-42", keys="order-42 shop-7", tags="new", orderingKey="order-42", **{"p:color": "red"})
    (got,) = await receive(api)
    lease = got.pop("lease")
    assert got == {
        "id": "unpaid-42",
        "topic": TOPIC,
        "dueTime": "2027-01-31T08:30:00.000Z",
        "dueMs": 1801384200000,
        "attempt": 1,
        "deliveries": 1,
        "handBacks": 0,
        "body": "unpaid-42",
        "tags": "new",
        "keys": ["order-42", "shop-7"],
        "orderingKey": "order-42",
        "properties": {"color": "red"},
    }
    assert await receive(api) == []
    for _ in range(2):
        answer = await call(api, "ack", messages=[{"id": "unpaid-42", "lease": lease}])
        assert answer.json() == {"results": [{"id": "unpaid-42", "status": 200, "result": "acknowledged"}]}
    late = await call(api, "extend", messages=[{"id": "unpaid-42", "lease": lease}])
    assert late.json() == {"results": [{"id": "unpaid-42", "status": 409, "result": "lost"}]}


async def test_a_worker_trims_what_was_acknowledged_by_the_retention_of_the_topic(
    api: httpx2.AsyncClient, settings: Settings, valkey: ServerUnderTest
) -> None:
    for n in range(5):
        scheduled = await api.post("/v1/messages", json={"topic": TOPIC, "id": f"m{n}", "delayTime": 0})
        assert scheduled.status_code < 300, scheduled.text
    with RunningNode(settings.replace(drain_timeout=DRAIN_TIMEOUT)):
        got: list[dict[str, Any]] = []
        while len(got) < 5:
            got += await receive(api, wait="30s")
        await call(api, "ack", messages=leased(*got[:3]))
        # A worker looks at all streams when the policies change. It looks again after a minute, which is too long here.
        policy = {"match": "orders.*", "retentionLength": 1, "retentionAge": "1h"}
        put = await api.put("/v1/policies/short", json=policy)
        assert put.status_code == 200, put.text
        # A thread that waits would outlive the timeout of the test.
        while valkey.admin.xlen(TOPIC) != 2:  # noqa: ASYNC110  # Redis sets no event
            await asyncio.sleep(0.01)
    policy = (await api.get("/v1/policies/short")).json()
    assert (policy["retentionLength"], policy["retentionAge"]) == (1, 3_600_000)


async def test_a_repeated_call_gets_the_same_messages_and_leases_no_others(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        append(valkey, id)
    first = await receive(api, max=2, call="c-1")
    assert await receive(api, max=2, call="c-1") == first
    assert [one["id"] for one in await receive(api, call="c-2")] == ["c"]
    append(valkey, "d")
    await call(api, "ack", messages=leased(first[0]))
    assert await receive(api, max=2, call="c-1") == [first[1] | {"deliveries": 1}], (
        "it holds one, so it leases no others"
    )
    await call(api, "ack", messages=leased(first[1]))
    assert not list(valkey.admin.scan_iter("*c-1*")), "Redis has forgotten the call"
    assert [one["id"] for one in await receive(api, max=2, call="c-1")] == ["d"]


async def test_a_large_answer_stops_and_the_rest_comes_with_the_next_calls(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    for n in range(12):
        append(valkey, f"m{n}", body="x" * 600_000)
    got = list[str]()
    for n in range(4):
        answer = await call(api, "receive", max=1_000, wait="30s", call=f"c-{n}")
        assert len(answer.content) < 2_100_000
        got += [one["id"] for one in answer.json()["messages"]]
    assert sorted(got) == sorted(f"m{n}" for n in range(12))


async def test_an_entry_that_delayq_did_not_write_is_a_finding_and_the_others_are_received(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    valkey.admin.xadd(TOPIC, {"id": "odd", "due": "tomorrow", "body": "x"})
    append(valkey, "b")
    assert [one["id"] for one in await receive(api)] == ["a", "b"]
    found = [one for one in (await api.get("/v1/status")).json()["findings"] if one["code"] == "foreignEntries"]
    assert [(one["topic"], "it has no topic" in one["text"]) for one in found] == [(TOPIC, True)]


async def test_one_call_acknowledges_and_receives(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    for id in "ab":
        append(valkey, id)
    (first,) = await receive(api, max=1)
    answer = (await call(api, "receive", ack=[first["lease"]])).json()
    assert ([one["id"] for one in answer["messages"]], "lost" in answer) == (["b"], False)
    released = answer["messages"][0]["lease"]
    await call(api, "extend", messages=leased(answer["messages"][0]), lease=0)
    answer = (await call(api, "receive", ack=[released, first["lease"]])).json()
    assert ([one["id"] for one in answer["messages"]], answer["lost"]) == (["b"], [released])
    assert "is no lease" in assert_refused(await call(api, "receive", ack=["nonsense"]))["detail"]
    assert "at most 1000" in assert_refused(await call(api, "receive", ack=[released] * 1_001))["detail"]


async def test_who_joins_others_that_wait_asks_redis_nothing(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = [asyncio.create_task(receive(api, wait="30s", max=1))]
    await until_redis_waits(valkey)
    with monkeypatch.context() as patch:
        patch.setattr(receiving, "receive", None)
        assert await receive(api, wait=1) == []
    waiting += [asyncio.create_task(receive(api, wait="30s", max=1)) for _ in range(20)]
    for n in range(21):
        append(valkey, f"m{n}")
    got = [one["id"] for messages in await asyncio.gather(*waiting) for one in messages]
    assert sorted(got) == sorted(f"m{n}" for n in range(21))


async def test_a_call_with_a_name_that_joins_others_asks_only_whether_it_is_a_repeat(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def questions() -> int:
        return int(valkey.admin.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

    monkeypatch.setattr(receivers, "POLL", 3_600.0)
    append(valkey, "a")
    first = await receive(api, call="c-1", lease="1h")
    waiting = [asyncio.create_task(receive(api, wait="30s", max=1))]
    await until_redis_waits(valkey)
    assert await receive(api, wait="30s", call="c-1", lease="1h") == first
    with monkeypatch.context() as patch:
        patch.setattr(receiving, "receive", None)
        before = await asyncio.to_thread(questions)
        waiting += [asyncio.create_task(receive(api, wait="30s", max=1, call=f"c-{n}")) for n in range(2, 22)]
        while await asyncio.to_thread(questions) == before:  # noqa: ASYNC110  # Redis sets no event
            await asyncio.sleep(0.01)
        assert not any(one.done() for one in waiting)
    for n in range(21):
        append(valkey, f"m{n}")
    got = [one["id"] for messages in await asyncio.gather(*waiting) for one in messages]
    assert sorted(got) == sorted(f"m{n}" for n in range(21))


async def test_a_repeat_gets_its_messages_though_its_time_ends_before_anybody_has_looked(
    asgi: Serving, settings: Settings, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SteppedClock(SystemClock):
        step = passed = 0

        def monotonic(self) -> int:
            SteppedClock.passed += self.step
            return super().monotonic() + self.passed

    async def find_none(_receivers: receivers.Receivers) -> None:
        """Leave each repeat to its caller."""
        await asyncio.sleep(0)

    monkeypatch.setattr(receivers, "POLL", 3_600.0)
    monkeypatch.setattr(receivers.Receivers, "_find_repeated", find_none)
    monkeypatch.setattr("api.service.SystemClock", SteppedClock)
    async with asgi(settings) as api:
        append(valkey, "a")
        first = await receive(api, call="c-1", lease="1h")
        other = asyncio.create_task(receive(api, wait="30s", max=1))
        await until_redis_waits(valkey)
        assert await receive(api, wait=1, call="c-1", lease="1h") == first
        SteppedClock.step = 3_600_000  # the time ends before the wait begins
        assert await receive(api, wait="30s", call="c-1", lease="1h") == first
        SteppedClock.step = 0
        append(valkey, "b")
        assert [one["id"] for one in await other] == ["b"]


@pytest.mark.parametrize("end", ["of its time", "of the API"])
async def test_a_repeat_should_receive_though_its_wait_ends_while_redis_answers(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    class SlowStore(AsyncStore):
        """Its answer arrives in the turn of the loop in which the wait ends."""

        async def run_all(self, commands: Iterable[Command[Any]]) -> list[Any]:
            answers = await super().run_all(commands)
            if end == "of the API":
                callers.stop()
            while end == "of its time" and not waiting.cancelling():  # noqa: ASYNC110  # it needs only turns
                await asyncio.sleep(0)
            return answers

    monkeypatch.setattr(receivers, "POLL", 3_600.0)
    append(valkey, "a")
    await receive(api, call="c-1", lease="1h")
    store, place = SlowStore(valkey.url, timeout=PATIENCE), ((TOPIC,), "mail", ())
    callers = receivers.Receivers(store)
    with callers.look(place):
        callers.received(place, 10**15, None, is_full=False)  # no entry is newer
    waiting = asyncio.create_task(callers.wait(place, 0.5 if end == "of its time" else PATIENCE, "c-1"))
    assert await waiting
    await callers.close()
    await store.close()


async def test_who_waits_gets_a_message_that_another_process_released(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "POLL", 0.05)
    append(valkey, "a")
    with Client(valkey.url) as client:
        (held,) = await asyncio.to_thread(client.receive, TOPIC, group="mail", lease="12h")
        waiting = asyncio.create_task(receive(api, wait="30s"))
        await until_redis_waits(valkey)
        await asyncio.to_thread(client.extend, held, 0)
    assert [one["id"] for one in await waiting] == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        ("extend", {"lease": 0}, {}),
        ("extend", {"lease": "1s"}, {}),
        ("handBack", {}, {"delayTime": 0}),
        ("handBack", {}, {"delayTime": 50}),
        ("delete", {}, {}),
        ("advance", {}, {}),
    ],
    ids=str,
)
async def test_who_waits_gets_a_message_when_a_call_of_the_same_process_frees_it(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch, change: tuple[str, Any, Any]
) -> None:
    valkey.admin.hset("delayq:meta", "advanced", 0)
    append(valkey, "a")
    held = await receive(api, lease="12h")
    monkeypatch.setattr(receivers, "POLL", 3_600.0)
    waiting = asyncio.create_task(receive(api, wait="30s"))
    await until_redis_waits(valkey)
    verb, fields, each = change
    if verb == "delete":
        answer = await api.delete(f"/v1/topics/{TOPIC}/groups/mail")
    elif verb == "advance":
        answer = await api.post("/v1/dev:advance", json={"time": "13h"})
    else:
        answer = await call(api, verb, messages=leased(*held, **each), **fields)
    assert answer.status_code == 200, answer.text
    assert [one["id"] for one in await waiting] == ["a"]


async def test_who_waits_gets_the_next_message_of_an_ordering_key_when_the_one_before_is_acknowledged(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in "ab":
        append(valkey, id, orderingKey="k")
    held = await receive(api, max=1, lease="12h")
    monkeypatch.setattr(receivers._Group, "_poll", lambda _: None)  # nobody looks again by time
    waiting = asyncio.create_task(receive(api, wait="30s"))
    await until_redis_waits(valkey)
    await call(api, "ack", messages=leased(*held))
    assert [one["id"] for one in await waiting] == ["b"]


async def test_bytes_are_base_64(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    append(valkey, "a", body=b"\xff\x00")
    (got,) = await receive(api)
    assert "body" not in got
    assert got["bodyBase64"] == "/wA="


async def test_a_message_is_handed_back_and_becomes_a_dead_letter(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 1)
    append(valkey, "a")
    for reason, result in (("stock API 503", "handedBack"), ("again", "dead")):
        (got,) = await receive(api, wait="30s")
        answer = await call(api, "handBack", messages=leased(got, reason=reason, delayTime=0))
        (told,) = answer.json()["results"]
        assert (told["status"], told["result"]) == (200, result)
    (letter,) = (await api.get("/v1/dead-letters")).json()["deadLetters"]
    assert (letter["id"], letter["reason"]) == ("a:mail", "stock API 503; again")


async def test_a_last_hand_back_while_redis_is_full_is_503_and_a_repeat_makes_the_dead_letter(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_HAND_BACKS", 0)
    append(valkey, "a")
    back = leased(*await receive(api), reason="stock API 503")
    valkey.admin.config_set("maxmemory", 1)
    try:
        problem = assert_refused(await call(api, "handBack", messages=back), 503)
        assert [(one["id"], one["status"]) for one in problem["results"]] == [("a", 503)]
        assert "The lease and the reason are kept" in problem["results"][0]["problem"]["detail"]
    finally:
        valkey.admin.config_set("maxmemory", 0)
    assert (await call(api, "handBack", messages=back)).json()["results"][0]["result"] == "dead"
    (letter,) = (await api.get("/v1/dead-letters")).json()["deadLetters"]
    assert letter["reason"] == "stock API 503"


async def test_callers_that_wait_get_what_arrives_and_one_message_reaches_one_of_them(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    await receive(api)  # the first call loads the scripts; no other call connects meanwhile
    waiting = [asyncio.create_task(receive(api, wait="30s", max=1)) for _ in range(5)]
    others = [asyncio.create_task(receive(api, wait="30s", group=f"g{n}")) for n in range(3)]
    await until_redis_waits(valkey)
    for n in range(5):
        append(valkey, f"m{n}")
    got = [one["id"] for messages in await asyncio.gather(*waiting) for one in messages]
    assert sorted(got) == ["m0", "m1", "m2", "m3", "m4"]
    for messages in await asyncio.gather(*others):
        assert messages != []


async def test_who_waits_gets_a_message_whose_lease_ends(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    append(valkey, "a")
    await receive(api, lease="1s")
    (got,) = await receive(api, wait="30s")
    assert (got["id"], got["deliveries"]) == ("a", 2)


async def test_a_caller_that_goes_away_takes_no_message_with_it(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    gone = asyncio.create_task(receive(api, wait="30s"))
    await until_redis_waits(valkey)
    stays = asyncio.create_task(receive(api, wait="30s"))
    await asyncio.sleep(0)
    gone.cancel()
    append(valkey, "a")
    assert [one["id"] for one in await stays] == ["a"]


async def test_an_entry_that_arrives_while_the_only_caller_receives_wakes_it(
    valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits() -> int:
        return int(valkey.admin.info("commandstats")["cmdstat_xread"]["calls"])

    monkeypatch.setattr(receivers, "POLL", 3_600.0)
    store, place = AsyncStore(valkey.url, timeout=PATIENCE), ((TOPIC,), "mail", ())
    callers = receivers.Receivers(store)
    with callers.look(place):
        callers.received(place, 1_000, None, is_full=False)
    await until_redis_waits(valkey)
    with callers.look(place):
        append(valkey, "a")  # this caller has asked Redis before
        known = await asyncio.to_thread(waits)
        while await asyncio.to_thread(waits) < known + 2:  # noqa: ASYNC110  # Redis sets no event
            await asyncio.sleep(0.01)
    assert await callers.wait(place, PATIENCE)
    await callers.close()
    await store.close()


async def test_a_wait_ends_without_a_message(api: httpx2.AsyncClient) -> None:
    assert await receive(api, wait=1) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"group": "two words"}, "group"),
        ({"max": 0}, "max"),
        ({"wait": "31s"}, "wait"),
        ({"wait": -1}, "wait"),
        ({"lease": "13h"}, "lease"),
        ({"start": "soon"}, "start"),
        ({"start": ""}, "start"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["x" * 4_097]}, "tags"),
        ({"tags": [f"t{n}" for n in range(101)]}, "tags"),
    ],
)
async def test_wrong_fields_are_named(api: httpx2.AsyncClient, fields: dict[str, Any], field: str) -> None:
    assert assert_refused(await call(api, "receive", **fields))["field"] == field


@pytest.mark.parametrize("lease", ["999ms", "12h1ms", "3650d"])
async def test_a_lease_is_extended_by_as_much_as_a_receive_leases_for(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, lease: str
) -> None:
    append(valkey, "a")
    (got,) = await receive(api, lease="12h")
    problem = assert_refused(await call(api, "extend", messages=leased(got), lease=lease))
    assert (problem["field"], "from 1 s to 12 h" in problem["detail"]) == ("lease", True)
    for valid in ("1s", "12h"):
        answer = await call(api, "extend", messages=leased(got), lease=valid)
        assert [one["result"] for one in answer.json()["results"]] == ["extended"]


@pytest.mark.parametrize("delay", ["4000d", -1])
async def test_a_message_is_handed_back_for_a_time_that_one_is_scheduled_for(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, delay: str | int
) -> None:
    append(valkey, "a")
    (got,) = await receive(api)
    late = [one | {"delayTime": delay} for one in leased(got)]
    assert assert_refused(await call(api, "handBack", messages=late))["field"] == "delayTime"
    assert assert_refused(await call(api, "extend", messages=leased(got), lease=-1))["field"] == "lease"
    delivered = {"id": "a", "topic": TOPIC, "body": "a", "handBacks": 0, "delayTime": delay}
    answer = await api.post("/v1/messages:handBack", json={"messages": [delivered]})
    (result,) = answer.json()["results"]
    assert (result["status"], result["problem"]["field"]) == (400, "delayTime")


@pytest.mark.parametrize("topic", ["orders.*", "orders.pai%3F"])
async def test_a_pattern_of_topics_is_refused(api: httpx2.AsyncClient, topic: str) -> None:
    answer = await call(api, "receive", topic)
    assert (answer.status_code, answer.json()["field"]) == (400, "topic")
    assert "must be one topic" in answer.json()["detail"]


async def test_a_lease_that_is_none_and_another_filter_are_refused(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    wrong = await call(api, "ack", messages=[{"id": "a", "lease": "x"}])
    assert assert_refused(wrong)["field"] == "lease"
    await receive(api, tags=["new"])
    assert assert_refused(await call(api, "receive", tags=["paid"]), 409)["field"] == "tags"


async def test_a_key_needs_the_scope_receive_for_all_four(asgi: Serving, settings: Settings, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    reads = keys.add("reader", {"orders.*": ["read", "schedule", "cancel"]})
    receives = keys.add("consumer", {"orders.*": ["receive"]})
    async with asgi(keys.settings(settings)) as api:
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("receive", {}),
            ("ack", {"messages": []}),
            ("extend", {"messages": []}),
            ("handBack", {"messages": []}),
        ]
        for verb, fields in bodies:
            for key, topic, status in ((reads, TOPIC, 403), (receives, TOPIC, 200), (receives, "news", 403)):
                answer = await api.post(f"/v1/topics/{topic}:{verb}", json={"group": "g"} | fields, headers=key)
                assert answer.status_code == status, (verb, topic, answer.text)


async def test_who_waits_with_a_key_that_lost_its_right_meanwhile_gets_no_message(
    asgi: Serving, settings: Settings, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    gone, less = keys.add("gone", {"orders.*": ["receive"]}), keys.add("less", {"orders.*": ["receive"]})
    stays = keys.add("stays", {"orders.*": ["receive"]})
    async with asgi(keys.settings(settings)) as api:
        body = {"group": "mail", "wait": "30s"}
        waiting = []
        for key in (gone, less, stays):
            waiting.append(asyncio.create_task(api.post(f"/v1/topics/{TOPIC}:receive", json=body, headers=key)))
            await until_redis_waits(valkey)  # the first one that came is the first that is woken
        keys.remove("gone")
        keys.remove("less")
        keys.keys.append(replace(make_key("less", {"news": ["receive"]})[1], hash=hash_of(keys.texts["less"])))
        keys.keys[-1] = replace(keys.keys[-1], id=keys.texts["less"].split("_")[1])
        await until_status(200, api, keys.add("more"))
        append(valkey, "a")
        refused, other, got = [await one for one in waiting]
        assert_refused(refused, 401)
        assert assert_refused(other, 403)["field"] == "topic"
        assert [one["id"] for one in got.json()["messages"]] == ["a"]


SHARED = json.dumps([
    {"name": "own", "match": "own.*"},
    {"name": "events", "match": "*", "stream": "events"},
])  # fmt: skip


async def test_a_stream_of_several_topics_is_received_by_keys_of_all_of_them(
    asgi: Serving, settings: Settings, valkey: ServerUnderTest, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    one = keys.add("one", {"orders.*": SCOPES, "own.*": SCOPES})
    everything = keys.add("every", {"*": ["receive"]})
    async with asgi(keys.settings(settings).replace(routes=SHARED)) as api:
        valkey.admin.xadd("events", {"id": "a", "topic": "secrets", "body": "a secret", "due": "1", "attempt": "1"})
        path = "/v1/topics/orders.x"
        answer = await api.post(f"{path}:receive", json={"group": "mail"}, headers=everything)
        held = leased(*answer.json()["messages"])
        assert len(held) == 1
        before = {key: valkey.admin.dump(key) for key in valkey.admin.keys("*")}
        for verb, body in (
            ("receive", {}),
            ("receive", {"ack": [held[0]["lease"]]}),
            *((verb, {"messages": held}) for verb in ("ack", "extend", "handBack")),
        ):
            answer = await api.post(f"{path}:{verb}", json={"group": "mail"} | body, headers=one)
            problem = assert_refused(answer, 403)
            assert "Messages of '*' are in the same stream as those of 'orders.x'" in problem["detail"]
        assert "same stream" in assert_refused(await api.delete(f"{path}/groups/mail", headers=one), 403)["detail"]
        assert (await api.get("/v1/consumers", headers=one)).json() == {"groups": [], "nextPageToken": None, "total": 0}
        assert {key: valkey.admin.dump(key) for key in valkey.admin.keys("*")} == before
        answer = await api.post("/v1/topics/own.x:receive", json={"group": "mail"}, headers=one)
        assert answer.status_code == 200, "each topic of this route has a stream"
        assert (await api.get("/v1/consumers", headers=one)).json()["total"] == 1
        done = await api.post(f"{path}:ack", json={"group": "mail", "messages": held}, headers=everything)
        assert done.json()["results"][0]["status"] == 200


async def settled(api: httpx2.AsyncClient, topic: str, group: str, *messages: dict[str, Any]) -> list[tuple[int, str]]:
    """The statuses and results of all three calls with these leases."""
    found = []
    for verb in ("ack", "extend", "handBack"):
        answer = (await call(api, verb, topic, group=group, messages=leased(*messages))).json()
        found += [(one["status"], one.get("result", "")) for one in answer["results"]]
    return found


async def test_a_lease_that_never_was_is_not_found_or_lost_and_an_id_of_another_message_is_refused(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    append(valkey, "b")
    a, b = await receive(api)
    await call(api, "receive", "bills", group="mail")
    assert await settled(api, TOPIC, "mial", a) == [(404, "notFound")] * 3
    assert await settled(api, "other", "mail", a) == [(404, "notFound")] * 3
    assert await settled(api, "bills", "mail", a) == [(409, "lost")] * 3
    place, at, name, mark = a["lease"].split(".")
    for lease in (".1-1.nobody", f"{place}.{at}.nobody", f"7.{at}.{name}.{mark}"):
        assert await settled(api, TOPIC, "mail", a | {"lease": lease}) == [(409, "lost")] * 3
    later = f"{int(at.split('-')[0]) + 1}-0"
    for lease in (
        f"{place}.{later}.{name}.{mark}",
        f"{place}.{at}.{name}.{mark[:-1]}{'1' if mark[-1] == '0' else '0'}",
    ):
        assert {one for one, _ in await settled(api, TOPIC, "mail", a | {"lease": lease})} <= {400}
    wrong = await call(api, "ack", group="mail", messages=leased(a | {"lease": b["lease"]}))
    assert (wrong.status_code, wrong.json()["field"]) == (400, "id")
    assert "'a' is not the message of this lease" in wrong.json()["detail"]
    both = await call(api, "ack", group="mail", messages=leased(a | {"id": "b"}, b))
    assert [(one["status"], one.get("result")) for one in both.json()["results"]] == [
        (400, None),
        (200, "acknowledged"),
    ]
    assert valkey.admin.xpending(TOPIC, "mail")["pending"] == 1, "a is leased"
    for _ in range(2):
        assert [
            one["status"] for one in (await call(api, "ack", group="mail", messages=leased(a, b))).json()["results"]
        ] == [
            200,
            200,
        ]


async def test_a_group_that_consumers_of_redis_used_before_receives_what_they_left(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    for id in "abc":
        append(valkey, id)
    valkey.admin.xgroup_create(TOPIC, "mail", "0")
    valkey.admin.xreadgroup("mail", "other", {TOPIC: ">"}, count=2)
    got = await receive(api)
    assert [(one["id"], one["deliveries"]) for one in got] == [("a", 2), ("b", 2), ("c", 1)]
    answer = await call(api, "ack", messages=leased(*got))
    assert [one["status"] for one in answer.json()["results"]] == [200] * 3
    (group,) = (await api.get("/v1/consumers")).json()["groups"]
    assert (group["lag"], group["leased"]) == (0, 0)


async def test_a_stream_without_its_group_is_received_and_a_key_that_is_no_stream_is_named(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    append(valkey, "a")
    (a,) = await receive(api)
    valkey.admin.xgroup_destroy(TOPIC, "mail")
    assert await settled(api, TOPIC, "mail", a) == [(409, "lost")] * 3
    assert [one["id"] for one in await receive(api)] == ["a"]
    valkey.admin.delete(TOPIC)
    valkey.admin.set(TOPIC, "a text")
    for group in ("mail", "new"):
        answer = await call(api, "receive", group=group)
        assert (answer.status_code, answer.json()["field"]) == (400, "topic")
        assert f"'{TOPIC}', and this key in Redis is no stream" in answer.json()["detail"]
    assert (await api.get("/v1/consumers")).json()["groups"][0]["lag"] is None
    assert (await api.delete(f"/v1/topics/{TOPIC}/groups/mail")).json()["changed"]


async def test_a_key_makes_a_bounded_number_of_groups(
    asgi: Serving, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "record_group", partial(commands.record_group, most_of_key=2))
    keys = KeyFile(tmp_path / "keys.json")
    ada, bob = keys.add("ada", {"*": ["receive"]}), keys.add("bob", {"*": ["receive"]})
    async with asgi(keys.settings(settings)) as api:

        async def statuses(headers: dict[str, str], *topics: str) -> list[int]:
            answers = [
                await api.post(f"/v1/topics/{one}:receive", json={"group": "g"}, headers=headers) for one in topics
            ]
            return [one.status_code for one in answers]

        assert await statuses(ada, "a", "b", "c", "a") == [200, 200, 400, 200]
        assert await statuses(bob, "c") == [200]
