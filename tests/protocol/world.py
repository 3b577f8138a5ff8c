"""A small world around the real scripts and the real pull job: a clock, two nodes, targets that a test answers for.

Everything runs in one thread: a tick is called, never waited for, and a send ends when the test says how.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coordinator.epoch import next_epoch
from delayq.domain.codec import Record, due_head, encode
from delayq.domain.message import Limits, Message
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Found, QueueStats, Retention
from delayq.store.connect.store import Store
from delayq.store.connect.threads import Wakes
from delayq.store.keys import KEYS
from delayq.targets import OK, Result
from tests.support.timeouts import PATIENCE
from workers.limits.asking import NodeLimits
from workers.limits.limit import Limit
from workers.queue.pull_job import PullJob
from workers.queue.queue_context import Bounds, CurrentPolicies, Incarnation, QueueContext
from workers.queue.symptoms import LossDetector
from workers.queue.topics import Topics
from workers.sending.backoff import Backoff
from workers.sending.groups import Report
from workers.sending.message import InFlightMessage
from workers.sending.sender import Sender, _Send
from workers.sending.stall_detector import StallDetector

START = 1_800_000_000_000
STREAMS = ("s.t", "s.u")
ROUTES = Routes(
    [
        Route(name="streams", match="s.*"),
        Route(name="general", match="g.*", target="manual:"),
    ]
)
RETENTION = Retention(window=5, most=1_000, short=30_000)
BOUNDS = Bounds(window=50, look=4, max_attempts=2, backoff=Backoff(8, 16))


class NodeClock:
    """The world's time plus the node's error; its monotonic clock never steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.error = 0

    def now(self) -> int:
        return self._world.now + self.error

    def monotonic(self) -> int:
        return self._world.elapsed

    def precise(self) -> float:
        return float(self._world.elapsed)

    def wait(self, condition: threading.Condition, timeout_ms: float) -> bool:
        raise AssertionError("nothing waits in this world")


class NoTarget:
    """Never called: the test answers for it."""

    max_batch = 1

    def send(self, batch: Sequence[object], timeout: float) -> Sequence[Result]:
        raise AssertionError

    def close(self) -> None: ...


class ManualSender(Sender):
    """Begins each send as its threads would, and keeps it until the test says what became of it."""

    def __init__(self, route: Route, clock: NodeClock) -> None:
        super().__init__(route, NoTarget(), clock, threads=20, timeout=1_000)
        self.outbox: list[tuple[Report, list[InFlightMessage]]] = []
        self.on_submit: list[InFlightMessage] = []
        self._begun: list[_Send] = []  # of what is in the outbox

    @property
    def stalled(self) -> bool:
        return False

    def submit(self, report: Report, batch: Sequence[InFlightMessage], stalls: int = 0) -> None:
        super().submit(report, batch, stalls)
        self.begin_all()

    def limits_have_more(self, limits: Sequence[Limit]) -> None:
        super().limits_have_more(limits)
        self.begin_all()

    def begin_all(self) -> None:
        """As idle threads do."""
        while (send := self._begin(self._clock.monotonic())) is not None:
            if self._outdated(send):
                self._finish(send, None)
                continue
            for group in send.groups:
                for message in group.batch:
                    one = Counter(limit for limit in message.limits if limit.lasts)
                    self._begun.append(_Send(send.since, [group.of([message])], slots=one))
                    self.outbox.append((group.report, [message]))
                    self.on_submit.append(message)

    def answer(self, index: int, result: Result) -> InFlightMessage:
        _, batch = self.outbox.pop(index)
        self._finish(self._begun.pop(index), [result])
        self.begin_all()
        return batch[0]

    def not_sent(self, batch: Sequence[InFlightMessage]) -> None:
        """A batch has waited for too long, and is to be pulled anew."""
        index = next(place for place, (_, held) in enumerate(self.outbox) if held[0] in batch)
        self.outbox.pop(index)
        self._finish(self._begun.pop(index), None)
        self.begin_all()


