"""The threads that pull: one for each Redis server, for all queues of this node that lie there.

It waits for the earliest moment at which one of its pull jobs wants to look, or until one is woken. Then it asks every
job that wants to look what Redis is to be told, sends all of it in one packet, and hands each job its answers. What
goes wrong in one job resets that job alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from delayq.clock import Clock
from delayq.store.commands import Command
from delayq.store.connect.address import Node
from delayq.store.connect.store import Store
from workers.queue.pull_job import PullJob

__all__ = ["HUNG", "SLICES", "Puller", "Pullers"]

#: How many backlogs are pulled from in a packet: what is fresh waits for no more than these.
SLICES: Final = 4
#: ms after which a packet under way counts as hung; what bounds each wait for Redis is far below.
HUNG: Final = 20_000
LONGEST_WAIT: Final = 60_000
PAUSE: Final = 100  # ms, after an error that nobody expected
log = structlog.get_logger()


class Puller:
    """Moves the pull jobs whose queues lie on `server` (None: there is but one)."""

    def __init__(
        self, name: str, store: Store, clock: Clock, *, server: Node | None = None,
        hand_over: Callable[[PullJob], None] | None = None,
    ) -> None:  # fmt: skip
        self._name = name
        self._store = store
        self._clock = clock
        self._server = server
        self._hand_over = hand_over
        self._condition = threading.Condition()
        self._jobs: list[PullJob] = []  # whose turn it is to take from its backlog comes first
        self._woken = False
        self._stopping = False
        self._began: int | None = None  # monotonic ms, of the packet under way
        self._thread: threading.Thread | None = None

    # -- from other threads ------------------------------------------------------------------------------------------

    def add(self, job: PullJob) -> None:
        """Move this job from now on."""
        job.moved_by(self)
        with self._condition:
            self._jobs.append(job)
        self.wake()

    def wake(self) -> None:
        """Look at the jobs: one of them has something to do."""
        with self._condition:
            if not self._woken:
                self._woken = True
                self._condition.notify()

    def start(self) -> None:
        """Start the thread; again is harmless."""
        with self._condition:
            if self._thread is None:
                self._thread = threading.Thread(target=self.run, name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread after the packet that is under way; again is harmless."""
        self._stopping = True
        self.wake()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the thread; False if it did not end in time."""
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
        return not self.alive

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def hung(self) -> bool:
        """Whether a packet does not come to its end."""
        began = self._began
        return began is not None and self._clock.monotonic() - began > HUNG

    # -- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Go round and wait until stopped, whatever goes wrong."""
        while not self._stopping:
            try:
                self._began = self._clock.monotonic()
                self.round()
                self._began = None
                self.wait()
            except Exception:
                log.exception("puller_failed", puller=self._name)
                with self._condition:
                    self._clock.wait(self._condition, PAUSE)

    def wait(self) -> None:
        """Until a job wants to look, or is woken."""
        with self._condition:
            if self._woken or self._stopping:
                return
            looks_at = min((job.looks_at for job in self._jobs), default=float("inf"))
            pause = min(looks_at - self._clock.precise(), LONGEST_WAIT)
            if pause > 0:
                self._clock.wait(self._condition, pause)

    def round(self) -> None:
        """Move every job that wants to look now."""
        with self._condition:
            self._woken = False  # before anybody is looked at: who is woken from now on has the next round
            jobs = list(self._jobs)
        asked, packet = [], list[Command[Any]]()
        for job, backlog in self._pick(jobs):
            commands = self._ask(job, backlog)
            if commands is not None:
                asked.append((job, len(commands)))
                packet += commands
        for job, answers in self._exchange(asked, packet):
            try:
                job.take(answers)
            except Exception:
                job.failed()
        self._let_go([job for job, _ in asked])

    def _pick(self, jobs: Sequence[PullJob]) -> list[tuple[PullJob, bool]]:
        """Who wants to look, and whether it may take from its backlog; that few do at a time, in turns, and last."""
        now = self._clock.precise()
        picked: list[tuple[PullJob, bool]] = []
        taking: list[PullJob] = []
        for job in jobs:
            if not job.wants_to_look(now):
                continue
            if not job.in_backlog:
                picked.append((job, True))
            elif len(taking) < SLICES:
                taking.append(job)
            elif job.presses:
                picked.append((job, False))
        if taking:
            with self._condition:
                self._jobs.sort(key=taking.__contains__)
        return picked + [(job, True) for job in taking]

    def _ask(self, job: PullJob, backlog: bool) -> Sequence[Command[Any]] | None:
        try:
            return job.ask(backlog=backlog)
        except Exception:
            job.failed()
            return None

    def _exchange(
        self, asked: Sequence[tuple[PullJob, int]], packet: Sequence[Command[Any]]
    ) -> list[tuple[PullJob, Sequence[Any]]]:
        """Send the packet; to each job the answers to its own commands."""
        try:
            answers = self._store.run_many(packet) if packet else []
        except Exception:
            for job, _ in asked:
                job.failed()
            return []
        told: list[tuple[PullJob, Sequence[Any]]] = []
        start = 0
        for job, count in asked:
            told.append((job, answers[start : start + count]))
            start += count
        return told

    def _let_go(self, jobs: Sequence[PullJob]) -> None:
        """Jobs that have come to their end, and those whose queue lies elsewhere by now."""
        for job in jobs:
            if job.finished:
                self._remove(job)
                job.end()
            elif self._hand_over is not None and self._elsewhere(job):
                self._remove(job)
                self._hand_over(job)

    def _elsewhere(self, job: PullJob) -> bool:
        server = self._store.server_of(job.keys.state)
        return server is not None and server != self._server

    def _remove(self, job: PullJob) -> None:
        with self._condition:
            self._jobs.remove(job)


class Pullers:
    """The pullers of a node: one, or in a Redis Cluster one for each primary, so that one that is slow or dead holds up
    its own queues only."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._pullers: dict[Node | None, Puller] = {}

    def add(self, job: PullJob) -> None:
        """Pull this job's queue from now on, in the thread of the server where it lies."""
        server = self._store.server_of(job.keys.state)
        with self._lock:
            puller = self._pullers.get(server)
            if puller is None or puller.hung or not puller.alive:
                if puller is not None:
                    puller.stop()  # should it go on after all
                name = f"puller-{len(self._pullers)}"
                puller = Puller(name, self._store, self._clock, server=server, hand_over=self.add)
                self._pullers[server] = puller
                puller.start()
        puller.add(job)

    def stop(self) -> None:
        """End the threads; nothing is pulled any more."""
        for puller in list(self._pullers.values()):
            puller.stop()

    def join(self, timeout_ms: int) -> None:
        """Wait for the threads, at most so long; one that hangs is left behind (it is a daemon)."""
        end = self._clock.monotonic() + timeout_ms
        for puller in list(self._pullers.values()):
            puller.join(max(0, end - self._clock.monotonic()))
