"""Connections that break at the wrong moment: what is unknown is told, repeating it is safe, nothing is doubled.

An API and a worker node in this process reach Redis through a proxy each.
"""

from __future__ import annotations

import ast
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from delayq import Client, Message, Scheduled
from delayq.base.errors import StoreUnavailable
from delayq.client.audit import By
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.store import commands
from delayq.store.commands import Found
from delayq.store.keys import KEYS
from delayq.testing import MemoryTarget
from tests.api.conftest import in_process
from tests.faults.flow import answered, refused
from tests.support.nodes import QUEUES, RunningNode, settings_for
from tests.support.proxy import FaultProxy
from tests.support.queues import EPOCH, taken
from tests.support.servers import KEPT, ServerUnderTest
from tests.support.service import ROOT
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

#: How long the API and the node wait for a reply. It is what B6 is about, and too short makes a call unknown, never wrong.
AWAY = 1_000


class Home:
    """An API and a node, each behind a proxy of its own, the target of topics 'm.*', and a client beside them."""

    def __init__(self, server: ServerUnderTest, api: httpx2.AsyncClient, target: MemoryTarget, client: Client) -> None:
        self.server = server
        self.api = api
        self.target = target
        self.client = client
        self.to_api: FaultProxy
        self.to_worker: FaultProxy
        self.node: RunningNode

    async def post(self, topic: str, delay: int = 0, **fields: Any) -> httpx2.Response:
        """Schedule a message over HTTP."""
        return await self.api.post("/v1/messages", json={"topic": topic, "delayTime": delay, "body": "b"} | fields)

    async def schedule(self, topic: str, count: int, delay: int = 0) -> list[str]:
        """Schedule messages in one batch, again while an outcome is unknown; their ids."""
        ids, statuses = [f"{topic}-{n}" for n in range(count)], {503}
        rows = [{"topic": topic, "id": id, "delayTime": delay, "body": "b"} for id in ids]
        while 503 in statuses:
            results = (await self.api.post("/v1/messages:batch", json={"messages": rows})).json()["results"]
            statuses = {one["status"] for one in results}
        assert statuses <= {200, 201}
        return ids

    def expect_once(self, ids: Sequence[str]) -> None:
        """All of these arrive at the target, are acked, and came once."""
        self.target.wait_for_ids(ids, PATIENCE)
        eventually(lambda: not sum(one.scheduled + one.parked for one in self.client.queues()), "all is acked")
        assert Counter(id for id in self.target.ids if id in set(ids)) == dict.fromkeys(ids, 1)


@pytest.fixture
async def home(request: pytest.FixtureRequest, valkey: ServerUnderTest) -> AsyncIterator[Home]:
    target, timeout = MemoryTarget(), getattr(request, "param", int(PATIENCE * 1_000))
    with FaultProxy(valkey.port) as to_api, FaultProxy(valkey.port) as to_worker:
        settings = settings_for(to_worker.url, target, redis_timeout=timeout)
        with RunningNode(settings) as node, Client(settings=settings_for(valkey.url, target)) as client:
            async with in_process(settings.replace(redis_url=to_api.url)) as api:
                made = Home(valkey, api, target, client)
                made.to_api, made.to_worker, made.node = to_api, to_worker, node
                yield made
                to_api.heal()
                to_worker.heal()


async def test_b1_a_schedule_whose_reply_was_lost_is_unknown_and_repeating_it_makes_one_message(home: Home) -> None:
    """B1 (reset after the enqueue was executed): 503 with the id.

    Repeating makes no second message and reports even a delivery.
    """
    home.to_api.drop_reply("schedule", times=2)  # the one, and that of its repetition by the API itself
    problem = refused(await home.post("m.b1", 500))
    assert "Repeat with the same id" in problem["detail"]
    assert home.to_api.dropped[-2:] == ["schedule", "schedule"]
    again = await home.post("m.b1", 500, id=problem["id"])
    assert (again.status_code, again.json()["id"]) == (200, problem["id"])
    home.expect_once([problem["id"]])
    late = await home.post("m.b1", 500, id=problem["id"])
    assert (late.status_code, late.json()["state"]) == (200, "delivered")
    home.expect_once([problem["id"]])


