"""Carries out the faults of a run, and heals them when their time is over. In the main thread: it starts processes."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence

from delayq.embedded import EmbeddedServer
from reliability.chaos.faults import KINDS, Fault
from reliability.chaos.history import History
from reliability.chaos.stack import Stack
from testbed.process import stand_still
from tests.support.service import OneProcess

#: Ends a fault; False if it has to be tried again a little later.
Heal = Callable[[], bool | None]
STEP = 0.2
STOP_SECONDS = 30.0  # a worker that gets SIGTERM finishes its sends; after this time it is killed


class Injector:
    """`run` returns when all faults were injected and the time is over; `heal` ends what still lasts."""

    def __init__(self, stack: Stack, history: History) -> None:
        self._stack = stack
        self._history = history
        self._turns = itertools.count()
        self._heals: list[tuple[float, int, str, str, Heal]] = []
        self._busy: set[str] = set()
        self.injected = 0
        self.skipped = 0
        self.died: list[str] = []

    def run(self, faults: Sequence[Fault], seconds: float, go_on: Callable[[], bool]) -> None:
        """Inject each at its time, from now on."""
        began = time.monotonic()
        left = list(faults)
        passed = 0.0
        # If this process was stopped until the time was over, the faults due before are still injected.
        while (left or passed < seconds) and go_on():
            passed = time.monotonic() - began
            while self._heals and self._heals[0][0] <= time.monotonic():
                self._heal_next()
            self._look_after()
            if left and left[0].at <= passed:
                self._inject(left.pop(0))
                continue
            until = [began + (left[0].at if left else seconds), *(heal[0] for heal in self._heals[:1])]
            time.sleep(min(STEP, max(0, min(until) - time.monotonic())))

    def heal(self) -> None:
        """End every fault."""
        while self._heals:
            self._heal_next()
            time.sleep(0.01)
        self._stack.relays.heal()
        if self._stack.zookeeper is not None:
            self._stack.zookeeper.start()
        self._look_after()

    def _look_after(self) -> None:
        """A process that ended by itself is a finding, and is started again."""
        for one in self._stack.processes:
            if one.returncode is not None and one.name not in self._busy:
                self.died.append(f"{one.name} ended by itself with {one.returncode}")
                one.start()

    def _heal_next(self) -> None:
        _, _, kind, victim, heal = heapq.heappop(self._heals)
        if heal() is False:
            heapq.heappush(self._heals, (time.monotonic() + STEP, next(self._turns), kind, victim, heal))
            return
        self._busy.discard(victim)
        self._history.fault(kind, victim, done="healed")

    def _inject(self, fault: Fault) -> None:
        """Into this victim, or, if something is wrong with it already, into the next one; none: not at all."""
        kind = KINDS[fault.kind]
        count = self._stack.counts()[kind.victims]
        places = range(count) if fault.victim < 0 else [(fault.victim + step) % count for step in range(count)]
        hit = 0
        for place in places:
            victim = self._victim(fault.kind, kind.victims, place)
            if victim in self._busy:
                continue
            self._one(fault, kind.victims, place, victim)
            hit += 1
            if fault.victim >= 0:
                break
        self.injected += bool(hit)
        self.skipped += not hit
        if not hit:
            self._history.fault(fault.kind, "", done=False)

    @staticmethod
    def _victim(kind: str, victims: str, place: int) -> str:
        """The parts that must not be broken twice at a time."""
        if "-" in victims:
            return f"{victims}-{place}"
        return {"workers": f"w{place}", "apis": f"api{place}"}.get(victims, f"{victims}{place}")

    def _one(self, fault: Fault, victims: str, place: int, victim: str) -> None:
        self._history.fault(fault.kind, victim, seconds=fault.seconds, done=True)
        heal = self._break(fault.kind.partition("-")[0], victims, place)
        if heal is not None:
            self._busy.add(victim)
            heapq.heappush(self._heals, (time.monotonic() + fault.seconds, next(self._turns), fault.kind, victim, heal))

    def _break(self, how: str, victims: str, place: int) -> Heal | None:
        """Break it; how to heal it."""
        stack = self._stack
        if "-" in victims:
            roads = stack.roads(victims, place)
            stack.relays.tell(how, roads)
            return None if how == "reset" else lambda: stack.relays.tell("pass", roads)
        if victims == "zookeepers":
            return self._zookeeper(how, place)
        if victims in ("redis", "target"):
            return _server(how, stack.redis if victims == "redis" else stack.target)
        return self._process(how, (stack.workers if victims == "workers" else stack.apis)[place])

    def _zookeeper(self, how: str, place: int) -> Heal:
        ensemble = self._stack.zookeeper
        assert ensemble is not None
        if how == "pause":
            ensemble.pause(place)
            return lambda: ensemble.resume(place)
        ensemble.kill(place)
        return lambda: ensemble.start(place, wait=False)  # without a quorum it would wait for what is healed later

    def _process(self, how: str, process: OneProcess) -> Heal:
        if how == "pause":
            process.signal(signal.SIGSTOP)
            return lambda: process.signal(signal.SIGCONT)
        process.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS

        def start() -> bool:
            if process.alive and time.monotonic() < deadline:
                return False  # it lets its sends finish
            self._ended(process)
            process.kill()
            process.start()
            return True

        return start

    def _ended(self, process: OneProcess) -> None:
        """A status above 0 is a process's own, whatever signals it got."""
        if process.returncode is not None and process.returncode > 0:
            self.died.append(f"{process.name} ended with {process.returncode}")


def _server(how: str, server: EmbeddedServer) -> Heal:
    if how == "pause":
        pid = server.pid
        assert pid is not None
        stand_still(pid)
        return lambda: os.kill(pid, signal.SIGCONT)
    server.kill()
    return server.start
