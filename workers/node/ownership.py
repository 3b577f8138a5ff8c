"""The queues of a node: pull jobs start and end as the coordinator decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import structlog

from coordinator import Claim, Coordinator
from delayq.base.clock import Clock
from delayq.base.errors import DelayqError, StoreError
from delayq.domain.nodes import ranges
from workers.queue.pull_job import PullJob

#: ms without a tick after which a pull job counts as stuck. Its waits are far shorter, even with a slow Redis.
STUCK = 30_000
SHORT_ROUND = 10  # ms between two looks at queues that go to another node
log = structlog.get_logger()


class Ownership:
    """Belongs to the node's thread. A job that ends may finish its sends for `drain` ms."""

    def __init__(
        self,
        coordinator: Coordinator,
        make_job: Callable[[Claim], PullJob],
        start: Callable[[PullJob], None],
        clock: Clock,
        *,
        drain: int,
    ) -> None:
        self.jobs: dict[int, PullJob] = {}
        self.since: dict[int, int] = {}  # queue → Unix ms of its claim
        self.claims = 0
        self.fenced = 0
        self.handed_over: int | None = None  # Unix ms when a queue was last given up to another node
        self._coordinator = coordinator
        self._make_job = make_job
        self._start_job = start
        self._clock = clock
        self._drain = drain
        self._ending: dict[int, int] = {}  # queue → monotonic ms after which its job is abandoned
        self._releases: list[tuple[int, PullJob]] = []  # queues whose jobs have ended, which are not released yet
        self._left: list[PullJob] = []  # abandoned jobs that still run; their epochs are fenced
        self._failed: dict[int, int] = {}  # queues whose last claim failed, in the order of the failures
        self._failures = 0

    @property
    def running(self) -> Sequence[PullJob]:
        """The pull jobs, with abandoned ones that may still send messages."""
        return [*self.jobs.values(), *(job for _, job in self._releases), *self._left]

    @property
    def ending(self) -> bool:
        """Whether a queue is being released, so that the next round should come soon."""
        return bool(self._ending or self._releases)

    def is_settled(self, since: float) -> bool:
        """Whether this node owns all its queues and none has anything left to do.

        Each queue must have been pulled after `since` (precise monotonic ms)."""
        queues = self._coordinator.assigned()
        return self.jobs.keys() == queues and all(job.is_settled(since) for job in self.jobs.values())

    def adjust(self, *, reachable: bool) -> None:
        """Start and end pull jobs as the coordinator decides; raises CoordinatorError.

        While Redis is out of reach, queues are released at once. Their jobs ack the delivered messages later, under the old
        epoch.
        """
        going: dict[str, list[int]] = {}  # by the reason
        assigned = self._coordinator.assigned()
        now = self._clock.monotonic()
        for queue, job in list(self.jobs.items()):
            if queue not in assigned and queue not in self._ending:
                going.setdefault(self._coordinator.reason(queue), []).append(queue)
                job.stop()
                self._ending[queue] = now + self._drain
            stuck = job.alive and now - job.ticked_at > STUCK
            if stuck:
                log.error("pull_job_stuck", queue=queue, epoch=job.epoch)
                job.stop()
            elif not job.alive and not job.finished:
                log.error("pull_job_died", queue=queue, epoch=job.epoch)
            given_up = queue in self._ending and (now >= self._ending[queue] or not reachable)
            if not job.alive or stuck or given_up:
                self._end(queue, job, handed_over=queue not in assigned)
        for reason, queues in going.items():
            _log_end(queues, reason)
        self._left = [job for job in self._left if job.alive]
        self._give_back()
        # Read the assignment again: a fenced queue is left to its new owner for a while.
        self._start(self._coordinator.assigned())

    def _end(self, queue: int, job: PullJob, *, handed_over: bool) -> None:
        if job.alive:
            self._left.append(job)
        if handed_over:
            self.handed_over = self._clock.now()
        self.fenced += job.fenced
        del self.jobs[queue]
        self._ending.pop(queue, None)
        self._releases.append((queue, job))

    def _give_back(self) -> None:
        while self._releases:
            queue, job = self._releases[-1]
            if job.fenced:
                self._coordinator.fenced(queue, job.epoch)
            self._coordinator.release(queue, job.epoch)
            self._releases.pop()

    def _start(self, assigned: frozenset[int]) -> None:
        started: dict[str, list[int]] = {}  # by epoch
        try:
            # Queues whose last claim failed come last, so that a primary that is away delays no other queue.
            for queue in sorted(assigned - self.jobs.keys(), key=lambda queue: (self._failed.get(queue, 0), queue)):
                try:
                    claim = self._coordinator.claim(queue)
                except StoreError as error:
                    self._failures += 1
                    self._failed[queue] = self._failures
                    log.warning("redis_trouble", queue=queue, error=str(error))
                    break  # if Redis is away, each further queue would cost a timeout
                self._failed.pop(queue, None)
                if claim is None:
                    continue
                job = self._make_job(claim)
                self.jobs[queue] = job
                self.since[queue] = self._clock.now()
                self._start_job(job)
                self.claims += 1
                started.setdefault(claim.epoch, []).append(queue)
        finally:
            if started:  # one line in the log for all queues, even if the next claim failed
                epochs = {epoch: ranges(queues) for epoch, queues in started.items()}
                log.info("owner", queues=ranges(sorted(chain(*started.values()))), epochs=epochs)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def let_go(self, meanwhile: Callable[[], None]) -> None:
        """Stop all jobs, and release each queue as soon as its job has ended, or after `drain` ms.

        Jobs that did not end stay in `jobs`. `meanwhile` is called repeatedly during the wait.
        """
        end = self._clock.monotonic() + self._drain
        _log_end(sorted(self.jobs.keys() - self._ending.keys()), "this node stops")
        # Stop all of them first, so that no job waits for another's sends.
        for job in self.jobs.values():
            job.stop()
        running = dict(self.jobs)
        while running and self._clock.monotonic() < end:
            meanwhile()
            for queue, job in list(running.items()):
                if job.join(SHORT_ROUND):
                    del running[queue], self.jobs[queue]
                    self._release_for_good(queue, job)
        for queue, job in running.items():
            self._release_for_good(queue, job)

    def _release_for_good(self, queue: int, job: PullJob) -> None:
        try:
            self._coordinator.release(queue, job.epoch)
        except DelayqError as error:  # the queue is released when the node leaves the coordinator
            log.warning("release_failed", queue=queue, error=str(error))


def _log_end(queues: Sequence[int], reason: str) -> None:
    if queues:
        log.info("let_go", queues=ranges(queues), reason=reason)
