"""An installation in a namespace: it does everything that clients, a worker, the API and operators do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Final

from delayq import AsyncClient, Client, Message
from delayq.domain.policies import Policy
from delayq.store import commands
from delayq.store.connect.store import Store
from delayq.store.keys import Keys
from delayq.testing import MemoryTarget, register_memory_target
from tests.api.conftest import in_process
from tests.faults.flow import delayq
from tests.support.nodes import RunningNode, settings_for
from tests.support.timeouts import PATIENCE
from tests.support.waiting import eventually

HOUR: Final = 3_600_000
LONG: Final = int(PATIENCE * 1_000)
#: The topics whose messages go to streams, and how many each gets.
TOPICS: Final = ("orders.a", "own.a", "full.a", "slow.a")
EACH: Final = 6
#: What operators do by the command line.
COMMANDS: Final = (
    "schedule orders.cli x --delay 1h --id cli", "get cli", "find k", "overview", "reschedule cli --delay 2h",
    "cancel cli", "queues", "nodes", "routes", "policies put cli --match cli.* --rate 1000", "pause cli.*", "topics",
    "deliver-now later --force", "search --topic orders.*", "count", "resume cli.* --rate 100", "audit", "era show",
    "dead-letters list", "doctor", "consumers", "reshard --queues 4", "era bump --yes",
)  # fmt: skip


class Installation:
    """delayq in a namespace. Its streams begin with the name of the namespace, if that is not the default one."""

    def __init__(self, url: str, namespace: str) -> None:
        self.namespace = namespace
        self.keys = Keys(namespace)
        self.target = MemoryTarget()
        self.target.answer("rejected", topic="m.bad")
        table: list[dict[str, Any]] = [
            {"name": "own", "match": "own.*", "perQueue": True},
            {"name": "full", "match": "full.*", "maxBacklog": 1_000},
            {"name": "memory", "match": "m.*", "target": register_memory_target(self.target, namespace)},
            {"name": "streams"},
        ]
        self.settings = settings_for(url, self.target, namespace=namespace, routes=json.dumps(table))

    def client(self) -> Client:
        """A new client."""
        return Client(self.settings.redis_url, settings=self.settings)

    async def do_everything(self) -> None:
        """Use each part of delayq, in an empty namespace."""
        with RunningNode(self.settings), self.client() as client:
            self._deliver(client)
            self._bury(client)
            self._consume(client)
            self._look(client)
            await self._elsewhere()
        with closing(Store(self.settings.redis_url, keys=self.keys, timeout=PATIENCE)) as store:
            for one in self._of_jobs():
                store.run(one)
        for words in COMMANDS:
            self.run(words)

    def run(self, words: str) -> str:
        """Call a command; it must not fail."""
        status, text = delayq(self.settings.redis_url, *words.split(), "--namespace", self.namespace)
        assert status in (0, 1), (words, text)
        assert "NOPERM" not in text, (words, text)
        return text

    def _deliver(self, client: Client) -> None:
        client.put_policy(Policy(name="slow", match="slow.*", rate=500, index=("topic",), retention_length=1_000))
        client.put_policy(Policy(name="full", match="full.*", max_in_flight=100))
        client.pause("held.*")
        client.schedule_many(
            Message(topic=topic, id=f"{topic}-{n}", delay_time=0, keys=("k",), ordering_key="o" * (n % 2))
            for topic in (*TOPICS, "m.good", "held.a")
            for n in range(EACH)
        )
        client.schedule(Message(topic="orders.later", id="later", delay_time=HOUR, keys=("k",)))
        client.schedule(Message(topic="orders.later", id="gone", delay_time=HOUR))
        client.reschedule("later", delay_time=2 * HOUR)
        assert client.cancel("gone").result == "cancelled"
        eventually(lambda: len(self.target.ids) == EACH, "all messages for the target have arrived")
        client.resume("held.*", rate=1_000)

    def _bury(self, client: Client) -> None:
        client.schedule_many(Message(topic="m.bad", id=f"bad-{n}", delay_time=0) for n in range(3))
        eventually(lambda: len(client.dead_letters(10).letters) == 3, "they are dead letters")
        self.target.answer("ok", topic="m.bad")
        client.redrive(["bad-0"])
        assert client.discard("bad-1")
        eventually(lambda: "bad-0" in self.target.ids, "the redriven message has arrived")

    def _consume(self, client: Client) -> None:
        for topic in (*TOPICS, "held.a"):
            found = list[str]()
            while len(found) < EACH:
                some = client.receive(topic, group="mail", max=3, wait=LONG)
                found += [one.id.partition(".")[0] for one in some]
                client.extend_many(some)
                assert {one.result for one in client.ack(*some)} == {"acknowledged"}
            assert len(found) == EACH
        (one,) = client.receive("orders.a", group="log", max=1)
        assert client.hand_back(one, delay_time=0, reason="busy").result == "handedBack"
        with client.consume("orders.a", group="loop") as consumer:
            assert next(iter(consumer)).topic == "orders.a"
        assert client.delete_group("orders.a", "log").changed
        assert {one.group for one in client.consumers()} == {"mail", "loop"}

    def _look(self, client: Client) -> None:
        looks: Iterable[Callable[[], object]] = (
            client.overview, client.status, client.queues, client.nodes, client.routes, client.topics, client.audit,
            client.facts, client.dead_groups, client.search, client.count, client.policies,
            lambda: client.forecast(0, 3 * HOUR, HOUR), lambda: client.find("k"), lambda: client.arriving("*"),
        )  # fmt: skip
        for look in looks:
            look()

    async def _elsewhere(self) -> None:
        async with AsyncClient(self.settings.redis_url, settings=self.settings) as client:
            await client.schedule(Message(topic="orders.async", id="async", delay_time=HOUR))
            assert (await client.cancel("async")).result == "cancelled"
        async with in_process(self.settings) as api:
            body = {"topic": "orders.http", "id": "http", "delayTime": HOUR}
            assert (await api.post("/v1/messages", json=body)).status_code == 201
            assert (await api.delete("/v1/messages/http")).json()["result"] == "cancelled"
            assert (await api.get("/readyz")).status_code in (200, 503)
            assert (await api.get("/metrics")).status_code == 200

    def _of_jobs(self) -> list[commands.Command[Any]]:
        keys = self.keys
        return [
            commands.report(keys, "run", "line", b"{}"),
            commands.keep_report(keys, "run"),
            commands.spend(keys, "run", 10, 10, 1),
        ]
