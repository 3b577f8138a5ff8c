"""Queues are resharded while everything runs: nothing is lost, early, doubled, or sent after a certain cancel."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from delayq.client.client import Client
from delayq.client.operations import Cancelled, Scheduled
from delayq.config import load_settings
from delayq.embedded import EmbeddedServer
from delayq.embedded.processes import die_with_parent
from delayq.errors import DelayqError
from delayq.message import Message
from delayq.store.keys import META
from testbed.zookeeper import ZooKeeperServer
from tests.support.clusters import ClusterUnderTest
from tests.support.service import ROOT, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

TOPIC = "demo"
LONGEST = 4_000  # ms ahead of now that messages are due
WINDOW = "25s"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELAYQ_")]:
        monkeypatch.delenv(name)


class Ledger:
    """What was promised to callers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queues: dict[str, int] = {}  # of what was accepted
        self.cancelled: set[str] = set()  # for certain
        self.maybe: set[str] = set()  # cancelled while it may have been on its way
        self.keys: dict[str, str] = {}  # ordering key of an id
        self.wrong: list[str] = []

    def accepted(self, id: str, queue: int, key: str = "") -> None:
        with self.lock:
            if self.queues.setdefault(id, queue) != queue:
                self.wrong.append(f"{id} is in {self.queues[id]} and in {queue}")
            self.keys[id] = key

    def ended(self, id: str, result: str) -> None:
        with self.lock:
            if result == "cancelled":
                self.cancelled.add(id)
            elif result == "in_flight":
                self.maybe.add(id)
            elif result == "not_found":
                self.wrong.append(f"{id} was accepted, and a cancel does not find it")


class Load:
    """Producers, each in a thread of its own, until `stop`; what goes wrong in one is raised there."""

    def __init__(self, service: Service, old: Client) -> None:
        self.ledger = Ledger()
        self._service = service
        self._old = old
        self._stopping = threading.Event()
        self._errors: list[BaseException] = []
        work = (self._singles, self._batches, self._bulk)
        self._threads = [threading.Thread(target=self._guard, args=(one,), daemon=True) for one in work]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)
        assert not self._errors, self._errors

    def _guard(self, work: Callable[[random.Random, int], None]) -> None:
        chance, turn = random.Random(work.__name__), 0
        try:
            while not self._stopping.is_set():
                work(chance, turn)
                turn += 1
                self._stopping.wait(0.02)
        except BaseException as error:
            self._errors.append(error)

    def _singles(self, chance: random.Random, turn: int) -> None:
        """Over HTTP: schedule, perhaps the same again, perhaps cancel, perhaps move."""
        id = f"one-{turn}"
        fields = {"body": {"n": turn}, "delayTime": chance.randrange(LONGEST), "id": id, "keys": ["all"]}
        for _ in range(chance.choice((1, 1, 2, 3))):
            answer = self._service.schedule(TOPIC, **fields)
            assert answer.status_code in (200, 201), answer.text
            self.ledger.accepted(id, answer.json()["queue"])
        http = self._service.http
        if turn % 3 == 0:
            answer = http.delete(f"/v1/messages/{id}")
            self.ledger.ended(id, answer.json().get("result") or answer.json().get("state") or "not_found")
        elif turn % 5 == 0:
            answer = http.patch(f"/v1/messages/{id}", json={"delayTime": chance.randrange(LONGEST)})
            assert answer.status_code in (200, 409), answer.text
            looked = http.get(f"/v1/messages/{id}")
            assert (looked.status_code, looked.json()["queue"]) == (200, self.ledger.queues[id])

    def _batches(self, chance: random.Random, turn: int) -> None:
        """Over HTTP: twenty at once, most with ordering keys, and the whole batch again."""
        batch = [
            {
                "topic": TOPIC,
                "body": str(n),
                "delayTime": chance.randrange(LONGEST),
                "id": f"batch-{turn}-{n}",
                "orderingKey": f"key-{n % 7}",
            }
            for n in range(20)
        ]
        for _ in range(1 + turn % 2):
            answer = self._service.http.post("/v1/messages:batch", json={"messages": batch})
            for n, one in enumerate(answer.json()["results"]):
                assert one["status"] in (200, 201), one
                self.ledger.accepted(one["id"], one["queue"], f"key-{n % 7}")

    def _bulk(self, chance: random.Random, turn: int) -> None:
        """By a client that was made before the reshard: ids made there, and some cancelled."""
        messages = [Message(topic=TOPIC, body="x", delay_time=chance.randrange(LONGEST)) for _ in range(50)]
        ids = []
        for one in self._old.schedule_many(messages):
            assert isinstance(one, Scheduled), one
            assert one.created
            self.ledger.accepted(one.id, one.queue)
            ids.append(one.id)
        for done in self._old.cancel_many(ids[::5]):
            assert isinstance(done, Cancelled), done
            self.ledger.ended(done.id, done.result)


