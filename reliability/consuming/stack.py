"""The parts of a run: a Redis behind sentinels, a worker, two APIs, consumers, and a relay before each consumer of an API.

Consumers receive a topic with a stream, two topics that share a stream, and a topic with a stream for each queue. Each group also
has a topic of its own, to which it hands back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import redis

from delayq import http
from delayq.base.errors import DelayqError
from delayq.domain.policies import Policy
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.store.keys import KEYS, Layout, Layouts, read_layouts
from reliability.chaos.relays import Relays
from reliability.consuming.consumer import MIN_REPLICAS, ONE, QUEUES, REDIS_TIMEOUT, SHARED, own_topic
from reliability.waiting import GaveUp, join, wait_until
from tests.support.sentinels import SentinelsUnderTest, real_sentinels
from tests.support.service import ROOT, OneProcess

BEGIN: Final = 4  # queues, until a reshard
#: The group and the client of each consumer.
CONSUMERS: Final = (
    ("work", "http"), ("work", "redis"), ("work", "http"), ("audit", "redis"), ("audit", "http"),
    ("deleted", "redis"), ("deleted", "http"),
)  # fmt: skip
#: The groups that receive everything, and the group that is deleted while its consumers receive.
GROUPS: Final = ("work", "audit")
DELETED: Final = "deleted"
APIS: Final = 2
#: A message becomes a dead letter after few hand-backs, and never by leases that faults end. Streams are trimmed all the time.
POLICY: Final = Policy(
    name="consumed", match="chaos.*", max_hand_backs=3, max_deliveries=1_000, retention_age=5_000, retention_length=100
)
SHARED_STREAM: Final = "chaos.shared"
ROUTES: Final = [
    {"name": "shared", "match": "chaos.shared.*", "target": "redis+stream:", "stream": SHARED_STREAM},
    {"name": "queues", "match": QUEUES, "target": "redis+stream:", "perQueue": True},
    {"name": "streams", "match": "*", "target": "redis+stream:"},
]


class Stack:
    """Everything runs while `started` lasts; use it from one thread."""

    def __init__(self, folder: Path, sentinels: SentinelsUnderTest, seed: int) -> None:
        self.folder = folder
        self.sentinels = sentinels
        self._settings = {
            "redis_url": sentinels.url, "queues": str(BEGIN), "min_replicas": str(MIN_REPLICAS),
            "redis_timeout": str(REDIS_TIMEOUT), "retry_base": "100", "retry_cap": "500",
            "routes": json.dumps(ROUTES),
        }  # fmt: skip
        ports = [free_port() for _ in range(APIS)]
        self.relays = Relays({f"c{place}": ports[place % APIS] for place in range(len(CONSUMERS))} | {"p": ports[0]})
        self.worker = self._process("w0", ["workers"], node="w0")
        self.apis = [self._process(f"api{place}", ["api"], api_port=str(port)) for place, port in enumerate(ports)]
        self.consumers: list[OneProcess] = []
        #: The consumers of an API.
        self.by_http = [place for place, one in enumerate(CONSUMERS) if one[1] == "http"]
        for place, (group, kind) in enumerate(CONSUMERS):
            url = sentinels.url if kind == "redis" else f"http://{self.relays.address(f'c{place}')}"
            words = [kind, url, group, f"{seed} {place}", str(self.records(place))]
            self.consumers.append(self._process(f"c{place}", ["reliability.consuming.consumer", *words]))
        #: A client of the first API, through a relay.
        self.client = http.Client(f"http://{self.relays.address('p')}", timeout=4_000, give_up_after=8_000)
        self._url = f"http://{LOCALHOST}:{ports[0]}"

    def _process(self, name: str, module: list[str], **settings: str) -> OneProcess:
        command = [sys.executable, "-m", *module]
        return OneProcess(name, command, self._settings | settings, self.folder / f"{name}.log")

    def records(self, place: int) -> Path:
        """The records of a consumer."""
        return self.folder / f"c{place}.jsonl"

    @property
    def processes(self) -> list[OneProcess]:
        """The worker, the APIs and the consumers."""
        return [self.worker, *self.apis, *self.consumers]

    def start(self) -> None:
        """Start every process, and set the policy once the API answers."""
        self.relays.start()
        for one in (self.worker, *self.apis):
            one.start()
        with http.Client(self._url) as client:

            def is_set() -> bool:
                with suppress(DelayqError):
                    client.put_policy(POLICY)
                    return True
                return False

            wait_until(is_set, "the API has the policy")
        for one in self.consumers:
            one.start()

    # -- the state in Redis ----------------------------------------------------------------------------------------------

    def _admin(self) -> Any:
        return self.sentinels.primary.admin

    def _layouts(self) -> Layouts:
        return Layouts(read_layouts(self._admin().hget(KEYS.meta, "layouts").decode()))

    def _streams(self) -> list[tuple[str, tuple[str, ...]]]:
        """Each stream, with the groups that receive it."""
        own = [(own_topic(group), (group,)) for group in GROUPS]
        each = [KEYS.queue(number).stream(QUEUES) for layout in self._layouts().known for number in layout.numbers]
        return [*own, *((stream, GROUPS) for stream in (ONE, SHARED_STREAM, *each))]

    def left(self) -> str:
        """Describe the messages that were not delivered to the stream, or that a group has not settled; '' if there are none."""
        try:
            admin = self._admin()
            numbers = [number for layout in self._layouts().known for number in layout.numbers]
            due = sum(admin.zcard(KEYS.queue(number).queue) for number in numbers)
            found = [f"{due} are due"] if due else []
            for stream, names in self._streams():
                found += self._left_in(stream, names)
        except redis.exceptions.RedisError as error:
            return str(error)
        return ", ".join(found)

    def _left_in(self, stream: str, names: tuple[str, ...]) -> Iterator[str]:
        admin = self._admin()
        if not admin.exists(stream):
            return
        last = admin.xinfo_stream(stream)["last-generated-id"]
        groups = {one["name"].decode(): one for one in admin.xinfo_groups(stream)}
        for name in names:
            one = groups.get(name, {"pending": 0, "last-delivered-id": "nothing"})
            if one["pending"] or one["last-delivered-id"] != last:
                yield f"{name} has {one['pending']} pending in {stream}, and has read {one['last-delivered-id']} of {last}"

    def unrecorded(self) -> list[str]:
        """The groups of streams that no record names: they would hold a trim back without being listed."""
        listed = {(one.topic, one.group) for one in self.client.consumers()}
        admin, found = self._admin(), []
        topics = {SHARED_STREAM: SHARED} | {own_topic(group): (own_topic(group),) for group in (*GROUPS, DELETED)}
        for stream, _ in (*self._streams(), (own_topic(DELETED), ())):
            names = topics.get(stream, (ONE,) if stream == ONE else (QUEUES,))
            for one in admin.xinfo_groups(stream) if admin.exists(stream) else ():
                if not any((topic, one["name"].decode()) in listed for topic in names):
                    found.append(f"{one['name'].decode()} of {stream} has no record")
        return found

    # -- changes that operators make --------------------------------------------------------------------------------------

    def delete_group(self) -> None:
        """Delete the group that may be deleted, by both APIs at once. A call that fails is not repeated."""
        calls = [
            threading.Thread(target=self._delete_group, args=(one.settings["api_port"], topic))
            for topic in (ONE, QUEUES, *SHARED)
            for one in self.apis
        ]
        for call in calls:
            call.start()
        join(calls)

    def _delete_group(self, port: str, topic: str) -> None:
        with suppress(DelayqError), http.Client(f"http://{LOCALHOST}:{port}", give_up_after=4_000) as client:
            client.delete_group(topic, DELETED)

    def reshard(self, queues: int) -> None:
        """Change the number of queues by the command, again until it is done."""

        def is_done() -> bool:
            with suppress(redis.exceptions.RedisError):
                if self._layouts().known[-1].queues == queues and not self._has_open(self._layouts().known[:-1]):
                    return True
            command = [sys.executable, "-m", "delayq.cli", "reshard", "--queues", str(queues)]
            settings = {f"DELAYQ_{name.upper()}": value for name, value in self._settings.items() if name != "queues"}
            ran = subprocess.run(
                command, cwd=ROOT, env=os.environ | settings, capture_output=True, check=False, text=True
            )
            with (self.folder / "reshard.log").open("a") as log:
                log.write(ran.stdout + ran.stderr)
            return ran.returncode == 0

        wait_until(is_done, f"there are {queues} queues")

    def _has_open(self, older: Sequence[Layout]) -> bool:
        admin = self._admin()
        return not all(admin.hexists(KEYS.queue(number).state, "closed") for one in older for number in one.numbers)

    def dead(self) -> frozenset[str]:
        """The ids of all dead letters."""
        admin = self._admin()
        numbers = [number for layout in self._layouts().known for number in layout.numbers]
        return frozenset(id.decode() for number in numbers for id in admin.zrange(KEYS.queue(number).dead, 0, -1))

    def stop(self) -> list[str]:
        """Stop every process in order; the names of those that did not end as they should."""
        for one in reversed(self.processes):
            one.signal(signal.SIGTERM)
        with suppress(GaveUp):  # a process that does not end is reported
            wait_until(lambda: not any(one.alive for one in self.processes), "all processes end")
        return [f"{one.name} ended with {one.returncode}" for one in self.processes if one.returncode != 0]


@contextmanager
def started(folder: Path, seed: int) -> Iterator[Stack]:
    """A stack that runs."""
    with ExitStack() as stack:
        sentinels = stack.enter_context(real_sentinels())
        made = Stack(folder, sentinels, seed)
        stack.callback(made.relays.stop)
        stack.callback(made.client.close)
        for one in made.processes:
            stack.callback(one.kill)
        made.start()
        yield made