@dataclass
class Owner:
    """A pull job of one epoch, and when it looks again."""

    node: int
    job: PullJob
    sender: ManualSender
    clock: NodeClock
    topics: Topics
    sleeps_until: int = 0
    woken: bool = True

    @property
    def asleep(self) -> bool:
        return not self.woken and self.clock.monotonic() < self.sleeps_until


def tick(job: PullJob, store: Store, *, backlog: bool = True) -> float:
    """Both halves of a tick, whatever the job wants; the ms until it wants to look again."""
    asked = job.ask(backlog=backlog)
    job.take(store.run_many(asked) if asked else [])
    return max(0.0, job.looks_at - job.ticked_at)


@dataclass
class World:
    """One queue. `now` is the clock of Redis, `elapsed` what really passed."""

    store: Store
    now: int = START
    elapsed: int = 0
    owners: list[Owner] = field(default_factory=list)
    jobs: list[PullJob] = field(default_factory=list)  # of all owners there ever were
    skews: dict[int, int] = field(default_factory=dict)
    consumed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = KEYS.queue(0)
        self.limits = Limits()
        self.store.run(commands.plain("FLUSHALL", read=lambda _: None))
        self._wakes: Wakes = Wakes(self.store.connect)
        self._wakes.connect([self.keys.wake, "marker"])
        for _ in ("wake", "marker"):
            assert self._wakes.receive(PATIENCE) is not None  # subscribed

    def close(self) -> None:
        self._wakes.close()

    # -- what callers do -------------------------------------------------------------------------------------------

    def schedule(self, message: Message, spec: str) -> tuple[str, int | None]:
        """'new', or what the script says, and the due."""
        assert message.id is not None
        body = encode(message, self.limits, due_head(int(spec[1:])))
        call = partial(commands.schedule, self.keys, spec[0], [message.id], [body], now=self.now, retention=RETENTION)
        answer = self.store.run(call())
        if answer.policies:  # it has not followed these
            answer = self.store.run(call(policies=answer.policies))
        self._pass_wakes()
        return answer.others.get(0, ("new", None))

    def cancel(self, id: str) -> str:
        return self.store.run(commands.cancel(self.keys, [id], now=self.now, retention=RETENTION))[0]

    def reschedule(self, id: str, due: int) -> tuple[str, int | None]:
        answer = self.store.run(commands.reschedule(self.keys, id, f"a{due}", now=self.now, retention=RETENTION))
        self._pass_wakes()
        return answer

    def deliver_now(self, id: str, topic: str, *, force: bool) -> tuple[str, int | None]:
        answer = self.store.run(commands.deliver_now(self.keys, [id], force=force, held=[topic], now=self.now))
        self._pass_wakes()
        return answer[0]

    def redrive(self, id: str) -> str:
        answer = self.store.run(commands.redrive(self.keys, [id], now=self.now))
        self._pass_wakes()
        return answer[0]

    def found(self, ids: Sequence[str]) -> dict[str, Found | None]:
        answer = self.store.run(commands.get(self.keys, ids, now=self.now, retention=RETENTION))
        return dict(zip(ids, answer, strict=True))

    def attempts(self, id: str) -> str | None:
        """What stands of its attempts."""
        tried: str | None = self.store.run(
            commands.plain("HGET", self.keys.attempts, id, read=lambda one: one and one.decode())
        )
        return tried

    def stats(self) -> QueueStats:
        return self.store.run(commands.stats(self.keys, now=self.now))

    def streamed(self) -> list[str]:
        """The ids that were ever in the streams; those of one stream in order."""
        return self.consumed + [id for stream in STREAMS for id in self.stream(stream)]

    def stream(self, stream: str) -> list[str]:
        """The ids in a stream, in order."""
        if self.store.run(commands.plain("TYPE", stream, read=lambda reply: reply)) != b"stream":
            return []
        entries = self.store.run(commands.plain("XRANGE", stream, "-", "+", read=lambda reply: reply))
        return [dict(zip(words[::2], words[1::2], strict=True))[b"id"].decode() for _, words in entries]

    def consume(self, instead: str = "") -> None:
        """Somebody reads the streams and deletes them, and perhaps puts a string in place of the last one."""
        self.consumed = self.streamed()
        self.store.run(commands.plain("DEL", *STREAMS, read=lambda _: None))
        if instead:
            self.store.run(commands.plain("SET", STREAMS[-1], instead, read=lambda _: None))

    # -- what nodes do ---------------------------------------------------------------------------------------------

    def claim(self, node: int) -> Owner:
        """A new owner on this node; older owners do not know yet, unless it is the same node (a restart)."""
        for owner in self.owners:
            if owner.node == node:
                self.owners.remove(owner)
                break
        clock = NodeClock(self)
        clock.error = self.skews.get(node, 0)
        sender = ManualSender(ROUTES.table[1], clock)
        topics = Topics(ROUTES, self.store.url, KEYS)
        job = self.job_of(node, clock, topics, bounds=BOUNDS, routes=ROUTES, senders={"general": sender})
        owner = Owner(node, job, sender, clock, topics)
        self.owners.append(owner)
        return owner

    def job_of(
        self,
        node: int,
        clock: NodeClock,
        topics: Topics,
        *,
        stalls: StallDetector | None = None,
        losses: LossDetector | None = None,
        limits: NodeLimits | None = None,
        **options: Any,
    ) -> PullJob:
        """A pull job under the next epoch, whose context has these options."""
        stored = self.store.run(commands.stored_epoch(self.keys))
        claimed = self.store.run(commands.claim(self.keys, next_epoch(stored, 0, node)))
        assert claimed.ok
        incarnation = Incarnation(claimed.epoch)
        policies = options.pop("policies", None) or CurrentPolicies()
        context = QueueContext(
            keys=self.keys,
            incarnation=incarnation,
            store=self.store,
            clock=clock,
            retention=RETENTION,
            policies=policies,
            limits=limits or NodeLimits(self.store, clock, policies.report_version, test_now=lambda: self.now),
            **options,
        )
        job = PullJob(context, claimed.parked, topics, stalls=stalls, losses=losses, test_now=lambda: self.now)
        self.jobs.append(job)
        return job

    def tick(self, owner: Owner) -> list[InFlightMessage]:
        """One tick; what it gave to the sender."""
        owner.sender.on_submit.clear()
        pause = tick(owner.job, self.store)
        owner.woken = False
        owner.sleeps_until = self.elapsed + max(0, round(pause))
        return list(owner.sender.on_submit)

    def answer(self, owner: Owner, index: int, result: Result) -> InFlightMessage:
        held = owner.sender.answer(index, result)
        owner.woken = True
        return held

    def advance(self, ms: int) -> None:
        self.now += ms
        self.elapsed += ms

    # -- wakes -------------------------------------------------------------------------------------------------------

    def _pass_wakes(self) -> None:
        self.store.run(commands.plain("PUBLISH", "marker", "x", read=lambda _: None))
        while True:
            message = self._wakes.receive(PATIENCE)
            assert message is not None, "the subscription is silent"
            channel, due = message
            if channel == "marker":
                return
            if channel == self.keys.wake:
                for owner in self.owners:
                    owner.job.wake(int(due) if due.isdigit() else None)
                    owner.woken = True

    # -- looking inside ----------------------------------------------------------------------------------------------

    def tickets(self) -> dict[bytes, int]:
        reply = self.store.run(commands.plain("ZRANGE", self.keys.queue, 0, -1, "WITHSCORES", read=lambda reply: reply))
        return {reply[i]: int(reply[i + 1]) for i in range(0, len(reply), 2)}

    def records(self) -> dict[str, Record]:
        reply = self.store.run(commands.plain("HGETALL", self.keys.pool, read=lambda reply: reply))
        return {reply[i].decode(): Record(reply[i + 1]) for i in range(0, len(reply), 2)}


DELIVERED = OK