@pytest.mark.parametrize("cut", [400, 9_000, 40_000])
async def test_b2_a_batch_that_was_cut_in_the_middle_is_repeated_as_a_whole_and_doubles_nothing(
    home: Home, cut: int
) -> None:
    """B2 (reset in the middle of a pipeline): Unanswered calls are 503.

    Repeating the batch with the same ids makes each message once.
    """
    ids = [f"b2-{number}" for number in range(500)]
    messages = [{"topic": "m.b2", "id": id, "delayTime": 500, "body": "x" * 200} for id in ids]
    home.to_api.cut_after(cut)
    first = await home.api.post("/v1/messages:batch", json={"messages": messages})
    home.to_api.heal()
    assert 503 in {one["status"] for one in first.json()["results"]}, "the cut came too late"
    again = await home.api.post("/v1/messages:batch", json={"messages": messages})
    assert {one["status"] for one in again.json()["results"]} <= {200, 201}
    home.expect_once(ids)


async def test_b3_an_ack_whose_reply_was_lost_is_told_again_and_nothing_is_sent_twice(home: Home) -> None:
    home.to_worker.drop_reply("ack", times=5)
    ids = await home.schedule("m.b3", 100)
    while home.to_worker.armed:
        ids += [(await home.post("m.b3")).json()["id"]]
    home.expect_once(ids)
    assert home.to_worker.dropped[-1] == "ack"  # the replies behind it in the same packet are lost with it
    assert sum(one.counters["delivered"] for one in home.client.queues()) == len(ids)


async def test_b4_a_pull_whose_reply_was_lost_is_done_again_and_neither_loses_nor_doubles(home: Home) -> None:
    """B4 (pull reply lost): The worker pulls the same messages again. Appended ones are gone and not appended again."""
    home.to_worker.drop_reply("pull", times=5)
    ids, streamed = await home.schedule("m.b4", 100), await home.schedule("s.b4", 100)
    eventually(lambda: not home.to_worker.armed, "the replies were lost")
    home.expect_once(ids)
    # Appended by the very script whose reply was lost.
    assert Counter(entry[b"id"].decode() for _, entry in home.server.admin.xrange("s.b4")) == dict.fromkeys(streamed, 1)


# -- B5: what the client library would do by itself -------------------------------------------------------------------


