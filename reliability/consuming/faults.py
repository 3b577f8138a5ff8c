"""The faults of a run: each is injected, lasts for a moment and is healed before the next one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import Final

from reliability.consuming.stack import Stack
from testbed.process import stand_still
from tests.support.service import OneProcess

__all__ = ["KINDS", "Injector"]

#: How often each kind is drawn. 'refuse' lets no connections of a consumer to its API through, 'hole' swallows requests and
#: replies, 'mute' only the replies, and 'reset' breaks connections once.
KINDS: Final = {
    "kill-consumer": 4,
    "kill-api": 3,
    "fail-over": 2,
    "pause-redis": 1,
    "refuse-link": 1,
    "hole-link": 1,
    "mute-link": 2,
    "reset-link": 1,
}
LONGEST: Final = 2.0  # s, a moment longer than a lease at times


class Injector:
    """Injects faults into a stack; from the main thread, because it starts processes."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._dice = random.Random(f"faults {seed}")
        self.injected = Counter[str]()
        self.died: list[str] = []

    def inject(self, kind: str = "") -> None:
        """Inject a fault of this kind, or of one that is drawn, and heal it."""
        kind = kind or self._dice.choices(list(KINDS), list(KINDS.values()))[0]
        lasts = LONGEST * self._dice.random() ** 2
        how, _, victims = kind.partition("-")
        if kind == "fail-over":
            self._fail_over()
        elif kind == "pause-redis":
            self._pause_redis(lasts)
        elif victims == "link":
            link = self._dice.choice([f"c{place}" for place in self._stack.by_http] + ["p"])
            self._stack.relays.tell(how, [link])
            time.sleep(lasts)
            self._stack.relays.tell("pass", [link])
        else:
            self._kill(self._dice.choice(self._stack.consumers if victims == "consumer" else self._stack.apis), lasts)
        self.injected[kind] += 1
        self._look_after()
        time.sleep(self._dice.random())

    def _kill(self, one: OneProcess, lasts: float) -> None:
        self._look_after()
        one.kill()
        time.sleep(lasts)
        one.start()

    def _fail_over(self) -> None:
        """Kill the primary; a replica takes its place, and the old primary comes back as a replica."""
        sentinels = self._stack.sentinels
        sentinels.primary.server.kill()
        sentinels.fail_over()
        sentinels.heal()

    def _pause_redis(self, lasts: float) -> None:
        pid = self._stack.sentinels.primary.server.pid
        assert pid is not None
        stand_still(pid)
        time.sleep(lasts)
        os.kill(pid, signal.SIGCONT)

    def _look_after(self) -> None:
        """A process that ended by itself is a finding, and is started again."""
        for one in self._stack.processes:
            if not one.alive:
                self.died.append(f"{one.name} ended by itself with {one.returncode}")
                one.start()
