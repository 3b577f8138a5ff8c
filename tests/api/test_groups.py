"""Consumer groups over HTTP: their lag, pages of them, the rights to see and to delete them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.service import LAGS_EVERY
from delayq.base.times import parse_instant
from delayq.client.findings import consumers
from delayq.config import Settings
from tests.api.conftest import Serving, assert_refused
from tests.api.test_consuming import TOPIC, append, leased, receive
from tests.api.test_status import app_of
from tests.support.keys import KeyFile
from tests.support.servers import ServerUnderTest

HOUR = 3_600_000


async def groups(api: httpx2.AsyncClient, **given: Any) -> dict[str, Any]:
    answer = await api.get("/v1/consumers", **given)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_group_shows_what_it_has_not_acknowledged(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    assert await groups(api) == {"groups": [], "nextPageToken": None, "total": 0}
    for id in "abcd":
        append(valkey, id)
    first, second, third = await receive(api, max=3, tags=[])
    await api.post(f"/v1/topics/{TOPIC}:ack", json={"group": "mail", "messages": leased(first)})
    back = leased(second, delayTime="1h")
    await api.post(f"/v1/topics/{TOPIC}:handBack", json={"group": "mail", "messages": back})
    (one,) = (await groups(api))["groups"]
    times = [parse_instant(one.pop(name)) for name in ("since", "readyTime", "lastReceiveTime")]
    delivered = parse_instant(one["oldest"].pop("deliveredTime"))
    assert one == {
        "topic": TOPIC,
        "group": "mail",
        "filter": [],
        "lag": 3,
        "waiting": 1,
        "leased": 1,
        "handedBack": 1,
        "oldest": {
            "id": "b",
            "dueTime": "2027-01-31T08:30:00.000Z",
            "dueMs": 1801384200000,
            "state": "handedBack",
        },
    }
    assert delivered <= times[1] <= times[0], "d was ready before the group was made"
    assert third["id"] == "c"


async def test_groups_come_page_by_page(api: httpx2.AsyncClient) -> None:
    names = [(topic, group) for topic in ("orders.a", "orders.b", "orders.c") for group in ("audit", "mail")]
    for topic, group in reversed(names):
        await api.post(f"/v1/topics/{topic}:receive", json={"group": group})
    seen: list[tuple[str, str]] = []
    query: dict[str, Any] = {"limit": 4, "match": "orders.*"}
    while True:
        page = await groups(api, params=query)
        assert page["total"] == 6
        seen += [(one["topic"], one["group"]) for one in page["groups"]]
        if page["nextPageToken"] is None:
            break
        query["pageToken"] = page["nextPageToken"]
    assert seen == names
    first = await groups(api, params={"limit": 1, "match": "orders.b"})
    assert (first["nextPageToken"], first["total"]) == ("orders.b/audit", 2)


async def test_a_deleted_group_is_gone_and_again_is_harmless(api: httpx2.AsyncClient, valkey: ServerUnderTest) -> None:
    append(valkey, "a")
    await receive(api)
    for changed in (True, False):
        answer = await api.delete(f"/v1/topics/{TOPIC}/groups/mail", headers={"Delayq-Reason": "unused"})
        assert answer.json() == {"topic": TOPIC, "group": "mail", "changed": changed}
    assert (await groups(api))["total"] == 0
    (entry,) = (await api.get("/v1/audit")).json()["entries"]
    assert (entry["action"], entry["reason"]) == ("deleteGroup", "unused")
    assert [one["id"] for one in await receive(api)] == ["a"]


async def test_a_key_sees_the_groups_of_its_topics_and_deletes_with_admin(
    asgi: Serving, settings: Settings, tmp_path: Path
) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    boss = keys.add("boss", {"*": ["receive", "admin", "read"]})
    reads = keys.add("reader", {"orders.*": ["read", "receive"]})
    changes = keys.add("admin", {"orders.*": ["admin"]})
    async with asgi(keys.settings(settings)) as api:
        for topic in (TOPIC, "news"):
            await api.post(f"/v1/topics/{topic}:receive", json={"group": "g"}, headers=boss)
        seen = await groups(api, headers=reads)
        assert ([one["topic"] for one in seen["groups"]], seen["total"]) == ([TOPIC], 1)
        assert (await groups(api, headers=changes))["total"] == 0
        for key, topic, status in ((reads, TOPIC, 403), (changes, "news", 403), (changes, TOPIC, 200)):
            answer = await api.delete(f"/v1/topics/{topic}/groups/g", headers=key)
            assert answer.status_code == status, (topic, answer.text)
        assert (await groups(api, headers=boss))["total"] == 1


async def test_a_token_is_one_of_a_page(api: httpx2.AsyncClient) -> None:
    for token in ("x", "a b/g", "/", "a/"):
        problem = assert_refused(await api.get("/v1/consumers", params={"pageToken": token}))
        assert problem["field"] == "pageToken"


async def test_many_groups_are_read_in_pieces(api: httpx2.AsyncClient) -> None:
    for n in range(120):
        await api.post(f"/v1/topics/t{n}:receive", json={"group": "g"})
    assert len((await groups(api, params={"limit": 1_000}))["groups"]) == 120


async def test_metrics_have_the_largest_lag_and_are_read_once_for_many_scrapes(
    api: httpx2.AsyncClient, valkey: ServerUnderTest
) -> None:
    assert not await lags_of(api), "without a group there is no number"
    for topic, count in (("orders.a", 2), ("orders.b", 3)):
        for n in range(count):
            append(valkey, f"m{n}", topic)
        await api.post(f"/v1/topics/{topic}:receive", json={"group": "mail"})
    assert not await lags_of(api), "the first answer is used for 15 s"
    app_of(api).service._lags._began -= LAGS_EVERY
    found = await lags_of(api)
    assert found["delayq_consumer_lag"] == 3
    assert 0 <= found["delayq_consumer_oldest_seconds"] < 3_600
    before = valkey.admin.info("stats")["total_commands_processed"]
    assert await lags_of(api) == found
    assert valkey.admin.info("stats")["total_commands_processed"] == before + 1, "only the INFO of this test"


async def lags_of(api: httpx2.AsyncClient) -> dict[str, float]:
    text = (await api.get("/metrics")).text
    return {name: float(value) for name, value in re.findall(r"^(delayq_consumer_\w+) (\S+)$", text, re.MULTILINE)}


async def test_a_group_that_nobody_serves_is_a_finding(
    api: httpx2.AsyncClient, valkey: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "UNATTENDED", -HOUR)
    append(valkey, "a")
    append(valkey, "b")
    await receive(api, max=1)
    found = {one["code"]: one["text"] for one in (await api.get("/v1/status")).json()["findings"]}
    assert found["consumers"].startswith(
        f"no consumer of group mail receives from topic {TOPIC}, where 2 messages wait;"
    )
