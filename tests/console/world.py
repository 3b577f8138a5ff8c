"""What the pages show: an API, a worker and a Valkey, with messages in every state (100,000 in `./dev test --all`).

The tests that read share one; those that change something take topics of their own.
"""

from __future__ import annotations

import json
import string
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, Final, Self, cast

import redis

from delayq import Client, Message
from delayq.client.audit import By
from delayq.config import Settings
from delayq.domain.policies import Policy
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import LOCALHOST
from delayq.store.commands import Command
from delayq.store.keys import KEYS
from delayq.testing import ManualClock
from tests.support.amounts import amount
from tests.support.keys import KeyFile
from tests.support.receiver import Answer, Receiver, Request
from tests.support.service import Service
from tests.support.timeouts import REDIS_TIMEOUT
from tests.support.waiting import eventually
from workers.queue.census import CensusTaker
from workers.queue.queue_context import Pace

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
MESSAGES: Final = amount(20_000, 100_000)
ORDERS: Final = MESSAGES * 2 // 5
BURST: Final = MESSAGES // 5
MANY_TOPICS: Final = MESSAGES // 10
#: Why the endpoint refuses messages, by their topics.
REASONS: Final = {
    "billing.invoice": "the account 4711000{} is closed",
    "billing.receipt": "<b>no such template</b>",
    "billing.refund": "the amount is missing",
}
#: What would do something where text is taken for markup; words that turn the direction of writing; control characters.
MARKUP: Final = "<img/src=x/onerror=alert(1)>"
TURNED: Final = "\u202eabc\u05d0\u05d1\u202c"
HOSTILE_BODY: Final = {MARKUP: [MARKUP, TURNED, "\x00\x1b[31m\x7f\u2028"], "n": 2**63, "": {"__proto__": None}}
#: Ids with every character that they may have, and such as mean something elsewhere.
HOSTILE_IDS: Final = (
    string.ascii_letters + string.digits + "._:-", "x:deliverNow", ":", "-", "...", ".a", "constructor", "x" * 128
)  # fmt: skip
LARGE: Final = 1_000_000
PARKED: Final = 40
#: What is due at once: in which state it ends up, its topic, the ids.
DUE: Final = tuple(
    (state, topic, [f"{topic}-{number}" for number in range(count)])
    for state, topic, count in (
        *(("dead", topic, 20) for topic in REASONS),
        ("parked", "partners.orders", PARKED),
        ("retrying", "crm.contacts", 2),
        ("held", "sms.marketing", 50),
        ("inFlight", "slow.reports", 3),
        ("delivered", "orders.paid", 20),
    )
)
#: The topics that go to the endpoint, and how long it may take for an answer.
_HOOKS: Final = {"billing": 30_000, "partners": 30_000, "crm": 30_000, "slow": 900_000, "story": 30_000}


def now() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


class World:
    """The processes, and what they send to: an endpoint that answers each route as a test tells it to."""

    def __init__(self, folder: Path) -> None:
        self.valkey = EmbeddedServer(data_dir=folder / "valkey")
        self.endpoint = Receiver()
        self.endpoint.answer = self._answer
        self.answers: dict[str, Answer] = {}
        self._refusals = 0
        routes = [
            {
                "name": name,
                "match": f"{name}.*",
                "target": self.endpoint.url(path=f"/{name}"),
                "allow": [LOCALHOST],
                "sendTimeout": wait,
            }
            for name, wait in _HOOKS.items()
        ]
        routes.append({"name": "streams", "target": "redis+stream:"})
        self.service = Service(folder, self.valkey.url, routes=json.dumps(routes))
        self.service.api.settings.setdefault("redis_timeout", f"{REDIS_TIMEOUT}")

    @property
    def url(self) -> str:
        """Where the pages are: a place behind the # is put behind it."""
        return f"{self.service.url}/console/"

    def _answer(self, request: Request) -> Answer:
        name = request.path.strip("/")
        if name == "billing":
            self._refusals += 1
            return Answer(422, body=REASONS[request.headers["ce-type"]].format(self._refusals).encode())
        return self.answers.get(name, Answer())

    def stop_taking(self, route: str) -> None:
        """From now on the endpoint refuses to take anything of a route."""
        self.answers[route] = Answer(503, body=b"we are closed")

    def take_again(self, route: str) -> None:
        """The endpoint takes everything of a route."""
        del self.answers[route]

    def get(self, path: str, **query: Any) -> Any:
        """What the API answers."""
        answer = self.service.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def schedule(self, topic: str, count: int = 1, **fields: Any) -> list[str]:
        """So many messages, due in an hour unless told; their ids."""
        asked = [{"topic": topic, "delayTime": HOUR} | fields for _ in range(count)]
        results = self.service.http.post("/v1/messages:batch", json={"messages": asked}).json()["results"]
        assert {one["status"] for one in results} == {201}, results
        return [one["id"] for one in results]


class AnotherApi:
    """Another process of the API on the same Redis, with settings of its own; maybe one that takes keys."""

    def __init__(self, world: World, folder: Path, **settings: str) -> None:
        self.keys = KeyFile(folder / "keys.yaml")
        self.service = Service(folder, world.valkey.url, workers=0, routes=world.service.settings["routes"], **settings)
        self.settings = self.service.api.settings
        self.settings.setdefault("redis_timeout", f"{REDIS_TIMEOUT}")

    @property
    def url(self) -> str:
        """Where its pages are."""
        return f"{self.service.url}/console/"

    def __enter__(self) -> Self:
        if self.keys.keys:
            self.settings["api_keys"] = str(self.keys.path)
        self.service.api.start()
        eventually(self.service.ready, "the API is ready")
        return self

    def __exit__(self, *error: object) -> None:
        self.service.api.stop()
        self.service.http.close()


