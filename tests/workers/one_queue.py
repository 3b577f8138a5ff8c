"""One queue with its real scripts and its real pull job, moved on by hand: no threads, no real time.

The general routes' sends end when the test says how; a wake is passed to the owners exactly when one was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from delayq.domain.message import Message
from delayq.domain.policies import Policies
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Change, Found
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, ParkedSet
from delayq.targets import OK, Result
from tests.protocol.world import START, ManualSender, NodeClock, World, tick
from workers.limits.asking import NodeLimits
from workers.queue.pull_job import PullJob
from workers.queue.queue_context import Bounds, Pace
from workers.queue.symptoms import LossDetector
from workers.queue.topics import Topics
from workers.sending.backoff import Backoff
from workers.sending.message import InFlightMessage
from workers.sending.observer import NO_OBSERVER, Observer
from workers.sending.sender import STALL
from workers.sending.spans import Spans
from workers.sending.stall_detector import StallDetector

__all__ = ["BOUNDS", "GENERAL", "OTHER", "START", "STREAMS", "TABLE", "ByHand", "Hand", "OneQueue"]

STREAMS = Route(name="streams", match="s.*")
GENERAL = Route(name="general", match="g.*", target="manual:")
OTHER = Route(name="other", match="o.*", target="manual:")
TABLE = (STREAMS, GENERAL, OTHER)
BOUNDS = Bounds(window=300, look=50, max_attempts=3, backoff=Backoff(100, 1_000))


class ByHand(ManualSender):
    """A sender whose sends end by the test's word; it is stalled when none did for a while."""

    @property
    def stalled(self) -> bool:
        return self._pending > 0 and self._clock.monotonic() - self._progress > STALL

    def answer(self, index: int, result: Result) -> InFlightMessage:
        self._progress = self._clock.monotonic()
        return super().answer(index, result)

    @property
    def ids(self) -> list[str]:
        """What is being sent, in the order in which it was given."""
        return [batch[0].id for _, batch in self.outbox]


class Hand:
    """An owner of the queue, and its senders by route."""

    def __init__(self, world: OneQueue, node: int, job: PullJob, senders: Mapping[str, ByHand]) -> None:
        self.world = world
        self.store = world.store
        self.node = node
        self.job = job
        self.policies = job._context.policies
        self.limits = job._context.limits
        self.senders = senders
        self.woken = True  # the world sets it; a test ticks when it likes
        self.pause = 0.0
        self.sent: list[str] = []
        self._seen = dict.fromkeys(senders, 0)

    def tick(self, *, backlog: bool = True) -> float:
        """One tick; the pause that it wants."""
        self.pause = tick(self.job, self.store, backlog=backlog)
        self._see()
        return self.pause

    def _see(self) -> None:
        """Note what senders were given: in a tick, or by a send that has ended."""
        for name, one in self.senders.items():
            self.sent += [held.id for held in one.on_submit[self._seen[name] :]]
            self._seen[name] = len(one.on_submit)

    def settle(self) -> list[str]:
        """Tick until there is nothing to do; the ids that were given to senders meanwhile, in order."""
        start, short = len(self.sent), 0
        for _ in range(2_000):
            pause = self.tick()
            short = short + 1 if 0 < pause <= 1 else 0  # it waits for room: look a few times
            if pause > 1 or short == 5:
                return self.sent[start:]
        raise AssertionError("the job always wants to go on at once")

    def run(self, ms: int, answer: Callable[[InFlightMessage], Result] | None = None) -> list[str]:
        """Let so much time pass as the job's pauses say, answering every send; the ids that were sent meanwhile."""
        start, end = len(self.sent), self.world.elapsed + ms
        for _ in range(100_000):
            self.settle()
            if answer is not None and any(one.outbox for one in self.senders.values()):
                for one in self.senders.values():
                    while one.outbox:
                        one.answer(0, answer(one.outbox[0][1][0]))
                continue
            if self.world.elapsed >= end:
                return self.sent[start:]
            self.world.advance(max(1, min(round(self.pause), end - self.world.elapsed)))
        raise AssertionError("it never comes to rest")

    def run_until(self, end: int, answer: Callable[[InFlightMessage], Result]) -> None:
        """The same until this time, with limits that are asked for each 100 ms."""
        while self.world.elapsed < end:
            for _ in range(3):
                self.limits.tick()
                self.run(0, answer)
            self.world.advance(100)

    def answer(self, id: str, result: Result = OK) -> None:
        """The send of this message ends so."""
        for one in self.senders.values():
            if id in one.ids:
                one.answer(one.ids.index(id), result)
                self._see()
                return
        raise AssertionError(f"{id} is not being sent")

    def answer_all(self, result: Result = OK, route: str = "general") -> None:
        """All sends to the route end so."""
        while self.senders[route].outbox:
            self.senders[route].answer(0, result)

    @property
    def sending(self) -> list[str]:
        """What is being sent, in the order of the routes."""
        return [id for one in self.senders.values() for id in one.ids]

    @property
    def parked(self) -> list[str]:
        """The names of the parked sets that the job knows, but for those of topics."""
        return sorted(name for name in self.job.parked if not ParkedSet.is_of_topic(name))


