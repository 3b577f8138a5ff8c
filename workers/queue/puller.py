"""The threads that pull: one for each Redis server, for all queues of this node on that server.

A thread waits until one of its pull jobs wants to look, or is woken. Then it collects the commands of every job that wants to
look, sends them in one packet, and gives each job its answers. An error in one job resets only that job.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog

from delayq.base.clock import Clock
from delayq.store.commands import Command
from delayq.store.connect.address import Node
from delayq.store.connect.exchange import Exchange
from delayq.store.connect.store import Store
from workers.queue.pull import LONGEST_WAIT
from workers.queue.pull_job import PullJob

#: Backlogs in a packet: fresh messages wait for these at most.
SLICES: Final = 2
#: ms after which no further wait for a packet begins. The results of commands without an answer are unknown.
PACKET_TIMEOUT: Final = 8_000
#: ms after which a packet without an answer counts as hung.
HUNG: Final = 20_000
#: Packets that are sent before the first one is answered, if there are backlogs for them.
PACKETS: Final = 2
PAUSE: Final = 100  # ms after an unexpected error
#: Jobs in a packet, with the number of their commands.
_Asked = list[tuple[PullJob, int]]
log = structlog.get_logger()


class Puller:
    """Runs the pull jobs whose queues are on `server` (None: there is only one server)."""

    def __init__(
        self,
        name: str,
        store: Store,
        clock: Clock,
        *,
        server: Node | None = None,
        hand_over: Callable[[PullJob], None] | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._server = server
        self._hand_over = hand_over
        self._condition = threading.Condition()
        self._jobs: list[PullJob] = []  # a job whose backlog is next comes first
        self._busy: set[PullJob] = set()  # their answers have not arrived
        self._kept: set[PullJob] = set()  # their queues moved to another server, and no thread could take them over
        self._under_way: deque[tuple[_Asked, Exchange | None]] = deque()
        self._stopping = False
        self._asked_last = False  # whether all jobs were asked after the stop
        self._retired = False
        self._began: int | None = None  # monotonic ms of the current round
        self._thread: threading.Thread | None = None

    # -- from other threads ------------------------------------------------------------------------------------------

    def add(self, job: PullJob) -> None:
        """Run this job from now on."""
        job.pulled_by(self.wake, lambda: self.alive)
        with self._condition:
            self._jobs.append(job)
        self.wake()

    def wake(self) -> None:
        """Check all jobs, because one of them has something to do."""
        with self._condition:
            self._condition.notify()

    def start(self) -> None:
        """Start the thread. A second call does nothing."""
        with self._condition:
            if self._thread is None:
                self._thread = threading.Thread(target=self.run, name=self._name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread after one more packet with the settlements of its jobs. A second call does nothing."""
        self._stopping = True
        self.wake()

    def retire(self) -> None:
        """End the thread when its jobs have ended. New jobs get another thread."""
        self._retired = True
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
        """Whether a packet gets no answer."""
        began = self._began
        return began is not None and self._clock.monotonic() - began > HUNG

    # -- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Do rounds until stopped. Survives every exception."""
        while not self._ends():
            try:
                self._began = self._clock.monotonic()
                self.round()
                self._began = None
                self.wait()
            except Exception:
                log.exception("puller_failed", puller=self._name)
                with self._condition:
                    self._clock.wait(self._condition, PAUSE)

    def _ends(self) -> bool:
        if self._under_way:
            return False
        return (self._stopping and self._asked_last) or (self._retired and not self._jobs)

    def wait(self) -> None:
        """Wait until a job wants to look, or is woken."""
        with self._condition:
            if self._stopping or self._under_way or self._ends():
                return
            now = self._clock.precise()
            if any(job.wants_to_look(now) for job in self._jobs):
                return  # it was woken after its commands were collected
            looks_at = min((job.looks_at for job in self._jobs), default=float("inf"))
            self._clock.wait(self._condition, min(looks_at - now, LONGEST_WAIT))

    def round(self) -> None:
        """Run every job that wants to look now.

        While there are more backlogs than a packet takes, the answers wait for the next round. So Redis works on another
        packet while this thread handles the answers.
        """
        with self._condition:
            jobs = [job for job in self._jobs if job not in self._busy]
        picked, along, taking, more = self._pick(jobs)
        if not self._asked_last:  # after the stop each job is asked once more, for its settlements
            self._asked_last = self._stopping
            self._send(picked, along, taking)
        if self._under_way and not (more and self._leaves_answers):
            self._take(*self._under_way.popleft())

    @property
    def _leaves_answers(self) -> bool:
        """Whether another packet may be sent before the answers are handled: if these have not arrived."""
        _, oldest = self._under_way[0]
        return not self._stopping and len(self._under_way) < PACKETS and oldest is not None and oldest.on_its_way

    def _pick(self, jobs: Sequence[PullJob]) -> tuple[list[tuple[PullJob, bool]], list[PullJob], list[PullJob], bool]:
        """Select the jobs of a packet. Return:

        - the jobs that look now, and whether they pull their backlog;
        - the jobs that only join a packet;
        - the few jobs that take a slice of their backlog, in turn;
        - whether there are more backlogs.
        """
        now = self._clock.precise()
        picked: list[tuple[PullJob, bool]] = []
        along: list[PullJob] = []
        taking: list[PullJob] = []
        more = False
        for job in jobs:
            if not job.wants_to_look(now):
                if job.goes_along(now):
                    along.append(job)
            elif not job.in_backlog:
                picked.append((job, True))
            elif len(taking) < SLICES:
                taking.append(job)
            else:
                more = True
                if job.presses:
                    picked.append((job, False))
        if taking:
            with self._condition:
                self._jobs.sort(key=taking.__contains__)
        return picked, along, taking, more

    def _send(
        self, picked: Sequence[tuple[PullJob, bool]], along: Sequence[PullJob], taking: Sequence[PullJob]
    ) -> None:
        """Send a packet, with the slices of backlogs at its end. Jobs in `along` cause no packet of their own."""
        asked: _Asked = []
        packet: list[Command[Any]] = []
        for job, backlog in picked:
            self._ask(job, asked, packet, backlog=backlog)
        if packet or taking:
            for job in along:
                self._ask(job, asked, packet, backlog=True)
        for job in taking:
            self._ask(job, asked, packet, backlog=True)
        if not asked:
            return
        try:
            begun = self._store.begin(packet, within=PACKET_TIMEOUT) if packet else None
        except Exception:
            _fail(job for job, _ in asked)
            return
        self._busy.update(job for job, _ in asked)
        self._under_way.append((asked, begun))

    @staticmethod
    def _ask(job: PullJob, asked: _Asked, packet: list[Command[Any]], *, backlog: bool) -> None:
        try:
            commands = job.ask(backlog=backlog)
        except Exception:
            _fail([job])
        else:
            asked.append((job, len(commands)))
            packet += commands

    def _take(self, asked: _Asked, begun: Exchange | None) -> None:
        """Give each job the answers to its commands."""
        self._busy.difference_update(job for job, _ in asked)
        try:
            answers = self._store.end(begun) if begun is not None else []
        except Exception:
            _fail(job for job, _ in asked)
            return
        start = 0
        for job, count in asked:
            try:
                job.take(answers[start : start + count])
            except Exception:
                _fail([job])
            start += count
        self._let_go([job for job, _ in asked])

    def _let_go(self, jobs: Sequence[PullJob]) -> None:
        """Remove jobs that have ended, and jobs whose queue is now on another server."""
        for job in jobs:
            if job.finished:
                self._remove(job)
                job.end()
            elif self._hand_over is not None and not self._stopping and self._has_moved(job):
                try:
                    self._hand_over(job)
                except Exception:  # for example if no thread can be started: the job stays here until one can
                    if job not in self._kept:
                        self._kept.add(job)
                        log.exception("hand_over_failed", queue=job.keys.tag)
                else:
                    self._remove(job)

    def _has_moved(self, job: PullJob) -> bool:
        server = self._store.server_of(job.keys.state)
        return server is not None and server != self._server

    def _remove(self, job: PullJob) -> None:
        with self._condition:
            self._jobs.remove(job)
        self._kept.discard(job)