def reshard(url: str, queues: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "delayq.cli", "reshard", "--queues", str(queues), "--redis-url", url]
    return subprocess.Popen(
        die_with_parent(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )


def entries_of(streams: Any, names: list[str]) -> list[dict[str, Any]]:
    """Every entry of these streams, in order of arrival within each."""
    found = []
    for name in names:
        for entry, fields in streams.xrange(name):
            texts = {key.decode(): value.decode() for key, value in fields.items()}
            found.append({**texts, "at": int(entry.split(b"-")[0])})
    return found


def check(ledger: Ledger, entries: list[dict[str, Any]]) -> None:
    """Every promise was kept."""
    assert not ledger.wrong, ledger.wrong[:5]
    times = Counter(one["id"] for one in entries)
    wanted = ledger.queues.keys() - ledger.cancelled - ledger.maybe
    assert wanted - times.keys() == set(), "lost"
    assert [id for id, count in times.items() if count > 1] == [], "doubled"
    assert ledger.cancelled & times.keys() == set(), "sent after a certain cancel"
    assert [one for one in entries if one["at"] < int(one["due"])] == [], "early"
    # Within one key and one layout nothing overtakes.
    lanes: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for one in entries:
        if key := ledger.keys.get(one["id"]):
            lanes[key, ledger.queues[one["id"]]].append((int(one["due"]), one["id"]))
    assert len(lanes) > 7
    assert all(lane == sorted(lane) for lane in lanes.values())


@pytest.fixture
def service(
    own_valkey: EmbeddedServer, zookeeper: ZooKeeperServer, zookeeper_root: str, tmp_path: Path
) -> Iterator[Service]:
    with Service(
        tmp_path,
        own_valkey.url,
        workers=2,
        zookeeper=zookeeper.hosts,
        zookeeper_root=zookeeper_root,
        final_window=WINDOW,
    ) as running:
        yield running


def test_twice_under_load_and_killed_in_the_middle_nothing_is_lost_early_or_doubled(
    service: Service, own_valkey: EmbeddedServer
) -> None:
    url = own_valkey.url
    streams: Any = redis.Redis.from_url(url, protocol=2)

    def listed() -> str:
        return str(streams.hget(META, "layouts").decode())

    with Client(settings=load_settings(redis_url=url, final_window=WINDOW)) as old, Load(service, old) as load:
        eventually(lambda: len(load.ledger.queues) > 300, "messages are scheduled")
        first = reshard(url, 64)
        eventually(lambda: listed() == "16 64@16", "the new layout is listed")
        first.kill()
        first.communicate(timeout=10)
        time.sleep(0.5)  # a while in which it is half done
        again = reshard(url, 64)
        said = again.communicate(timeout=60)[0].decode()
        assert again.returncode == 0, said
        assert "close" in said
        before = len(load.ledger.queues)
        eventually(lambda: len(load.ledger.queues) > before + 300, "messages are scheduled in the new queues")
        third = reshard(url, 8)  # fewer, while the first reshard is not over yet
        said = third.communicate(timeout=60)[0].decode()
        assert third.returncode == 0, said
        before = len(load.ledger.queues)
        eventually(lambda: len(load.ledger.queues) > before + 300, "messages are scheduled in the last queues")
    ledger = load.ledger
    wanted = ledger.queues.keys() - ledger.cancelled - ledger.maybe
    eventually(lambda: int(streams.xlen(TOPIC)) >= len(wanted), "everything was forwarded", 40)
    check(ledger, entries_of(streams, [TOPIC]))
    queues = set(ledger.queues.values())
    assert queues & set(range(16))
    assert queues & set(range(16, 80))
    assert queues & set(range(80, 88))
    assert all(owner in ("w0", "w1") for owner in service.owners().values())
    eventually(lambda: listed() == "8@80", "the old layouts are dropped", 60)
    eventually(lambda: set(service.owners()) == set(range(80, 88)) and service.owned(), "the nodes own what is left")
    check(ledger, entries_of(streams, [TOPIC]))
    assert service.schedule(TOPIC, body="last", delayTime=0, id="last").status_code == 201
    streams.close()


def test_in_a_redis_cluster(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    routes = '[{"name": "streams", "match": "*", "target": "redis+stream:", "perQueue": true}]'
    with Service(tmp_path, cluster.url, workers=1, routes=routes) as service:
        settings = load_settings(redis_url=cluster.url, routes=routes)
        with Client(settings=settings) as old, Load(service, old) as load:
            eventually(lambda: len(load.ledger.queues) > 300, "messages are scheduled")
            ran = reshard(cluster.url, 24)
            said = ran.communicate(timeout=60)[0].decode()
            assert ran.returncode == 0, said
            before = len(load.ledger.queues)
            eventually(lambda: len(load.ledger.queues) > before + 300, "messages are scheduled in the new queues")
        names = [f"delayq:{{{queue}}}:stream:{TOPIC}" for queue in range(40)]
        ledger = load.ledger
        wanted = ledger.queues.keys() - ledger.cancelled - ledger.maybe
        eventually(
            lambda: sum(int(cluster.admin.xlen(name)) for name in names) >= len(wanted), "everything was forwarded", 40
        )
        entries = entries_of(cluster.admin, names)
        check(ledger, entries)
        assert {queue < 16 for queue in ledger.queues.values()} == {True, False}


def test_an_api_that_was_away_during_the_reshard_and_the_drop_comes_back(
    own_valkey: EmbeddedServer, tmp_path: Path
) -> None:
    """Its list is as old as can be: the layout that it knows is gone."""
    with Service(tmp_path, own_valkey.url, workers=1, final_window="1s") as service:
        assert service.schedule(TOPIC, body="x", delayTime=0, id="before").status_code == 201
        service.api.signal(signal.SIGSTOP)
        ran = reshard(own_valkey.url, 32)
        assert ran.communicate(timeout=60)[0]
        streams: Any = redis.Redis.from_url(own_valkey.url, protocol=2)
        eventually(lambda: streams.hget(META, "layouts") == b"32@16", "the old layout is dropped", 60)
        with Client(own_valkey.url) as young:
            hidden = young.schedule(Message(topic=TOPIC, body="x", delay_time=60_000, id="hidden", keys=("k",)))
        service.api.signal(signal.SIGCONT)
        try:
            found = service.http.get("/v1/messages/hidden")
            assert (found.status_code, found.json()["queue"]) == (200, hidden.queue)
            assert service.schedule(TOPIC, body="x", delayTime=0, id="after").json()["queue"] >= 16
            assert len(service.http.get("/v1/messages?key=k").json()["messages"]) == 1
            assert service.http.delete("/v1/messages/hidden").json()["result"] == "cancelled"
            assert service.ready()
        except (httpx2.HTTPError, DelayqError) as error:
            raise AssertionError(service.api.said()) from error
        streams.close()