class OneQueue(World):
    """The world of one queue, with routes and a policy of the test's own."""

    def __init__(self, store: Store, table: Sequence[Route] = TABLE, bounds: Bounds = BOUNDS) -> None:
        super().__init__(store)
        self.routes = Routes(table)
        self.bounds = bounds
        self.hands: list[Hand] = []

    def take_over(
        self,
        node: int = 1,
        observer: Observer = NO_OBSERVER,
        spans: Spans | None = None,
        losses: LossDetector | None = None,
        stalls: StallDetector | None = None,
        census: bool = False,
        limits: NodeLimits | None = None,
        senders: Mapping[str, ByHand] | None = None,
        may_send: Callable[[], bool] = lambda: True,
    ) -> Hand:
        """A new owner on this node. Owners on other nodes do not know of it, unless they share their `limits` and `senders`."""
        self.hands = [hand for hand in self.hands if hand.node != node]
        clock = NodeClock(self)
        topics = Topics(self.routes, self.store.url, self.store.keys)
        if senders is None:
            senders = {one.name: ByHand(one, clock) for one in self.routes.table if one.name not in topics.local}
        job = self.job_of(
            node,
            clock,
            topics,
            stalls=stalls,
            losses=losses,
            bounds=self.bounds,
            routes=self.routes,
            senders=senders,
            observer=observer,
            spans=spans,
            pace=Pace(clock) if census else None,
            limits=limits,
            may_send=may_send,
        )
        hand = Hand(self, node, job, senders)
        self.hands.append(hand)
        return hand

    def add(self, id: str, topic: str = "g.t", at: int = 0, **options: Any) -> None:
        """Schedule a message that is due `at` ms after the start."""
        due = START + at
        message = Message(id=id, topic=topic, expect_date=due, **options)
        known = len(self.hands)
        assert self.schedule(message, f"A{due}")[0] == "new"
        assert known == len(self.hands)

    def add_many(self, ids: Iterable[str], topic: str = "g.t", at: int = 0, *, every: int = 0, **options: Any) -> None:
        """Schedule messages of which each is due `every` ms after the one before it."""
        for number, id in enumerate(ids):
            self.add(id, topic, at + every * number, **options)

    def pause(self, *matches: str, told: bool = True) -> None:
        """Pause these topics, and no others, until another call; the owners read it at once if they are `told`."""
        self._apply(self.set_policies(*matches), told=told)

    def change(self, *changes: Change) -> None:
        """Make other changes of policies."""
        self.store.run(commands.set_policies(KEYS, changes, maker="0000000007", now=self.now))
        self._apply(Policies.read(self.store.run(commands.policies(KEYS))), told=True)

    def _apply(self, policies: Policies, *, told: bool) -> None:
        self.store.run(commands.apply_policies(self.keys, policies.version, policies.paused, now=self.now))
        for hand in self.hands if told else ():
            hand.policies.current = policies
            hand.job.wake(None)

    def set_policies(self, *matches: str) -> Policies:
        """The same, but that nobody brings it to the queue."""
        now = Policies.read(self.store.run(commands.policies(KEYS)))
        changes = [Change(f"pause:{match}", "") for match in now.paused if match not in matches]
        changes += [Change(f"pause:{match}", "{}") for match in matches]
        self.store.run(commands.set_policies(KEYS, changes, maker="0000000007", now=self.now))
        return Policies.read(self.store.run(commands.policies(KEYS)))

    def _pass_wakes(self) -> None:
        self.owners = list(self.hands)  # type: ignore[arg-type]  # they have `job` and `woken`, which is what it uses
        super()._pass_wakes()

    def state_of(self, id: str) -> str | None:
        """What get says."""
        found = self.found([id])[id]
        return found.state if found is not None else None

    def attempts_of(self, id: str) -> int:
        """How many attempts were burnt."""
        found = self.found([id])[id]
        assert found is not None
        return found.attempts

    def aside(self) -> dict[str, int]:
        """How many messages stand in each parked set."""
        return {name: self.store.run(commands.count_parked(self.keys, name)) for name in self.stats().parked_sets}

    def dead(self) -> dict[str, Found]:
        """The dead letters by id."""
        return {one.id: one for one in self.store.run(commands.dead_letters(self.keys, 1_000))}

    def field(self, name: str) -> str | None:
        """A field of the queue's state."""
        return self.store.run(
            commands.plain("HGET", self.keys.state, name, read=lambda reply: reply.decode() if reply else None)
        )
