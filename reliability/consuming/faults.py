"""The faults of a run: each is injected, lasts for a moment and is healed before the next one."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from typing import Final

from reliability.consuming.stack import Stack
from reliability.waiting import join
from testbed.process import stand_still
from tests.support.service import OneProcess

#: How often each kind is drawn. 'kill' is SIGKILL and 'stop' SIGTERM; 'freeze' stops a process for a moment. 'refuse' lets no
#: connections of a consumer to its API through, 'hole' swallows requests and replies, 'mute' only the replies, and 'reset'
#: breaks connections once. Two callers delete a group at once, while its consumers receive.
KINDS: Final = {
    "kill-consumer": 4,
    "stop-consumer": 1,
    "freeze-consumer": 2,
    "kill-api": 3,
    "stop-api": 1,
    "freeze-api": 1,
    "delete-group": 2,
    "fail-over": 2,
    "pause-redis": 1,
    "refuse-link": 1,
    "hole-link": 1,
    "mute-link": 2,
    "reset-link": 1,
}
#: The number of queues after each reshard. The reshards divide a run into equal parts.
RESHARDS: Final = (6, 3)
LONGEST: Final = 2.0  # s, a moment longer than a lease at times


class Injector:
    """Injects faults into a stack; from the main thread, because it starts processes."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._dice = random.Random(f"faults {seed}")
        self.injected = Counter[str]()
        self.died: list[str] = []
        self._calls: list[threading.Thread] = []

    def inject(self, kind: str = "") -> None:
        """Inject a fault of this kind, or of one that is drawn, and heal it."""
        kind = kind or self._dice.choices(list(KINDS), list(KINDS.values()))[0]
        lasts = LONGEST * self._dice.random() ** 2
        how, _, victims = kind.partition("-")
        if kind == "fail-over":
            self._fail_over()
        elif kind == "pause-redis":
            self._pause_redis(lasts)
        elif kind == "delete-group":
            self._stack.delete_group()
        elif victims == "link":
            link = self._dice.choice([f"c{place}" for place in self._stack.by_http] + ["p"])
            self._stack.relays.tell(how, [link])
            time.sleep(lasts)
            self._stack.relays.tell("pass", [link])
        else:
            victim = self._dice.choice(self._stack.consumers if victims == "consumer" else self._stack.apis)
            self._break(how, victim, lasts)
        self.injected[kind] += 1
        self._look_after()
        time.sleep(self._dice.random())

    def reshard(self, queues: int) -> None:
        """Change the number of queues, while other faults are injected; again until it is done."""
        thread = threading.Thread(target=self._stack.reshard, args=(queues,), name="reshard")
        thread.start()
        self._calls.append(thread)
        self.injected["reshard"] += 1

    def end(self) -> None:
        """Wait for the reshards."""
        join(self._calls)

    def _break(self, how: str, one: OneProcess, lasts: float) -> None:
        self._look_after()
        if how == "freeze":
            one.signal(signal.SIGSTOP)
            time.sleep(lasts)
            one.signal(signal.SIGCONT)
            return
        if how == "stop":
            if not one.started and one in self._stack.apis:
                return  # it has no handler yet
            one.stop()
        else:
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