def _fail(jobs: Iterable[PullJob]) -> None:
    """Reset these jobs after an unexpected error. An error in one does not affect the others."""
    for job in jobs:
        try:
            job.failed()
        except Exception:
            log.exception("reset_failed", queue=job.keys.tag)


class Pullers:
    """The pullers of a node: one, or in a Redis Cluster one for each primary.

    So a slow or dead primary delays only its own queues.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._pullers: dict[Node | None, Puller] = {}
        self._retired: list[Puller] = []

    def add(self, job: PullJob) -> None:
        """Run this job from now on, in the thread of its queue's server."""
        server = self._store.server_of(job.keys.state)
        with self._lock:
            puller = self._pullers.get(server)
            if puller is None or puller.hung or not puller.alive:
                old, name = puller, f"puller-{len(self._pullers)}"
                puller = Puller(name, self._store, self._clock, server=server, hand_over=self.add)
                puller.start()
                self._pullers[server] = puller
                if old is not None:
                    old.retire()  # if it recovers, its jobs still send their settlements
                    self._retired = [*(one for one in self._retired if one.alive), old]
        puller.add(job)

    def stop(self) -> None:
        """End the threads, so that no message is pulled."""
        for puller in [*self._pullers.values(), *self._retired]:
            puller.stop()

    def join(self, timeout_ms: int) -> None:
        """Wait for the threads, `timeout_ms` at most. A thread that hangs is a daemon, which ends with the process."""
        end = self._clock.monotonic() + timeout_ms
        for puller in [*self._pullers.values(), *self._retired]:
            puller.join(max(0, end - self._clock.monotonic()))
