"""One owner that lives on through everything: nobody claims its queue again, so what it forgets must come back by itself.

Redis is away, loses replies, is told late what it was told, or goes back in time; ticks fail in the middle; the process
stands still; targets fail, hang, are full, or refuse. In the end all is well again, and everything has to be forwarded,
cancelled or dead, within each ordering key of a topic in order.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from structlog.testing import capture_logs

from delayq.base.errors import StoreUnavailable
from delayq.domain.policies import NO_POLICIES, Pause, Policies
from delayq.domain.routes import Route, Routes
from delayq.store import commands
from delayq.store.commands import Change, Command
from delayq.store.connect.store import Store
from delayq.store.keys import KEYS, ParkedSet
from delayq.targets import OK, Result
from tests.protocol.world import tick
from tests.support.timeouts import PATIENCE
from tests.workers.one_queue import GENERAL, OTHER, START, Hand, OneQueue
from workers.queue import ordering
from workers.queue.queue_context import Bounds
from workers.sending.backoff import Backoff
from workers.sending.message import LOOK_AGAIN, InFlightMessage, Stage

BOUNDS = Bounds(window=60, window_bytes=40_000, look=12, max_attempts=4, backoff=Backoff(10, 200))
TOPICS = {"g.t": "general", "g.p": "general", "o.t": "other"}
PAUSES = ("g.p", "*.t", "o.*", "*")
#: Some lives have topics of one stream here besides.
ONE_STREAM = Route(name="one", match="s.*", stream="all")
STREAM_TOPICS = {"s.t": "one", "s.p": "one", "s.q": "one"}
STREAM_PAUSES = ("s.p", "s.*")
#: What others bound topics to, one after the other; "" is nothing.
LIMITS = (
    "",
    '{"match": "*", "rate": 100, "burst": 30, "per": "policy"}',
    '{"match": "*", "rate": 300, "burst": 100}',
    '{"match": "*.t", "rate": 50, "burst": 50}',
    '{"match": "g*", "maxInFlight": 2, "per": "policy"}',
    '{"match": "*", "maxInFlight": 3, "rate": 200, "burst": 100}',
    '{"match": "*", "rate": 100000}',
    '{"match": "g*", "maxInFlight": 1000}',
)
ORDERING_KEYS = ("", "a", "b", "c/1")
STEPS = 150
AWAY = StoreUnavailable("Redis is unreachable, or its reply was lost")


class Broken(Exception):
    """A tick fails in the middle."""


class FaultyStore:
    """The store of the owner: what it is told goes wrong as the test says."""

    keys = KEYS

    def __init__(self, store: Store, dice: random.Random, now: Callable[[], int]) -> None:
        self.fault = ""
        self.late: list[list[Command[Any]]] = []  # on its way still, though its caller has given it up
        self.url = store.url
        self._store = store
        self._dice = dice
        self._now = now

    def run(self, command: Command[Any]) -> Any:
        return self._store.run(command)

    def server_of(self, key: str) -> None:
        return None

    def run_many(self, wanted: Iterable[Command[Any]]) -> list[Any]:
        given, fault = list(wanted), self.fault
        place = self._dice.randrange(len(given) + 1)
        if self.late and self._dice.random() < 0.3:
            self.arrive_late()
        if fault == "away":
            return [AWAY] * len(given)
        if fault == "late":
            self.late.append(given)
            return [AWAY] * len(given)
        if fault == "cut":
            return [*self._store.run_many(given[:place]), *([AWAY] * (len(given) - place))]
        answers: list[Any] = self._store.run_many(given)
        if fault == "lost all":
            return [AWAY] * len(given)
        if fault == "lost":
            return [*answers[:place], *([AWAY] * (len(given) - place))]
        if fault == "again":
            # Nothing of an owner is sent again by the store, and what a release has handed out would be parked again.
            place = max([place, *(at + 1 for at, one in enumerate(given) if one.script == "release")])
            return [*answers[:place], *self._store.run_many(given[place:])]
        if fault == "broken":
            raise Broken
        return answers

    def arrive_late(self) -> None:
        """What was given up long ago reaches Redis."""
        if self.late:
            self._store.run_many([self._at_its_time(one) for one in self.late.pop(0)])

    def _at_its_time(self, command: Command[Any]) -> Command[Any]:
        """Slots are taken by the clock of Redis as it is then; by that of before, one that was set back would end them early."""
        if command.script != "take_slots":
            return command
        return msgspec.structs.replace(command, args=(self._now(), *command.args[1:]))


class BreakableRoutes(Routes):
    """A lookup fails now and then, in the middle of a tick."""

    left: int | None = None  # lookups until one fails

    def find(self, topic: str) -> Route | None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Broken
        return super().find(topic)


class Stalls:
    """Counts how often the process stood still."""

    count = 0


@dataclass
class Known:
    """What the test knows of a message."""

    id: str
    key: str
    route: str
    due: int
    born: int
    arrived: bool = False  # at its target, once at least
    topic: str = ""
    fair: bool = True  # no Redis that went back in time has moved it

    @property
    def place(self) -> tuple[int, str]:
        return self.due, self.id


@dataclass
class Snapshot:
    keys: dict[bytes, bytes]
    places: dict[str, object]
    alive: dict[str, Known]


@dataclass
class Life:
    """One random life; `play` raises AssertionError if a promise is broken."""

    store: Store
    seed: int
    streams: bool = False
    slots: bool = False
    limits: bool = False
    by_hand: bool = False
    backlog: bool = False
    alive: dict[str, Known] = field(default_factory=dict)
    pulled_at: dict[int, int] = field(default_factory=dict)  # id of an InFlightMessage -> step
    keep: list[InFlightMessage] = field(default_factory=list)
    step: int = 0
    snapshot: Snapshot | None = None
    promised: Policies = NO_POLICIES  # the last that somebody was told of
    promised_at: int = 0
    removed: dict[str, tuple[int, bool]] = field(default_factory=dict)  # by a cancel: when, and whether for certain
    appended: int = 0  # to the stream here, when it was looked at last
    forced: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.turns = random.Random(f"turns of {self.seed}")  # of other queues, in which this one takes no slice
        random.seed(self.seed)  # jitter
        table = (GENERAL, OTHER, ONE_STREAM) if self.streams else (GENERAL, OTHER)
        self.topics = TOPICS | STREAM_TOPICS if self.streams else TOPICS
        self.pauses = PAUSES + STREAM_PAUSES if self.streams else PAUSES
        bounds = msgspec.structs.replace(BOUNDS, window=self.dice.choice((9, 12, 30, 60))) if self.backlog else BOUNDS
        self.world = OneQueue(self.store, table, bounds)
        self.faulty = FaultyStore(self.store, self.dice, lambda: self.world.now)
        self.routes = BreakableRoutes(table)
        self.stalls = Stalls()
        self.world.routes = self.routes
        self.world.store = self.faulty  # type: ignore[assignment]  # it is what the owner uses
        self.hand: Hand = self.world.take_over(stalls=self.stalls)  # type: ignore[arg-type]  # only its `count` is read
        self.world.store = self.store
        for one in self.hand.senders.values():
            one._stalls = self.stalls  # type: ignore[assignment]  # as above
        self.targets = dict.fromkeys(("general", "other"), "well")
        self.arrived: list[str] = []
        self.given: dict[str, int] = {}  # how much was given to each sender, up to the last look

    def play(self) -> None:
        """Live, and come to an end."""
        if self.slots:
            policy = '{"match": "g*", "maxInFlight": 2, "per": "policy"}'
            self.store.run(
                commands.set_policies(KEYS, [Change("policy:p", policy)], maker="0000000009", now=self.world.now)
            )
            self.the_node_reads_the_policies()
        try:
            for _ in range(STEPS):
                self.step += 1
                self.something_happens()
                self.live()
            self.all_is_well_again()
            self.come_to_an_end()
        finally:
            self.world.close()

    # -- what happens ------------------------------------------------------------------------------------------------

    def something_happens(self) -> None:
        dice = self.dice
        if dice.random() < (0.03 if self.backlog else 0.5):
            self.callers_call()
        chance = dice.random() * (10 if self.backlog else 1)  # a backlog drains a while before something goes wrong
        if chance < 0.06:
            self.targets[dice.choice(list(self.targets))] = dice.choice(
                ("well", "well", "failing", "hanging", "full", "refusing", "sometimes")
            )
        elif chance < 0.16:
            self.faulty.fault = dice.choice(("", "", "away", "late", "cut", "lost", "again", "broken"))
        elif chance < 0.18:
            self.routes.left = dice.randrange(6)
        elif chance < 0.20:
            self.the_process_stands_still()
        elif chance < 0.22:
            self.snapshot = self.look()
        elif chance < 0.23 and self.snapshot is not None:
            self.redis_goes_back_in_time(self.snapshot)
        elif chance < 0.27:
            self.somebody_pauses_or_resumes()
        if self.backlog and sum(not one.arrived for one in self.alive.values()) < 4:
            self.a_backlog_is_held()
        if self.by_hand and self.alive and dice.random() < 0.4:
            self.somebody_has_it_delivered_now(self.alive[dice.choice(list(self.alive))], force=dice.random() < 0.7)
        if self.limits and dice.random() < 0.08:
            self.somebody_limits(dice.choice(LIMITS))
        if self.streams and dice.random() < 0.04:
            self.the_stream_is_another(takes=dice.random() < 0.5)
        if dice.random() < 0.3:
            self.the_node_reads_the_policies()
        self.world.advance(dice.choice((0, 1, 20, 300, 700) if self.backlog else (0, 0, 1, 5, 20, 120, 1_100)))

    def a_backlog_is_held(self) -> None:
        """Many messages of a key fall due during a pause, and a lost reply sends the offset before them.

        While they drain slowly, some get stale behind others, and the ack of one goes along with a release of the next ones.
        """
        self.world.pause("*", told=False)
        self.promised, self.promised_at = Policies(pauses={"*": Pause(match="*")}), self.step
        for _ in range(self.dice.choice((20, 40))):
            self.schedule(self.dice.choice(ORDERING_KEYS[:2]), "g.t", self.dice.randrange(1_000))
        self.world.advance(1_000)
        self.the_node_reads_the_policies()
        for fault in ("", "", "lost all", "", ""):
            self.faulty.fault = fault
            self.tick()
            self.world.advance(60)
        self.world.pause(told=False)
        self.promised = NO_POLICIES
        self.the_node_reads_the_policies()

    def callers_call(self) -> None:
        dice, now = self.dice, self.world.now
        kind = dice.random()
        if kind < 0.7:
            for _ in range(dice.choice((1, 1, 3, 12))):
                self.schedule(
                    dice.choice(ORDERING_KEYS), dice.choice(list(self.topics)), dice.choice((-200, 0, 5, 40, 300))
                )
        elif self.alive:
            one = self.alive[dice.choice(list(self.alive))]
            if kind < 0.85:
                if (answer := self.world.cancel(one.id)) in ("cancelled", "inFlight"):
                    del self.alive[one.id]
                    self.removed[one.id] = self.world.elapsed, answer == "cancelled"
            elif self.world.reschedule(one.id, now + 30)[0] == "scheduled":
                # What can be moved is not in a stream here, unless Redis went back in time.
                arrived = one.arrived and one.route in self.hand.senders
                self.alive[one.id] = Known(one.id, one.key, one.route, now + 30, self.step, arrived, one.topic)

    def somebody_has_it_delivered_now(self, one: Known, *, force: bool) -> None:
        if force:
            self.forced.add(one.id)
        result, due = self.world.deliver_now(one.id, one.topic, force=force)
        if result == "scheduled" and due is not None and due != one.due:
            self.alive[one.id] = Known(one.id, one.key, one.route, due, self.step, one.arrived, one.topic, one.fair)

    def somebody_pauses_or_resumes(self) -> None:
        """He may die before the queue has it: then nobody was told that it is so."""
        paused = self.dice.sample(self.pauses, self.dice.choice((0, 0, 1, 2)))
        if self.dice.random() < 0.7:
            self.world.pause(*paused, told=False)
            self.promised, self.promised_at = Policies(pauses={one: Pause(match=one) for one in paused}), self.step
        else:
            self.world.set_policies(*paused)
            kept = {match: one for match, one in self.promised.pauses.items() if match in paused}
            self.promised = Policies(pauses=kept)

    def somebody_limits(self, policy: str) -> None:
        """He may die before the queue has it, as who pauses may."""
        change = Change("policy:p", policy)
        self.store.run(commands.set_policies(KEYS, [change], maker="0000000009", now=self.world.now))
        if self.dice.random() < 0.7:
            now = Policies.read(self.store.run(commands.policies(KEYS)))
            self.store.run(commands.apply_policies(self.world.keys, now.version, now.paused, now=self.world.now))
            self.promised, self.promised_at = Policies(pauses=now.pauses), self.step

    def the_stream_is_another(self, *, takes: bool) -> None:
        """It was deleted; unless it `takes` messages, one stands there whose ids have come to an end."""
        self.check_stream()
        self.appended = 0
        self._plain("DEL", "all")
        if not takes:
            self._plain("XGROUP", "CREATE", "all", "g", "$", "MKSTREAM")
            self._plain("XSETID", "all", f"{2**64 - 1}-{2**64 - 1}")

    def the_node_reads_the_policies(self) -> None:
        self.hand.policies.current = Policies.read(self.store.run(commands.policies(KEYS)))
        self.hand.job.wake(None)

    def schedule(self, key: str, topic: str, after: int) -> None:
        id = f"m{self.step:03}-{self.dice.randrange(10**9):09}"
        due = max(self.world.now, self.world.now + after)
        self.world.add(id, topic, due - START, ordering_key=key, body="x" * self.dice.choice((5, 5, 3_000)))
        self.alive[id] = Known(id, key, self.topics[topic], due, self.step, topic=topic)

    def the_process_stands_still(self) -> None:
        self.stalls.count += 1
        for one in self.hand.senders.values():  # what was not sent before is not sent any more
            while one.outbox:
                one.not_sent(one.outbox[0][1])

    # -- Redis that goes back in time --------------------------------------------------------------------------------

    def look(self) -> Snapshot:
        keys = {name: self._plain("DUMP", name) for name in self._plain("KEYS", "delayq:{0}:*")}
        return Snapshot(keys, self.places(), copy.deepcopy(self.alive))

    def places(self) -> dict[str, object]:
        """Where each message stands."""
        found: dict[str, object] = {}
        for name in sorted(self._plain("KEYS", "delayq:{0}:*")):
            if name.endswith(b":queue") or b":parked:" in name:
                for ticket, score in self._plain("ZRANGE", name, 0, -1, "WITHSCORES", pairs=True).items():
                    found[ticket[:-8].decode()] = name, score, ticket
        return found

    def redis_goes_back_in_time(self, to: Snapshot) -> None:
        before = self.places()
        for name in self._plain("KEYS", "delayq:{0}:*"):
            self._plain("DEL", name)
        for name, value in to.keys.items():
            self._plain("RESTORE", name, 0, value)
        self.faulty.late.clear()
        self.promised = NO_POLICIES  # what the queue was told is lost
        now = self.alive
        self.alive = copy.deepcopy(to.alive)
        self.removed = {id: removed for id, removed in self.removed.items() if id not in self.alive}
        for id, one in self.alive.items():
            one.arrived = one.arrived or id in self.arrived
            one.fair = id in now and now[id].fair and before.get(id) == to.places.get(id)

    def _plain(self, *words: Any, pairs: bool = False) -> Any:
        reply = self.store.run(commands.plain(*words, read=lambda reply: reply))
        return {reply[i]: int(reply[i + 1]) for i in range(0, len(reply), 2)} if pairs else reply

    # -- the owner and its targets -----------------------------------------------------------------------------------

    def live(self) -> None:
        for _ in range(1 if self.backlog else self.dice.randrange(4)):
            self.tick()
            answers = self.dice.choice((0, 0.5, 0.9, 1)) if self.backlog else 0.7
            for one in self.hand.senders.values():
                while one.outbox and self.dice.random() < answers:
                    self.answer(one.route.name, self.dice.randrange(len(one.outbox)))

    def ask_for_permits(self) -> None:
        with suppress(Broken):  # as the thread does that asks
            self.hand.limits.tick()
        self.check_sent()
        if self.slots:
            self.check_slots()

    def check_slots(self) -> None:
        one = self.hand.senders["general"]
        in_time = [send for send in one._begun if self.world.elapsed - send.since < one.longest]
        assert len(in_time) <= 2, f"{len(in_time)} are sent at a time"

    def tick(self) -> float:
        if self.slots or self.limits:
            self.ask_for_permits()
        before = {id(held) for held in self.hand.job.in_flight.messages.values()}
        turn = not self.hand.job.in_backlog or self.turns.random() < 0.6
        try:
            pause = tick(self.hand.job, self.faulty, backlog=turn)  # type: ignore[arg-type]  # it is the owner's store
        except Exception:  # as its thread does
            self.hand.job.failed()
            pause = self.hand.job.looks_at - self.hand.job.ticked_at
        for held in self.hand.job.in_flight.messages.values():
            if id(held) not in before:
                self.pulled_at[id(held)] = self.step
                self.keep.append(held)
        self.check_sent()
        self.check_stream()
        self.check_books()
        if self.hand.policies.ahead:  # as a node does at once
            self.hand.policies.ahead = ""
            self.the_node_reads_the_policies()
        return pause

    def answer(self, route: str, index: int) -> None:
        target, one = self.targets[route], self.hand.senders[route]
        if target == "sometimes":
            target = self.dice.choice(("well", "well", "failing", "lost", "refusing"))
        if target == "hanging" and self.dice.random() < 0.9:
            return
        results: Mapping[str, Result] = {
            "well": OK,
            "failing": Result.unavailable("down"),
            "hanging": Result.unknown("timed out"),
            "lost": Result.unknown("timed out"),
            "full": Result.full("full"),
            "refusing": Result.rejected("bad"),
        }
        id = one.ids[index]
        if target == "well" or (target in ("lost", "hanging") and self.dice.random() < 0.5):
            self.arrived.append(id)
            if id in self.alive:
                self.alive[id].arrived = True
        one.answer(index, results[target])
        self.check_sent()  # its slot may have been passed on

    # -- what was promised -------------------------------------------------------------------------------------------

    def check_sent(self) -> None:
        """What was given to senders since the last look."""
        for name, one in self.hand.senders.items():
            for held in one.on_submit[self.given.get(name, 0) :]:
                self.keep.append(held)
                self.check_pause(held)
                self.check_cancel(held)
                self.check_order(held)
            self.given[name] = len(one.on_submit)

    def check_cancel(self, held: InFlightMessage) -> None:
        assert held.score <= self.world.now, f"{held.id} is sent early"
        at, certain = self.removed.get(held.id, (self.world.elapsed, False))
        assert not certain, f"{held.id} is sent after it was cancelled for certain"
        assert self.world.elapsed - at <= LOOK_AGAIN, f"{held.id} is sent long after a cancel removed it"
        moved = self.alive.get(held.id)
        assert moved is None or not moved.fair or self.world.now >= moved.due, f"{held.id} is sent before its new due"

    def check_pause(self, held: InFlightMessage) -> None:
        if held.by_force:
            assert held.id in self.forced, f"{held.id} was forced by nobody"
            return
        read = self.hand.job._policies
        assert read.pause(held.topic) is None, f"{held.id} is sent, though its owner knows that it is paused"
        if self.pulled_at.get(id(held), self.step) > self.promised_at:
            assert self.promised.pause(held.topic) is None, f"{held.id} is pulled and sent, though it was paused before"

    def check_order(self, held: InFlightMessage) -> None:
        sent = self.alive.get(held.id)
        if sent is not None and sent.due == held.score:
            self.check_elders(sent, self.pulled_at.get(id(held), self.step))

    def check_elders(self, sent: Known, pulled: int) -> None:
        """No message of its topic and key that was there when it was pulled is still to go. By force a message has no order."""
        if not sent.key or sent.arrived or sent.id in self.forced:
            return
        for other in self.alive.values():
            if (other.key, other.topic) != (sent.key, sent.topic) or other.arrived or other.place >= sent.place:
                continue
            if other.fair and other.born < pulled and not {sent.id, other.id} & set(self.forced):
                found = self.world.found([other.id])[other.id]
                state = found.state if found is not None else "gone"
                assert state in ("dead", "gone"), f"step {self.step}: {sent.id} overtakes {other.id}, which is {state}"

    def check_stream(self) -> None:
        """What was appended to the stream here since the last look: nothing paused or cancelled, once, and in order."""
        if not self.streams:
            return
        appended = self.world.stream("all")
        for id in appended[self.appended :]:
            self.arrived.append(id)
            sent = self.alive.get(id)
            if sent is None:
                assert not self.removed.get(id, (0, False))[1], f"{id} is appended after it was cancelled for certain"
                continue
            assert self.world.now >= sent.due, f"{id} is appended early"
            if sent.fair:
                paused = self.promised.pause(sent.topic) is not None
                assert not paused or id in self.forced, f"{id} is appended, though it was paused before"
                assert not sent.arrived, f"{id} is appended twice"
                self.check_elders(sent, self.step + 1)
            sent.arrived = True
        self.appended = len(appended)

    def check_books(self) -> None:
        """What the owner counts and knows is what there is, in each share of the window, each lane, each parked set."""
        job, work = self.hand.job, self.hand.job.in_flight
        messages = work.messages.values()
        assert work._weight == sum(message.weight for message in messages)
        for name, share in work.shares.items():
            own = [message for message in messages if message.route is share.sender.route]
            sending = sum(message.weight for message in own if message.stage is Stage.SENDING)
            assert share.sending == sending, f"the weight of {name} is not that of its messages"
            unheard = [batch for batch, _ in job._inbox if batch[0].route is share.sender.route]
            outside = [*unheard, *(batch for _, batch in self.hand.senders[name].outbox)]
            assert sending == sum(message.weight for batch in outside for message in batch) + share.limited
            waiting = [message for message in own if message.stage is Stage.WAITING]
            assert sorted(map(id, share.waiting)) == sorted(map(id, waiting)), (
                "what waits for room is not all that waits"
            )
        for name, lane in work._lanes._lanes.items():
            assert all(work.messages.get(message.ticket) is message for message in lane), f"{name} keeps what is gone"
            assert lane[0].stage is not Stage.PULLED, f"the first of {name} never goes"
        for name in work._settlement.names:
            if ParkedSet.is_of_topic(name):
                continue  # Redis keeps what comes behind it
            known = job.parked._sets.get(name)
            for message, _ in work._settlement.to_park(name):
                assert known and message.place >= known.head, f"{name} is not known to hold up {message.id}"

    def all_is_well_again(self) -> None:
        self.faulty.fault, self.routes.left = "", None
        while self.faulty.late:
            self.faulty.arrive_late()
        self.targets = dict.fromkeys(self.targets, "well")
        self.world.pause(told=False)
        if self.streams:
            self.the_stream_is_another(takes=True)
        self.promised = NO_POLICIES
        self.the_node_reads_the_policies()

    def come_to_an_end(self) -> None:
        end = self.world.elapsed + 300_000
        while self.pending():
            self.step += 1
            assert self.world.elapsed < end, f"these never end: {self.states()}"
            pause = self.tick()
            answered = False
            for one in self.hand.senders.values():
                while one.outbox:
                    self.answer(one.route.name, 0)
                    answered = True
            if not answered:
                self.world.advance(max(1, min(20 if self.slots or self.limits else 1_000, round(pause))))
        dead = self.world.dead()
        for known in self.alive.values():
            assert known.arrived or known.id in dead, f"{known.id} is gone, though it was never forwarded"
        self.tick()
        work = self.hand.job.in_flight
        assert not work.messages, "something is in flight for ever"
        assert not work.busy
        assert not work.waiting

    def pending(self) -> bool:
        return len(self.world.records()) > len(self.world.dead())

    def states(self) -> dict[str, object]:
        left = sorted(set(self.world.records()) - set(self.world.dead()))
        return {id: (self.world.state_of(id), self.places().get(id)) for id in left[:5]}


def live(
    url: str,
    seed: int,
    *,
    streams: bool = False,
    slots: bool = False,
    limits: bool = False,
    by_hand: bool = False,
    backlog: bool = False,
) -> None:
    """One life, with long lanes or short ones, and perhaps with topics that share a stream here, of which only so many messages
    are sent at a time, or whose limits change, or of which somebody has messages delivered now, also by force, or that have
    a backlog from a pause; raises AssertionError if a promise is broken.

    Its logs are kept from being written: the many tracebacks of ticks that fail take longer than all that the life does.
    """
    lengths = ordering.MOST, ordering.LOW
    if seed % 2:
        ordering.MOST, ordering.LOW = 3, 0
    store = Store(url, timeout=PATIENCE)
    try:
        with capture_logs():
            Life(store, seed, streams, slots, limits, by_hand, backlog).play()
    finally:
        store.close()
        ordering.MOST, ordering.LOW = lengths
