"""A topic of which only so many messages are sent at a time, while one worker is killed and another stands still."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from delayq import Client, Message
from testbed.zookeeper import ZooKeeperServer
from tests.faults.house import house
from tests.support.receiver import Answer, Receiver, Request
from tests.support.service import Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

MOST, COUNT, LATENCY = 6, 600, 0.1
TOPIC: Final = "hook.t"
#: Seconds of a send at most, and after which a slot of a worker that says nothing more is free again.
SEND, LIFE = 4, 6.5


class Target:
    """Takes its time for each message; those of some queues it answers only when it is told to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.word = threading.Event()
        self.queues: dict[str, int] = {}  # of each message
        self.waiting = Counter[int]()  # for the word, by queue
        self.now = self.most = self.answered = 0
        self.arrived = Counter[str]()
        self.wait_for: frozenset[int] = frozenset()

    def __call__(self, request: Request) -> Answer:
        id = request.headers["ce-id"]
        waits = (queue := self.queues[id]) in self.wait_for
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.arrived[id] += 1
            self.waiting[queue] += waits
        if waits:
            self.word.wait(SEND - 1)
        time.sleep(LATENCY)
        with self.lock:
            self.now -= 1
            self.answered += 1
            self.waiting[queue] -= waits
        return Answer()


def more_sends_of_the_first(service: Service) -> None:
    """The others have one at a time, and slots for two: all that they have begun to send can be seen."""
    service.workers[0].settings["forwarders"] = str(MOST)


def test_i8_slots_of_a_worker_that_is_killed_and_of_one_that_stands_still_are_kept_and_come_back(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    target = Target()
    with Receiver() as receiver:
        receiver.answer = target
        routes = json.dumps([{"name": "hook", "match": "hook.*", "target": receiver.url()}])
        options: dict[str, Any] = {
            "zookeeper": zookeeper.hosts,
            "zookeeper_root": "/faults-slots",
            "session_timeout": "2s",
        }
        options |= {"send_timeout": f"{SEND}s", "forwarders": "1", "egress_allow": "127.0.0.0/8", "routes": routes}
        with house(tmp_path, more_sends_of_the_first, workers=3, **options) as home:
            policy = {"match": TOPIC, "maxInFlight": MOST}
            assert home.http.put("/v1/policies/few", json=policy, timeout=30).status_code == 200
            goes_on, killed, stands = home.service.workers
            owners = home.service.owners()
            due = int(time.time() * 1_000) + 2_000
            with Client(home.server.url) as client:
                messages = [Message(id=f"few-{n}", topic=TOPIC, expect_date=due) for n in range(COUNT)]
                target.queues = {one.id: one.queue for one in client.schedule_many(messages)}  # type: ignore[union-attr]

            def waiting() -> Counter[str | None]:
                found = Counter[str | None]()
                for queue, count in list(target.waiting.items()):
                    found[owners[queue]] += count
                return found

            eventually(lambda: target.answered > COUNT // 10, "it has begun")
            target.wait_for = frozenset(queue for queue, owner in owners.items() if owner != goes_on.name)
            both = {killed.name: 1, stands.name: 1}
            eventually(lambda: +waiting() == both, "what two workers have begun to send has arrived")
            killed.kill()
            stands.signal(signal.SIGSTOP)
            target.wait_for = frozenset()
            before = target.answered
            eventually(lambda: set(home.service.owners().values()) == {goes_on.name}, "one owns all queues")
            eventually(lambda: target.answered >= before + 2 * MOST, "it goes on")
            # Slots for what waits for a thread of the other two are not used: the target need not have seen all at once.
            assert 2 < target.most <= MOST, "the slots of the others are taken as long as the target may be at it"
            target.word.set()
            eventually(lambda: not +waiting(), "what was in hand has ended")
            target.most = 0
            eventually(lambda: target.most == MOST, "one worker has all slots")
            stands.signal(signal.SIGCONT)
            killed.start()
            eventually(home.service.owned, "every worker owns queues")
            home.wait_until_done()
    assert target.most == MOST, "nobody sends by slots that were another's meanwhile"
    assert target.arrived.keys() == target.queues.keys()
