"""The parts of a run: a Redis behind sentinels, a worker, two APIs, consumers, and a relay before each consumer of an API."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import redis

from delayq import http
from delayq.embedded.processes import LOCALHOST, free_port
from delayq.errors import DelayqError
from delayq.policies import Policy
from delayq.store.keys import queue_keys
from reliability.chaos.relays import Relays
from reliability.consuming.consumer import MIN_REPLICAS, REDIS_TIMEOUT, TOPIC
from reliability.waiting import GaveUp, wait_until
from tests.support.sentinels import SentinelsUnderTest, real_sentinels
from tests.support.service import OneProcess

__all__ = ["CONSUMERS", "GROUPS", "Stack", "started"]

QUEUES: Final = 4
#: The group and the client of each consumer.
CONSUMERS: Final = (("work", "http"), ("work", "redis"), ("work", "http"), ("audit", "redis"), ("audit", "http"))
GROUPS: Final = ("work", "audit")
APIS: Final = 2
#: A message becomes a dead letter after few hand-backs, and never by leases that faults end.
POLICY: Final = Policy(name="consumed", match="chaos.*", max_hand_backs=3, max_deliveries=1_000)


class Stack:
    """Everything runs while `started` lasts; use it from one thread."""

    def __init__(self, folder: Path, sentinels: SentinelsUnderTest, seed: int) -> None:
        self.folder = folder
        self.sentinels = sentinels
        self._settings = {
            "redis_url": sentinels.url, "queues": str(QUEUES), "min_replicas": str(MIN_REPLICAS),
            "redis_timeout": str(REDIS_TIMEOUT), "retry_base": "100", "retry_cap": "500",
            "routes": json.dumps([{"name": "streams", "match": "*", "target": "redis+stream:"}]),
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

    def left(self) -> str:
        """Describe the messages that were not delivered to the stream, or that a group has not settled; '' if there are none."""
        try:
            admin = self._admin()
            due = sum(admin.zcard(queue_keys(number).queue) for number in range(QUEUES))
            last = admin.xinfo_stream(TOPIC)["last-generated-id"]
            groups = {one["name"].decode(): one for one in admin.xinfo_groups(TOPIC)}
        except (redis.exceptions.RedisError, KeyError) as error:
            return str(error)
        found = [f"{due} are due"] if due else []
        for name in GROUPS:
            one = groups.get(name, {"pending": 0, "last-delivered-id": "nothing"})
            if one["pending"] or one["last-delivered-id"] != last:
                found.append(
                    f"group {name} has {one['pending']} pending, and has read {one['last-delivered-id']} of {last}"
                )
        return ", ".join(found)

    def dead(self) -> frozenset[str]:
        """The ids of all dead letters."""
        admin = self._admin()
        return frozenset(id.decode() for number in range(QUEUES) for id in admin.zrange(queue_keys(number).dead, 0, -1))

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