@contextmanager
def small_world(folder: Path) -> Iterator[World]:
    """One that runs, without any messages, for a test alone."""
    made = World(folder)
    with made.endpoint, made.valkey, made.service:
        try:
            yield made
        finally:
            made.endpoint.over.set()  # what hangs ends before the worker waits for it


@contextmanager
def whole_world(folder: Path) -> Iterator[World]:
    """One that runs, with messages in every state."""
    made = World(folder)
    with made.endpoint, made.valkey:
        for process in made.service.processes:
            process.start()
        with Client(made.valkey.url, settings=Settings(redis_timeout=REDIS_TIMEOUT)) as client:
            _schedule(client, _later(now()))
            _schedule(client, _hostile())
            with made.service:
                try:
                    _bring_into_states(made, client)
                    _take_census(made.valkey.url, client)
                    yield made
                finally:
                    made.endpoint.over.set()


def _schedule(client: Client, messages: Iterable[Message]) -> None:
    assert not [one for one in client.schedule_many(messages) if isinstance(one, Exception)]


def _later(begin: int) -> Iterator[Message]:
    """What is due later: orders of a day, a burst in an hour and a half, and a few of each of very many topics."""
    for number in range(ORDERS):
        yield Message(
            topic="orders.unpaid",
            id=f"unpaid-{number}" if number % 100 == 0 else None,
            body={"order": number, "customer": {"name": "Zoë", "card": "4111"}},
            expect_date=begin + HOUR + number * (DAY // ORDERS),
            tags=("web", "app", "shop")[number % 3],
            keys=(f"order-{number}",),
            properties={"region": ("eu", "us")[number % 2]},
            ordering_key=f"customer-{number % 500}" if number % 40 == 0 else "",
        )
    for number in range(BURST):
        yield Message(topic="reviews.ask", body=f"how was it, {number}?", expect_date=begin + HOUR * 3 // 2)
    for number in range(MESSAGES - ORDERS - BURST):
        topic = f"shop-{number % MANY_TOPICS:05}.restock"
        yield Message(topic=topic, body=b"\x00\x01\xff", expect_date=begin + DAY + number * 1_000)


def _hostile() -> Iterator[Message]:
    """What people who mean no good might schedule, due in a day."""
    fields: Any = {"topic": "hostile.all", "delay_time": DAY, "tags": MARKUP, "properties": {MARKUP: TURNED}}
    keys = (MARKUP, TURNED, '"><script>alert(1)</script>', "%2e%2e/%00?#&=")
    for id in HOSTILE_IDS:
        yield Message(id=id, body=HOSTILE_BODY, keys=keys, ordering_key="", **fields)
    yield Message(id="large-text", body="<b>" + "x" * LARGE, **fields)
    yield Message(id="large-json", body=[{"n": 2**63, "t": MARKUP}] * (LARGE // 60), **fields)
    yield Message(id="bytes", body=bytes(range(256)), **fields)


def _bring_into_states(made: World, client: Client) -> None:
    """What a worker makes of messages that are due: its endpoint refuses, is closed, hangs, or takes them."""

    def hang(_sock: socket) -> None:
        made.endpoint.over.wait()

    by = By(actor="ada", reason="a test of ours")
    made.stop_taking("partners")
    made.answers["crm"] = Answer(500, body=b"out of order")
    made.answers["slow"] = Answer(raw=hang)
    client.put_policy(Policy(name="crm", match="crm.*", backoff=(DAY,)), by=by)
    client.put_policy(Policy(name="mail", match="mail.*", rate=0.01, redact=("$.card",)), by=by)
    client.pause("sms.*", reason="the provider is down", by=by)
    client.pause("hostile.*", reason=MARKUP, by=By(actor=MARKUP, reason=MARKUP))
    _schedule(client, (Message(topic="mail.digest", delay_time=0) for _ in range(20)))  # one goes every 100 s
    fields: Any = {"body": {"card": "4111", "n": 2**63}, "tags": "paid", "keys": ("batch-7",), "delay_time": 0}
    for _, topic, ids in DUE:
        _schedule(client, (Message(topic=topic, id=id, **fields) for id in ids))
    client.cancel_many([f"unpaid-{number}" for number in range(100, 1_000, 100)], by=by)
    for state, topic, ids in DUE:
        eventually(partial(_are, client, ids, state), f"{topic} is {state}")


def _are(client: Client, ids: Sequence[str], state: str) -> bool:
    return all(one is not None and one.state == state for one in client.get_many(ids))


def _take_census(url: str, client: Client) -> None:
    """What the worker counts in a minute, counted at once."""
    connection: Any = redis.Redis.from_url(url, decode_responses=True)
    for queue in client.context().layouts.queues:
        keys, clock = KEYS.queue(queue), ManualClock()
        taker = CensusTaker(keys, connection.hget(keys.state, "epoch"), clock, Pace(clock, 1_000_000))
        clock.advance(1_000)
        while (command := taker.ask()) is not None:  # until it rests
            taker.take(client.store.run(cast("Command[Any]", command)))
            clock.advance(1_000)
    connection.close()