def makers(path: Path) -> Iterator[ast.Call]:
    """The calls in a file that make something of redis-py's that connects."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "redis." in text else ():
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            base = name.removesuffix(".from_url")
            if name.startswith("redis.") and base.rsplit(".", 1)[-1].endswith(("Redis", "Pool", "Cluster", "Sentinel")):
                yield node


def test_b5_no_connection_is_made_that_repeats_by_itself() -> None:
    """B5: The library's own retries are off in every place that connects."""
    found = 0
    for folder in ("delayq", "api", "workers", "coordinator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for call in makers(path):
                found += 1
                given = [ast.unparse(one.value) for one in call.keywords if one.arg in ("retry", None)]
                told = [
                    one for one in given if one.startswith(("Retry(NoBackoff(), 0", "connection_options(", "async_"))
                ]
                assert told, f"{path}:{call.lineno} lets redis-py repeat commands"
    assert found >= 2, "this test looks for the wrong calls"


# -- Redis is out of reach ------------------------------------------------------------------------------------------------


def troubled(home: Home) -> bool:
    """Whether each queue's job has given a call up."""
    return all(job._troubles for job in home.node.node.jobs.values())


@pytest.mark.parametrize("home", [AWAY], indirect=True)
async def test_b6_a_redis_that_says_nothing_is_told_within_the_time_out_and_found_again(home: Home) -> None:
    """A14 (slow Redis (200 ms–5 s)): After `DELAYQ_REDIS_TIMEOUT` the outcome is unknown: 503, repeat.

    Workers retry; no threads or connections pile up.

    B6 (black hole (no RST)): After `DELAYQ_REDIS_TIMEOUT`: 503. Workers retry on new connections; nothing repeats.

    Neither threads nor connections pile up meanwhile (A14).
    """
    ids = await home.schedule("m.b6", 50, 300) + await home.schedule("m.b6.later", 50, 1_500)
    threads = threading.active_count()
    home.server.pause()
    try:
        unknown = [refused(await home.post("m.b6.new")) for _ in range(2)]
        assert all("Repeat with the same id" in one["detail"] for one in unknown)
        refused(await home.api.delete(f"/v1/messages/{ids[-1]}"))
        refused(await home.api.get("/readyz"))
        assert (await home.api.get("/livez")).status_code == 200
        eventually(lambda: troubled(home), "the node notices")
        assert threading.active_count() <= threads + QUEUES
    finally:
        home.server.resume()
    await answered(home.api, "/readyz", 200)
    for one in unknown:  # what Redis found in its sockets when it went on was done, or it was refused as too late
        again = await home.post("m.b6.new", id=one["id"])
        while again.status_code == 503:
            again = await home.post("m.b6.new", id=one["id"])
        assert again.status_code in (200, 201)
    # The cancel of which nobody heard may have been done.
    home.expect_once([*ids[:-1], *(one["id"] for one in unknown)])
    assert home.target.ids.count(ids[-1]) <= 1
    eventually(lambda: home.server.admin.info("clients")["connected_clients"] < 40, "connections do not pile up")


@pytest.mark.parametrize("home", [AWAY], indirect=True)
async def test_b6_a_link_that_swallows_everything_delays_delivery_and_doubles_nothing(home: Home) -> None:
    ids = await home.schedule("m.link", 50, 300)
    home.to_worker.black_hole()
    ids += await home.schedule("m.link.too", 50)
    streamed = await home.schedule("s.link", 50)
    eventually(lambda: troubled(home), "the node notices")
    home.to_worker.heal()
    home.expect_once(ids)
    assert Counter(entry[b"id"].decode() for _, entry in home.server.admin.xrange("s.link")) == dict.fromkeys(
        streamed, 1
    )


async def test_b7_a_killed_subscription_loses_no_message(home: Home) -> None:
    """B7 (pub/sub wake lost, subscriber killed): A worker subscribes again, and looks at each queue once a second
    anyway."""
    ids: list[str] = []
    for turn in range(5):
        home.server.admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        ids += await home.schedule(f"m.b7.{turn}", 5)
        home.expect_once(ids)


async def test_b7_a_worker_that_never_hears_a_wake_delivers_by_its_own_looks(valkey: ServerUnderTest) -> None:
    deaf = ("on", "nopass", "~*", "&*", "+@all", "-subscribe", "-psubscribe", "-ssubscribe")
    valkey.admin.execute_command("ACL", "SETUSER", "deaf", *deaf)
    target = MemoryTarget()
    try:
        node = RunningNode(settings_for(valkey.url.replace("redis://", "redis://deaf:any@"), target))
        with node, Client(settings=settings_for(valkey.url, target)) as client:
            for delay in (0, 300):
                ids = [client.schedule(Message(topic="m.t", delay_time=delay)).id for _ in range(20)]
                target.wait_for_ids(ids, PATIENCE)
    finally:
        valkey.admin.execute_command("ACL", "DELUSER", "deaf")


async def test_b10_an_api_that_is_cut_off_says_so_and_delivery_goes_on(home: Home) -> None:
    """B10 (partition API↔Redis only): 503, and `/readyz` names the cause; delivery continues.

    A change answered 503 is not made later.

    B10: A repeated call is scheduled once.
    """
    ids = await home.schedule("m.b10", 50, 300)
    (far,) = await home.schedule("m.far", 1, 600_000)
    home.to_api.refuse()
    problem = refused(await home.post("m.b10.new"))
    refused(await home.api.delete(f"/v1/messages/{far}"))
    refused(await home.api.get("/readyz"))
    home.target.wait_for_ids(ids, PATIENCE)
    home.to_api.heal()
    assert (await home.api.delete(f"/v1/messages/{far}")).json()["result"] == "cancelled"
    assert (await home.post("m.b10.new", id=problem["id"])).status_code == 201
    home.expect_once([*ids, problem["id"]])


async def test_b13_over_a_narrow_line_messages_come_late_each_once(home: Home) -> None:
    home.to_worker.throttle(100_000)
    messages = [Message(topic="m.b13", body="x" * 4_000, delay_time=0) for _ in range(40)]
    ids = [one.id for one in home.client.schedule_many(messages) if isinstance(one, Scheduled)]
    assert len(ids) == len(messages)
    home.expect_once(ids)


# -- B16 ------------------------------------------------------------------------------------------------------------------

LATER = 3_600_000


def dead(client: Client, due: int) -> None:
    """All that is there becomes a dead letter."""
    for queue in range(16):
        keys = KEYS.queue(queue)
        client.store.run(commands.claim(keys, EPOCH))
        pulled = client.store.run(commands.pull(keys, EPOCH, offset=0, room=500, now=due))
        client.store.run(commands.bury(keys, EPOCH, [(one, 1, "broken") for one in taken(pulled)]))


class ByHand(NamedTuple):
    """A change of messages by hand: how many a call changes, the call, and whether what is found of one shows it."""

    call: Callable[[Client, Sequence[str], int, By], object]
    changed: Callable[[Found, int], bool]
    at_once: int = 2
    of_dead: bool = False


BY_HAND = {
    "cancel": ByHand(
        lambda client, ids, _, by: client.cancel_many(ids, by=by),
        lambda one, _: one.record is None,
    ),
    "reschedule": ByHand(
        lambda client, ids, due, by: client.reschedule(ids[0], expect_date=due + 1_000, by=by),
        lambda one, due: one.due == due + 1_000,
        at_once=1,
    ),
    "deliver_now": ByHand(
        lambda client, ids, _, by: client.deliver_now_many(ids, by=by),
        lambda one, due: one.due is not None and one.due < due,
    ),
    "redrive": ByHand(
        lambda client, ids, _, by: client.redrive(ids, by=by), lambda one, _: one.state != "dead", of_dead=True
    ),
    "discard": ByHand(
        lambda client, ids, _, by: client.discard_many(ids, by=by),
        lambda one, _: one.state == "discarded",
        of_dead=True,
    ),
}


@pytest.mark.parametrize("action", BY_HAND)
def test_b16_a_change_by_hand_and_its_entry_are_both_there_or_neither_is(tmp_path: Path, action: str) -> None:
    """B16 (Redis is killed, or a reply lost, at a manual change): Change and audit entry both exist, or neither.

    A repeated call is recorded once.
    """
    by, change = By(actor="night shift"), BY_HAND[action]
    ids, step = [f"m{n}" for n in range(600)], change.at_once
    come, in_the_middle = itertools.count(1), threading.Event()

    def held_back(_: Sequence[bytes]) -> bool:
        """Once so many commands have gone through, what follows them is held until the server is killed."""
        if next(come) == 80:
            proxy.hold()
            in_the_middle.set()
        return False

    with EmbeddedServer(data_dir=tmp_path / "valkey", extra=KEPT) as server, FaultProxy(server.port) as proxy:
        settings = load_settings(redis_url=f"redis://127.0.0.1:{proxy.port}/0", redis_timeout=2_000)
        with Client(settings=settings) as client, ThreadPoolExecutor(4) as callers:
            due = client.store.run(commands.redis_now()) + LATER
            client.schedule_many([Message(topic="t", id=id, expect_date=due) for id in ids])
            if change.of_dead:
                dead(client, due)
            proxy.drop_reply(action, times=5)
            proxy.drop_reply(action, when=held_back)
            begun = [callers.submit(change.call, client, ids[n : n + step], due, by) for n in range(0, len(ids), step)]
            assert in_the_middle.wait(PATIENCE), "some are changed"
            server.kill()
            proxy.reset()
            proxy.release()
            eventually(lambda: any(one.done() and is_broken_off(one) for one in begun), "some are broken off")
            server.start()
            broken_off = [one for one in begun if is_broken_off(one)]
            changed = {one.id for one in client.get_many(ids) if one is not None and change.changed(one, due)}
            written: Counter[str] = Counter()
            token = None
            while True:
                page = client.audit(1_000, token)
                written.update(message.id for entry in page.entries for message in entry.change.messages)
                if (token := page.next_token) is None:
                    break
    assert broken_off, "some were broken off"
    assert action in proxy.dropped
    assert written == dict.fromkeys(changed, 1)
    assert changed


def is_broken_off(call: Future[object]) -> bool:
    """Whether a call says that Redis did not answer."""
    try:
        told = call.result()
    except StoreUnavailable:
        return True
    return any(isinstance(one, StoreUnavailable) for one in told) if isinstance(told, list) else False
