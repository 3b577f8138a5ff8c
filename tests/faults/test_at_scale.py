"""Rows that take a machine for minutes, or an hour of its patience: before a release."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from delayq import Client, Message, Scheduled
from tests.faults.flow import patiently
from tests.faults.house import House
from tests.faults.limits import keep_to
from tests.support.receiver import Answer, Request
from tests.support.timeouts import SEND_TIMEOUT
from tests.support.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.xdist_group("house")]


def test_d9_two_busy_loops_beside_the_workers_cost_no_session(house: House) -> None:
    """D9 (CPU starvation (2 busy loops, nice)): Sessions are kept, no queue changes hands; messages are late at most."""
    busy: list[subprocess.Popen[bytes]] = []
    before = house.service.epochs()
    with house.load("d9") as load:
        try:
            for _ in range(2):
                busy.append(subprocess.Popen(["nice", sys.executable, "-c", "while True: pass"]))
            load.wait_for(2_000)
        finally:
            for one in busy:
                one.kill()
                one.wait()
    house.expect(load)
    assert house.service.epochs() == before
    assert not any('"lost"' in house.said(worker) for worker in house.workers)


@pytest.mark.timeout(1_500)
def test_i6_a_million_due_in_one_ms_go_by_a_limit(house: House) -> None:
    keep_to(house, 5_000, 1_000_000)


#: More messages than go out, four at a time, until the slots of workers that are gone are free: `sendTimeout` + 2.5 s.
MOST, COUNT, LATENCY = 6, 1_200, 0.3


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
            self.word.wait(SEND_TIMEOUT / 1_000 - 2)
        time.sleep(LATENCY)
        with self.lock:
            self.now -= 1
            self.answered += 1
            self.waiting[queue] -= waits
        return Answer()


def test_i8_slots_of_a_worker_that_is_killed_and_of_one_that_stands_still_are_kept_and_come_back(house: House) -> None:
    """I8 (kill -9 and SIGSTOP of workers with slots of `maxInFlight`): The target never has more sends at a time.

    Slots are free after `sendTimeout` + 2.5 s.

    I8: Begun sends count until they can have ended, by the target's own count, also when the stopped worker
    continues. All messages arrive.

    Two workers have one send at a time, and slots for two: all that they have begun to send can be seen.
    """
    target, topic = Target(), "hook.t"
    goes_on, killed, stands = house.workers
    goes_on.stop()
    goes_on.settings["senders"] = str(MOST)
    goes_on.start()
    patiently(house.evenly_owned, "every worker owns its share of the queues")
    house.receiver.answer = target
    house.http.put("/v1/policies/few", json={"match": topic, "maxInFlight": MOST}).raise_for_status()
    owners, due = house.service.owners(), int(time.time() * 1_000) + 2_000
    with Client(house.server.url) as client:
        messages = [Message(id=f"few-{n}", topic=topic, expect_date=due) for n in range(COUNT)]
        target.queues = {one.id: one.queue for one in client.schedule_many(messages) if isinstance(one, Scheduled)}

    def waiting() -> Counter[str | None]:
        found = Counter[str | None]()
        for queue, count in list(target.waiting.items()):
            found[owners[queue]] += count
        return found

    eventually(lambda: target.answered > COUNT // 20, "it has begun")
    target.wait_for = frozenset(queue for queue, owner in owners.items() if owner != goes_on.name)
    both = {killed.name: 1, stands.name: 1}
    eventually(lambda: +waiting() == both, "what two workers have begun to send has arrived")
    stands.signal(signal.SIGSTOP)
    house.kill(killed)
    house.end_session(house.session_of(stands))
    target.wait_for = frozenset()
    before = target.answered
    patiently(lambda: set(house.service.owners().values()) == {goes_on.name}, "one owns all queues")
    eventually(lambda: target.answered >= before + 2 * MOST, "it goes on")
    # Slots for what waits for a thread of the other two are not used: the target need not have seen all at once.
    assert 2 < target.most <= MOST, "the slots of the others are taken as long as the target may be at it"
    target.word.set()
    eventually(lambda: not +waiting(), "what was in hand has ended")
    target.most = 0
    eventually(lambda: target.most == MOST, "one worker has all slots")
    stands.signal(signal.SIGCONT)
    killed.start()
    patiently(house.service.owned, "every worker owns queues")
    house.wait_until_done()
    assert target.most == MOST, "nobody sends by slots that were another's meanwhile"
    assert target.arrived.keys() == target.queues.keys()
    assert house.http.delete("/v1/policies/few").status_code == 200
    goes_on.stop()
    goes_on.settings["senders"] = "1"
